"""One text or prompt to its vector on an engine; what `/v1/embeddings` and `LocalEngine.embed` share.

Knows no wire format. How a checkpoint embeds is `engine/models/embedding.py`, how vectors are computed
`engine/execution/tasks/pool.py`.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from ...engine.models.embedding import Embedding
from ...engine.models.info import ModelInfo
from ...engine.models.prompts import MAX_CHARS_PER_TOKEN
from ...engine.text.tokenizer import TextTokenizer
from ...protocols.engine.messages import INTERACTIVE, Lane, Pool, Pooled, Request, RequestId
from ...protocols.errors import BadRequestError, wrong
from ..inference.client import EngineClient, outcome_of
from ..runtime.nursery import all_of
from ..runtime.off_loop import off_loop

_AT_ONCE: Final = 64
"""Inputs of one request that are in the engine's queue together."""

NO_EMBEDDING: Final = (
    "Models that embed are text encoders, and decoders whose folder has the 1_Pooling/config.json of "
    "sentence-transformers"
)

Input = str | tuple[int, ...]


@dataclass(frozen=True, slots=True)
class EmbeddingModel:
    """A model that embeds texts, under its public name."""

    name: str
    engine: EngineClient
    info: ModelInfo
    embedding: Embedding
    text: TextTokenizer

    @property
    def max_tokens(self) -> int:
        """Of one input."""
        return min(self.info.max_context, self.embedding.max_tokens or self.info.max_context)

    def check_dimensions(self, dimensions: int | None) -> None:
        """Raise BadRequestError if vectors cannot have so many dimensions."""
        if dimensions is not None and not 1 <= dimensions <= self.embedding.size:
            raise wrong("dimensions", f"is {dimensions}; allowed: 1 to {self.embedding.size}")

    def tokenize(self, requested: Input, param: str) -> tuple[int, ...]:
        """The ids of one input: of a text with the checkpoint's prompt in front and the tokenizer's special
        tokens around it; ids are taken as they are. Raises BadRequestError naming `param`."""
        if isinstance(requested, str):
            if len(requested) > self.max_tokens * MAX_CHARS_PER_TOKEN:
                raise self._too_long(param, f"{len(requested)} characters")
            text = self.embedding.default_prompt + requested
            ids = self.text.encode(text, allow_special=True)
            requested = (*self.text.start_ids, *ids, *self.text.closing_ids)
            if not requested:
                raise wrong(param, "has no tokens; allowed: a text of at least one")
        for index, token_id in enumerate(requested):
            if token_id >= self.info.vocab_size:
                allowed = f"token ids from 0 to {self.info.vocab_size - 1}"
                raise wrong(f"{param}[{index}]", f"is {token_id}; allowed: {allowed}")
        if len(requested) > self.max_tokens:
            raise self._too_long(param, f"{len(requested)} tokens")
        return requested

    def _too_long(self, param: str, length: str) -> BadRequestError:
        return BadRequestError(
            f"The text in `{param}` has {length}; the model {self.name} takes up to {self.max_tokens} "
            "tokens. Split the text, or shorten it.",
            param=param,
            code="context_length_exceeded",
        )


@dataclass(frozen=True, slots=True)
class Embedded:
    """The vectors of some inputs, in order."""

    vectors: list[bytes]
    """float32, little-endian."""
    num_tokens: int
    """Of all inputs."""
    num_cached: int
    """Of them, in the prefix cache."""


def embedding_model(
    name: str, engine: EngineClient, info: ModelInfo, text: TextTokenizer | None
) -> EmbeddingModel | None:
    """The embedding side of a model; None if its folder does not say how it embeds."""
    if info.embedding is None or text is None:
        return None
    return EmbeddingModel(name, engine, info, info.embedding, text)


async def embed_all(
    model: EmbeddingModel,
    inputs: Sequence[tuple[str, Input]],
    *,
    dimensions: int | None = None,
    lane: Lane = INTERACTIVE,
    cache_salt: str = "",
) -> Embedded:
    """The vectors of `inputs`, each given with the name of its field.

    All inputs are checked before one is computed. Raises BadRequestError naming the field, and the engine's
    errors. Any failure and cancellation aborts all of them.
    """
    model.check_dimensions(dimensions)
    size = sum(len(each) for _, each in inputs)
    prompts = await off_loop(partial(_tokenize_all, model, inputs), size=size)
    pool = Pool(model.embedding.pooling, model.embedding.is_normalized, dimensions)
    name = secrets.token_hex(12)

    async def embed(numbered: tuple[int, tuple[int, ...]]) -> Pooled:
        number, prompt = numbered
        request = Request(RequestId(f"{name}-{number}"), prompt, pool, lane=lane, cache_salt=cache_salt)
        async with model.engine.placed(prompt_token_ids=prompt, lane=lane) as place:
            return await outcome_of(place, request, Pooled)

    pooled = await all_of(embed, enumerate(prompts), at_once=_AT_ONCE)
    return Embedded(
        [each.values for each in pooled], sum(map(len, prompts)), sum(each.num_cached for each in pooled)
    )


def _tokenize_all(model: EmbeddingModel, inputs: Sequence[tuple[str, Input]]) -> list[tuple[int, ...]]:
    return [model.tokenize(each, param) for param, each in inputs]
