"""The body of `/v1/models`."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from ..engine.messages import Pooling


class ModelCard(Struct, frozen=True):
    """One entry of `/v1/models`; `abilities`, `input_modalities` (what prompts may hold, or what is
    transcribed), `languages` (ISO codes of speech), `delays_ms` (of speech models that stream), `vocab_size`
    (of models that answer prompts), `embedding_size` and `pooling` (of models that embed texts) and `runs`
    (by the engine's own code or that of `transformers`) are ours.
    vLLM's are `root`, the model that an alias means (a model's own name otherwise), `parent`, of which there
    are none, and `max_model_len`, the tokens of a prompt and its answer. Anthropic's are `type`,
    `display_name`, `created_at` and `lifecycle` ("active": what is listed is served).
    """

    id: str
    created: int
    abilities: tuple[str, ...] = ()
    input_modalities: tuple[str, ...] = ()
    languages: tuple[str, ...] | UnsetType = UNSET
    delays_ms: tuple[int, ...] | UnsetType = UNSET
    vocab_size: int | UnsetType = UNSET
    embedding_size: int | UnsetType = UNSET
    pooling: Pooling | UnsetType = UNSET
    runs: str | UnsetType = UNSET
    root: str | UnsetType = UNSET
    parent: None = None
    max_model_len: int | UnsetType = UNSET
    owned_by: str = "sensorium"
    object: Literal["model"] = "model"
    type: Literal["model"] = "model"
    display_name: str | UnsetType = UNSET
    created_at: datetime | UnsetType = UNSET
    lifecycle: Literal["active"] = "active"


class ModelList(Struct, frozen=True):
    """`/v1/models`."""

    data: list[ModelCard]
    object: Literal["list"] = "list"


def models_body(cards: Iterable[ModelCard]) -> bytes:
    """The body of `/v1/models`."""
    return msgspec.json.encode(ModelList(list(cards)))
