"""What `help` shows of the clients, and samples that are refused by what is wrong with them."""

from __future__ import annotations

import pydoc

import numpy as np
import pytest
from sensorium.actors.local.options import read_samples
from sensorium.client import AsyncClient, Client
from sensorium.client.errors import AudioError
from sensorium.client.upload import checked, open_part, wav_file
from sensorium.protocols.errors import BadRequestError

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_help_shows_chat(kind: type) -> None:
    assert "client.chat(" in pydoc.plain(pydoc.render_doc(kind))


def test_a_tensor_alone_is_samples_at_16_khz() -> None:
    tensor = torch.zeros(1600)
    assert read_samples(tensor, "audio").shape == (1600,)
    with open_part(checked(tensor)) as part:
        assert part is not None
        assert part["file"][1] == wav_file(np.zeros(1600, np.float32), 16_000)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_samples_that_are_no_numbers_are_named(value: float) -> None:
    samples = np.full(1600, value, np.float32)
    with pytest.raises(BadRequestError, match="NaN or infinite"):
        read_samples(samples, "audio")
    with pytest.raises(AudioError, match="NaN or infinite"):
        wav_file(samples, 16_000)
