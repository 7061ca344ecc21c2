"""The routes of embeddings, as the OpenAPI document describes them."""

from __future__ import annotations

from typing import Final

from ..openapi.operation import Operations, post
from .embeddings import EmbeddingList, EmbeddingRequest

OPERATIONS: Final = Operations(
    paths={"/v1/embeddings": (post("Embed texts", EmbeddingRequest, EmbeddingList),)}
)
