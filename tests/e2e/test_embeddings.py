"""`/v1/embeddings` of a real server: OpenAI's client, our SDK, the command line, and what is refused."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import openai
import pytest
from sensorium import AsyncClient, Client
from sensorium.actors.config.server import EngineConfig, ProcessConfig
from sensorium.client.cli.embed import embed
from sensorium.client.errors import APIError
from support.both_loops import both_loops
from support.encoder_folder import TEXTS, cosines, make_embedding_folder, reference_vectors
from support.server import Server, make_config, running_server
from support.text_folder import make_qwen3_folder

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("models")
    return {
        "bert": make_embedding_folder(root / "bert", "bert", mode="mean"),
        "qwen3": make_embedding_folder(root / "qwen3", "qwen3", mode="lasttoken", has_head=True),
        "chat": make_qwen3_folder(root / "chat"),
    }


@pytest.fixture(scope="module")
def server(folders: dict[str, Path]) -> Iterator[Server]:
    engine = EngineConfig(device="cpu", dtype="float32", num_threads=1, kv_memory="8MiB")
    models = [str(folder) for folder in folders.values()]
    with running_server(make_config(*models, engine=engine)) as running:
        yield running


@pytest.fixture(autouse=True)
def nothing_is_left(server: Server) -> Iterator[None]:
    yield
    server.wait_quiet()


@pytest.mark.parametrize(("name", "mode"), [("bert", "mean"), ("qwen3", "lasttoken")])
@pytest.mark.parametrize("encoding", ["float", "base64", None])
def test_openai_client_gets_the_vectors_of_transformers(
    server: Server, folders: dict[str, Path], name: str, mode: str, encoding: str | None
) -> None:
    client = openai.OpenAI(base_url=server.api, api_key="none")
    options = {} if encoding is None else {"encoding_format": encoding}
    answer = client.embeddings.create(model=name, input=list(TEXTS), user="me", **options)  # type: ignore[arg-type]
    embeddings: list[Any] = [each.embedding for each in answer.data]
    found = [
        np.frombuffer(base64.b64decode(each), "<f4") if isinstance(each, str) else np.array(each, np.float32)
        for each in embeddings
    ]
    assert [each.index for each in answer.data] == list(range(len(TEXTS)))
    expected = reference_vectors(folders[name], TEXTS, mode)  # type: ignore[arg-type]
    assert cosines(np.stack(found), expected).min() >= 0.99999
    assert answer.model == name
    assert answer.usage.prompt_tokens == answer.usage.total_tokens > len(TEXTS)


def test_inputs_are_texts_and_token_ids(server: Server) -> None:
    def post(given: object, **options: object) -> list[list[float]]:
        body = {"input": given, "model": "bert", **options}
        answer = httpx.post(f"{server.api}/embeddings", json=body, timeout=60).raise_for_status().json()
        return [each["embedding"] for each in answer["data"]]

    ids = httpx.post(f"{server.url}/tokenize", json={"prompt": "A cat.", "model": "qwen3"}).json()["tokens"]
    assert len(post("A cat.")) == 1
    assert len(post(["A cat.", "A dog."])) == 2
    assert post([2, 40, 41, 3]) == post([[2, 40, 41, 3]])
    (from_text,), (from_ids,) = post("A cat.", model="qwen3"), post([*ids, last_id(server)], model="qwen3")
    assert from_text == pytest.approx(from_ids, abs=1e-6)
    (short,) = post("A cat.", dimensions=8)
    assert len(short) == 8
    assert sum(each * each for each in short) == pytest.approx(1, abs=1e-5)


def last_id(server: Server) -> int:
    """What the tokenizer of `qwen3` puts behind a text."""
    model = server.service.models["qwen3"].embeds
    assert model is not None
    (found,) = model.text.closing_ids
    return found


def test_base64_is_the_same_numbers(server: Server) -> None:
    body = {"input": "A cat.", "model": "bert"}
    url = f"{server.api}/embeddings"
    numbers = httpx.post(url, json=body).json()["data"][0]["embedding"]
    text = httpx.post(url, json={**body, "encoding_format": "base64"}).json()["data"][0]["embedding"]
    assert list(struct.unpack("<32f", base64.b64decode(text))) == numbers


@pytest.mark.parametrize(
    ("body", "param", "message"),
    [
        ({"input": ""}, "input", "a text that is not empty"),
        ({"input": []}, "input", "allowed: a text, a list of texts"),
        ({"input": ["a", [1]]}, "input[1]", "the same kind as input[0]"),
        ({"input": ["a", ""]}, "input[1]", "not empty"),
        ({"input": [1, -1]}, "input[1]", "token ids"),
        ({"input": [[1], [10**6]]}, "input[1][0]", "allowed: token ids from 0"),
        ({"input": ["a"] * 2049}, "input", "allowed: up to 2048"),
        ({"input": "a", "dimensions": 0}, "dimensions", "1 and more"),
        ({"input": "a", "dimensions": 33}, "dimensions", "allowed: 1 to 32"),
        ({"input": "a", "encoding_format": "hex"}, "encoding_format", "hex"),
        ({"input": "a", "inputs": "b"}, "inputs", "not a known field"),
        ({"input": "a b " * 200}, "input", "takes up to 128 tokens"),
        (
            {"input": "a", "model": "chat"},
            "model",
            "`chat` does not embed; it can complete, chat. Models served here that do: bert",
        ),
    ],
)
def test_errors_name_the_field(server: Server, body: dict[str, object], param: str, message: str) -> None:
    answer = httpx.post(f"{server.api}/embeddings", json={"model": "bert", **body})
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert error["param"] == param
    assert message in error["message"]


@pytest.mark.parametrize("path", ["chat/completions", "completions"])
def test_a_model_that_only_embeds_says_so(server: Server, path: str) -> None:
    body = {"model": "bert", "prompt": "a", "messages": [{"role": "user", "content": "a"}]}
    del body["prompt" if "chat" in path else "messages"]
    answer = httpx.post(f"{server.api}/{path}", json=body)
    assert answer.status_code == 400
    assert "`bert` does not answer prompts; it can embed" in answer.json()["error"]["message"]


def test_models_are_listed_with_what_they_can(server: Server) -> None:
    cards = {each["id"]: each for each in httpx.get(f"{server.api}/models").json()["data"]}
    assert cards["bert"]["abilities"] == ["embed"]
    assert (cards["bert"]["pooling"], cards["bert"]["embedding_size"]) == ("mean", 32)
    assert "embed" in cards["qwen3"]["abilities"]
    assert "pooling" not in cards["chat"]


def test_the_first_model_that_embeds_is_the_default(server: Server) -> None:
    answer = httpx.post(f"{server.api}/embeddings", json={"input": "A cat."}).json()
    assert answer["model"] == "bert"
    chat = httpx.post(f"{server.api}/completions", json={"prompt": "A cat.", "max_tokens": 1}).json()
    assert chat["model"] == "qwen3"


@both_loops
async def test_the_sdk_embeds(server: Server, folders: dict[str, Path]) -> None:
    async with AsyncClient(server.url) as client:
        vectors = await client.embed(TEXTS, model="bert")
    assert (
        cosines(np.array(vectors, np.float32), reference_vectors(folders["bert"], TEXTS, "mean")).min()
        >= 0.99999
    )


def test_the_sdk_embeds_one_text(server: Server) -> None:
    with Client(server.url) as client:
        (vector,) = client.embed("A cat.", model="bert", dimensions=8)
        assert len(vector) == 8
        with pytest.raises(APIError, match="does not embed"):
            client.embed("A cat.", model="chat")


def test_the_command_prints_a_line_for_each_text(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    assert embed(["A cat.", "A dog."], model="bert", base_url=server.url) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [len(line) for line in lines] == [32, 32]
    assert embed([], base_url=server.url) == 2


def test_a_server_in_another_process_embeds(folders: dict[str, Path]) -> None:
    engine = EngineConfig(device="cpu", dtype="float32", num_threads=1)
    config = make_config(str(folders["bert"]), engine=engine, process=ProcessConfig(engine_process="on"))
    with running_server(config) as running, Client(running.url) as client:
        vectors = np.array(client.embed(TEXTS), np.float32)
        assert client.models()[0].pooling == "mean"
    assert cosines(vectors, reference_vectors(folders["bert"], TEXTS, "mean")).min() >= 0.99999
