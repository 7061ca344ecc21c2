"""Whether a model run by `transformers` takes what was planned for it."""

from __future__ import annotations

from typing import Any


def held_bytes(model: Any) -> int:  # noqa: ANN401
    """What a step reads, and the embeddings that are looked up."""
    return int(model.weight_bytes + model._decoder.get_input_embeddings().weight.nbytes)


def is_planned(planned: int, model: Any) -> bool:  # noqa: ANN401
    """Whether it is about that: layers of float32 read 16 bits where those are all, in whole tiles."""
    return 0.9 * held_bytes(model) <= planned < 1.5 * held_bytes(model)
