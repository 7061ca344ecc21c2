"""What `make gpu` does on a card is done here on a CPU with small shapes, but for the timing."""

from __future__ import annotations

import gpu_decode
import gpu_kernels
import pytest
import torch
from gpu_kernels import Case, Ceilings, Clock, Shape
from sensorium.engine.execution.runner import Runner
from sensorium.kernels.attention.paged_attention import PagedBatch
from support.rerun_graphs import RerunGraphs
from support.text_folder import QwenShape
from torch import Tensor

CPU = torch.device("cpu")
SMALL = Shape("small", 64, 4, 2, 96, 16)
TOP = Ceilings(copy=1e9, product=1e12)


class StoppedClock(Clock):
    """Every piece of work takes a second."""

    def __init__(self) -> None:
        pass

    def measure(self, work: gpu_kernels.Work) -> float:
        work()
        return 1.0


@pytest.fixture
def cases(monkeypatch: pytest.MonkeyPatch) -> list[Case]:
    monkeypatch.setattr(gpu_kernels, "SHAPES", (SMALL,) * 3)
    monkeypatch.setattr(gpu_kernels, "DECODES", (1, 3))
    monkeypatch.setattr(gpu_kernels, "PREFILLS", (17,))
    monkeypatch.setattr(gpu_kernels, "CONTEXTS", (40,))
    monkeypatch.setattr(gpu_kernels, "VOCAB", 700)
    torch.set_num_threads(1)
    dtype = torch.bfloat16
    return [
        *gpu_kernels.attention_cases(CPU, dtype),
        *gpu_kernels.elementwise_cases(CPU, dtype),
        *gpu_kernels.sampling_cases(CPU),
    ]


def test_every_case_agrees_and_is_reported(cases: list[Case], capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu_kernels.report(iter(cases), StoppedClock(), TOP) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(cases) > 30
    assert all(line.count("|") == 7 and "differs" not in line for line in lines)
    kinds = {case.kernel for case in cases}
    assert kinds >= {"attention, decode", "attention, mixed", "write_kv", "rotary", "argmax", "draw, plain"}


def test_a_kernel_that_is_wrong_is_found(
    cases: list[Case], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def wrong(query: Tensor, cache: Tensor, batch: PagedBatch) -> Tensor:
        return torch.zeros_like(query)

    monkeypatch.setattr(gpu_kernels, "paged_attention", wrong)
    attention = [case for case in cases if case.kernel.startswith("attention,")]
    assert gpu_kernels.report(iter(attention), StoppedClock(), TOP) == len(attention)
    assert "differs" in capsys.readouterr().out


def test_without_a_card_there_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["gpu_kernels.py"])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu_kernels.main() == 2
    assert gpu_decode_main(monkeypatch) == 2
    assert capsys.readouterr().out.splitlines() == [
        "there is no CUDA device here: nothing to check",
        "there is no CUDA device here: nothing to measure",
    ]


def gpu_decode_main(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr("sys.argv", ["gpu_decode.py"])
    return gpu_decode.main()


def test_decode_steps_are_compared(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def runner(model: object, *, cuda_graphs: bool, **options: int) -> Runner:
        return Runner(model, cuda_graphs=RerunGraphs() if cuda_graphs else False, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(gpu_decode, "Runner", runner)
    monkeypatch.setattr(gpu_decode, "BATCHES", (1, 3))
    monkeypatch.setattr(gpu_decode, "PROMPT", 20)
    gpu_decode.decode_steps(CPU, 2, QwenShape())
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.endswith(("| 1 of 1 |", "| 3 of 3 |"))] == lines[-2:]
