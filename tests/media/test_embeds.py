"""Encodings of clients: finite in every type, and known by all that is said of them."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np
import pytest
import torch
from sensorium.media import embeds as module
from sensorium.media.embeds import embeds_item
from sensorium.protocols.chat.embeds import Embeds
from sensorium.protocols.engine.messages import FloatType
from sensorium.protocols.errors import MediaError

TYPES: dict[FloatType, torch.dtype] = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


@dataclass
class Rows:
    data: bytes
    embeds: Embeds


def rows(dtype: FloatType, values: torch.Tensor) -> Rows:
    typed = values.to(TYPES[dtype])
    data = typed.view(torch.uint8).numpy().tobytes()
    return Rows(data, Embeds(dtype, (values.shape[0], values.shape[1])))


@pytest.mark.parametrize("dtype", sorted(TYPES))
@pytest.mark.parametrize("bad", [float("inf"), float("-inf"), float("nan"), 70_000.0, -3e38])
def test_what_cannot_be_computed_with_is_refused_wherever_it_is(
    monkeypatch: pytest.MonkeyPatch, dtype: FloatType, bad: float
) -> None:
    monkeypatch.setattr(module, "_AT_A_TIME", 7)
    good = torch.linspace(-60_000, 60_000, 40).view(5, 8)
    found = rows(dtype, good)
    item = embeds_item(found.data, found.embeds)
    assert (item.num_tokens, item.features.data, item.features.encoded) == (5, found.data, dtype)
    for place in (0, 6, 7, 20, 39):
        changed = good.clone()
        changed.view(-1)[place] = bad
        found = rows(dtype, changed)
        with pytest.raises(MediaError, match="not all finite"):
            embeds_item(found.data, found.embeds)


def test_equal_bytes_that_mean_something_else_are_other_contents() -> None:
    data = np.zeros(24, "<f2").tobytes()
    ways = [
        Embeds("float16", (4, 6), (1, 4, 4)),
        Embeds("bfloat16", (4, 6), (1, 4, 4)),
        Embeds("float32", (4, 3), (1, 4, 4)),
        Embeds("float16", (6, 4), (1, 4, 6)),
        Embeds("float16", (4, 6), (1, 2, 8)),
        Embeds("float16", (4, 6)),
    ]
    hashes = {embeds_item(data, each).content_hash for each in ways}
    assert len(hashes) == len(ways)
    assert embeds_item(data, msgspec.structs.replace(ways[0])).content_hash in hashes
