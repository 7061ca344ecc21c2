"""`/v1/embeddings` in OpenAI's shape: texts or token ids in, vectors out as lists or as base64.

Knows no tokenizer and no sockets. Read `operations.py` for the OpenAPI document.
"""

from __future__ import annotations

import array
import base64
import sys
from collections.abc import Sequence
from typing import Final, Literal

import msgspec
from msgspec import Struct

from ..errors import wrong
from ..shared.json_body import Encoded, decoder, refuse

MAX_INPUTS: Final = 2048
"""Of one request; OpenAI's bound."""
_ALLOWED: Final = "a text, a list of texts, token ids, or lists of token ids"

Input = str | tuple[int, ...]


class EmbeddingRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body."""

    input: str | list[str | int | list[int]]
    model: str | None = None
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: int | None = None
    user: str | None = None
    priority: int | None = None
    """Above 0: batch class (vLLM's field)."""


class EmbeddingUsage(Struct, frozen=True, kw_only=True):
    """Tokens read."""

    prompt_tokens: int
    total_tokens: int


class Embedding(Struct, frozen=True, kw_only=True):
    """One vector: a list of numbers, or base64 of float32, little-endian."""

    index: int
    embedding: list[float] | str
    object: Literal["embedding"] = "embedding"


class EmbeddingList(Struct, frozen=True, kw_only=True):
    """The answer."""

    data: list[Embedding]
    model: str
    usage: EmbeddingUsage
    object: Literal["list"] = "list"


_decode_request = decoder(EmbeddingRequest)


def parse_embeddings(body: Encoded) -> tuple[EmbeddingRequest, tuple[tuple[str, Input], ...]]:
    """Read and check a body, as far as that needs no model; its inputs with the names of their fields.

    Raises BadRequestError naming the field.
    """
    request = _decode_request(body, "")
    if request.dimensions is not None and request.dimensions < 1:
        raise refuse("dimensions", request.dimensions, "1 and more")
    return request, inputs_of(request.input)


def inputs_of(given: str | Sequence[str | int | Sequence[int]]) -> tuple[tuple[str, Input], ...]:
    """The inputs in order, each with the name of its field. Raises BadRequestError naming the field."""
    if isinstance(given, str):
        return (("input", checked_input("input", given)),)
    if not given:
        raise refuse("input", given, _ALLOWED)
    if isinstance(given[0], int):
        return (("input", checked_input("input", given)),)
    if len(given) > MAX_INPUTS:
        raise wrong("input", f"has {len(given)} inputs; allowed: up to {MAX_INPUTS} of one request")
    is_text = isinstance(given[0], str)
    found: list[tuple[str, Input]] = []
    for index, each in enumerate(given):
        param = f"input[{index}]"
        if isinstance(each, int) or isinstance(each, str) != is_text:
            raise refuse(param, each, "the same kind as input[0]")
        found.append((param, checked_input(param, each)))
    return tuple(found)


def checked_input(param: str, given: object) -> Input:
    """One text or its token ids. Raises BadRequestError naming the field `param`."""
    if isinstance(given, str):
        if not given:
            raise refuse(param, given, "a text that is not empty")
        return given
    if not isinstance(given, Sequence) or not given:
        raise refuse(param, given, "a text, or a list of at least one token id")
    for index, token_id in enumerate(given):
        if type(token_id) is not int or token_id < 0:
            raise refuse(f"{param}[{index}]", token_id, "token ids")
    return tuple(given)


def embedding_body(
    model: str, vectors: Sequence[bytes], num_tokens: int, encoding: Literal["float", "base64"]
) -> bytes:
    """The body of an answer; `vectors` are float32, little-endian."""
    data = [
        Embedding(
            index=index,
            embedding=base64.b64encode(each).decode() if encoding == "base64" else floats_of(each),
        )
        for index, each in enumerate(vectors)
    ]
    usage = EmbeddingUsage(prompt_tokens=num_tokens, total_tokens=num_tokens)
    return msgspec.json.encode(EmbeddingList(data=data, model=model, usage=usage))


def floats_of(vector: bytes) -> list[float]:
    """The numbers of a vector of float32, little-endian."""
    found = array.array("f")
    found.frombytes(vector)
    if sys.byteorder == "big":
        found.byteswap()
    return found.tolist()
