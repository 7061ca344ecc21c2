"""What running out of memory looks like, on GPUs and CPUs, and what does not."""

from __future__ import annotations

import pytest
import torch
from sensorium.engine.execution.faults import first_line, naming_device_loss, out_of_memory, spoils_thread
from sensorium.protocols.errors import DeviceLostError


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."), "2.00 GiB"),
        (
            RuntimeError(
                "[enforce fail] DefaultCPUAllocator: not enough memory: you tried to allocate 64 bytes."
            ),
            "64 bytes",
        ),
        (
            RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 64 bytes."),
            "64 bytes",
        ),
        (MemoryError(), "out of memory"),
    ],
)
def test_what_running_out_of_memory_looks_like(error: BaseException, message: str) -> None:
    assert message in (out_of_memory(error) or "")


def test_other_errors_are_not_about_memory() -> None:
    assert out_of_memory(RuntimeError("shape mismatch")) is None
    assert out_of_memory(ValueError("")) is None


def test_a_kernel_that_is_not_supported_spoils_nothing() -> None:
    assert spoils_thread(RuntimeError("could not create a primitive"))
    unsupported = "could not create a primitive descriptor for a convolution forward propagation primitive"
    assert not spoils_thread(RuntimeError(unsupported))


def test_the_first_line_is_short_and_never_empty() -> None:
    assert first_line(ValueError("one\ntwo")) == "one"
    assert first_line(KeyError()) == "KeyError"
    assert len(first_line(ValueError("x" * 1000))) <= 200


def test_an_accelerators_error_means_that_the_device_is_lost() -> None:
    @naming_device_loss
    def execute(is_good: bool) -> int:
        if is_good:
            return 7
        raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered")

    assert execute(True) == 7
    with pytest.raises(DeviceLostError, match="the device failed: CUDA error: an illegal memory access"):
        execute(False)
