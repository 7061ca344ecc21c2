"""Pictures of requests that come at once are encoded together, and each of them once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from unittest.mock import patch

import pytest
import torch
from sensorium.engine.models.base import EncoderOutput
from sensorium.engine.models.multimodal.model import MultimodalModel
from sensorium.protocols.engine.messages import Features
from support.exactness import Case, Engine
from support.media_checkpoints import Checkpoint
from support.media_families import BY_NAME
from support.media_family import make_media_folder

NUM_REQUESTS = 16


@pytest.fixture(scope="module", params=["llava", "qwen2_vl"])
def checkpoint(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Checkpoint]:
    """Squares of one size, and patches of any grid."""
    family = BY_NAME[request.param]
    with torch.inference_mode():
        yield Checkpoint(make_media_folder(tmp_path_factory.mktemp(request.param), family), family)


def question(checkpoint: Checkpoint, seed: int, text: str) -> Case:
    """About one picture; pictures of other seeds have other sizes."""
    prompt = checkpoint.prompt((40 + 8 * (seed % 3), 56, seed), text)
    return Case(prompt.token_ids, (), (), prompt.items, prompt.spans)


def test_pictures_of_sixteen_requests_are_encoded_in_few_calls_and_once(checkpoint: Checkpoint) -> None:
    model = checkpoint.model
    assert isinstance(model, MultimodalModel)
    calls: list[int] = []
    towers: list[int] = []
    base: Any = type(model._base)
    encode, see = MultimodalModel.encode, base.get_image_features

    def counted(self: MultimodalModel, items: Sequence[Features]) -> list[EncoderOutput]:
        calls.append(len(items))
        return encode(self, items)

    def seen(self: object, *args: object, **options: object) -> object:
        towers.append(1)
        return see(self, *args, **options)

    engine = Engine(model, num_blocks=400, positions=checkpoint.source.positions)
    with (
        patch.object(MultimodalModel, "encode", counted),
        patch.object(type(model._base), "get_image_features", seen),
        torch.inference_mode(),
    ):
        for seed in range(NUM_REQUESTS):
            engine.submit(question(checkpoint, seed, "What is it?"), num_tokens=2)
        engine.run()
        assert sum(calls) == NUM_REQUESTS
        assert len(towers) <= NUM_REQUESTS // 4, calls
        before = list(calls)
        for seed in range(NUM_REQUESTS):
            engine.submit(question(checkpoint, seed, "And what else?"), num_tokens=2)
        engine.run()
        assert calls == before, "a second question about a picture encodes nothing"
