"""LangChain's and llama-index' clients of `/v1/embeddings`, LangChain's by its standard suite.

Both get the vectors that a plain request gets.
"""

from __future__ import annotations

import os
from typing import Any

import httpx
import pytest
from langchain_openai import OpenAIEmbeddings
from langchain_tests.integration_tests import EmbeddingsIntegrationTests
from llama_index.embeddings.openai_like import OpenAILikeEmbedding

URL = os.environ["PEERS_URL"]
MODEL = os.environ["PEERS_EMBEDDING_MODEL"]
TEXTS = ["The train leaves at five.", "A cat.", "El perro come en la cocina."]


def plain(texts: list[str], **fields: object) -> list[list[float]]:
    """The vectors of a request of our own."""
    body = {"model": MODEL, "input": texts, **fields}
    answer = httpx.post(f"{URL}/v1/embeddings", json=body, timeout=60).raise_for_status().json()
    return [each["embedding"] for each in answer["data"]]


def langchain(**options: int) -> OpenAIEmbeddings:
    """LangChain's client. Without the check it sends texts; with it token ids of OpenAI's vocabulary."""
    return OpenAIEmbeddings(
        base_url=f"{URL}/v1", api_key="none", model=MODEL, check_embedding_ctx_length=False, **options
    )


def llama_index(**options: int) -> OpenAILikeEmbedding:
    """llama-index' client."""
    return OpenAILikeEmbedding(api_base=f"{URL}/v1", api_key="none", model_name=MODEL, **options)


class TestLangChain(EmbeddingsIntegrationTests):
    """The standard suite."""

    @property
    def embeddings_class(self) -> type[OpenAIEmbeddings]:
        found: type[OpenAIEmbeddings] = OpenAIEmbeddings
        return found

    @property
    def embedding_model_params(self) -> dict[str, Any]:
        return {
            "base_url": f"{URL}/v1",
            "api_key": "none",
            "model": MODEL,
            "check_embedding_ctx_length": False,
        }


def test_langchain_gets_the_vectors() -> None:
    expected = plain(TEXTS)
    assert langchain().embed_documents(TEXTS) == [pytest.approx(each, abs=1e-6) for each in expected]
    assert langchain().embed_query(TEXTS[0]) == pytest.approx(expected[0], abs=1e-6)


def test_langchain_asks_for_few_dimensions() -> None:
    found = langchain(dimensions=8).embed_documents(TEXTS)
    assert found == [pytest.approx(each, abs=1e-6) for each in plain(TEXTS, dimensions=8)]
    assert {len(each) for each in found} == {8}


@pytest.mark.parametrize("batch_size", [2, 100])
def test_llama_index_gets_the_vectors(batch_size: int) -> None:
    found = llama_index(embed_batch_size=batch_size).get_text_embedding_batch(TEXTS)
    assert found == [pytest.approx(each, abs=1e-6) for each in plain(TEXTS)]


async def test_llama_index_gets_the_vectors_of_queries() -> None:
    expected = pytest.approx(plain(TEXTS)[1], abs=1e-6)
    assert llama_index().get_query_embedding(TEXTS[1]) == expected
    assert await llama_index().aget_text_embedding(TEXTS[1]) == expected


def test_llama_index_asks_for_few_dimensions() -> None:
    found = llama_index(dimensions=8).get_text_embedding_batch(TEXTS)
    assert found == [pytest.approx(each, abs=1e-6) for each in plain(TEXTS, dimensions=8)]
