"""`/v1/completions` with the `openai` package and plain HTTP against a real server and a random Qwen3."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from openai import AsyncOpenAI, BadRequestError, InternalServerError, NotFoundError, OpenAI
from sensorium.actors.config.server import EngineConfig, FileConfig, ListenConfig
from sensorium.engine.text.tokenizer import TextTokenizer
from support.event_frames import event_frames
from support.server import Server, make_config, running_server, wait_until
from transformers import AutoModelForCausalLM

pytestmark = pytest.mark.slow

PROMPT = "The quick brown fox"
LONG = 400


@pytest.fixture
def client(text_server: Server) -> Iterator[OpenAI]:
    with OpenAI(base_url=text_server.api, api_key="none", max_retries=0) as client:
        yield client


def greedy(client: OpenAI, prompt: Any = PROMPT, **more: Any) -> Any:  # noqa: ANN401
    options: dict[str, Any] = {"model": "text", "temperature": 0, "max_tokens": 8} | more
    return client.completions.create(prompt=prompt, **options)


def post(server: Server, path: str, **body: object) -> httpx.Response:
    return httpx.post(f"{server.url}{path}", json=body, timeout=180)


def test_greedy_ids_are_those_of_transformers(client: OpenAI, folders: dict[str, Path]) -> None:
    text = TextTokenizer.from_folder(folders["text"])
    ids = text.encode(PROMPT, allow_special=True)
    model = AutoModelForCausalLM.from_pretrained(folders["text"], dtype=torch.float32)
    with torch.inference_mode():
        whole = model.generate(torch.tensor([ids]), do_sample=False, max_new_tokens=32)[0].tolist()
    expected = whole[len(ids) :]
    answer = greedy(client, max_tokens=32, extra_body={"return_token_ids": True}).choices[0]
    assert answer.token_ids == expected
    assert answer.prompt_token_ids == list(ids)
    ends = model.generation_config.eos_token_id
    assert answer.text == text.decode([token_id for token_id in expected if token_id not in ends])


def test_requests_are_sampled_as_the_checkpoint_says_unless_they_say_how(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    folder = tmp_path / "own"
    shutil.copytree(folders["text"], folder)
    defaults = json.loads((folder / "generation_config.json").read_text())
    (folder / "generation_config.json").write_text(json.dumps(defaults | {"do_sample": False}))
    engine = EngineConfig(device="cpu", dtype="float32", num_threads=1, kv_memory="16MiB", max_running=4)
    options = {"model": "own", "max_tokens": 24, "ignore_eos": True}
    with running_server(make_config(str(folder), engine=engine)) as server:
        for path, content in (
            ("/v1/completions", {"prompt": PROMPT}),
            ("/v1/chat/completions", {"messages": [{"role": "user", "content": PROMPT}]}),
        ):
            answers = [
                post(server, path, **options, **content, **how).json()["choices"][0]
                for how in ({}, {"temperature": 0}, {"temperature": 2, "seed": 1})
            ]
            texts = [answer.get("text") or answer["message"]["content"] for answer in answers]
            assert texts[0] == texts[1] != texts[2]


def end_ids(folder: Path) -> list[int]:
    return list(json.loads((folder / "generation_config.json").read_text())["eos_token_id"])


def test_the_models_end_token_ends_an_answer(client: OpenAI, folders: dict[str, Path]) -> None:
    for end in end_ids(folders["text"]):
        likely = {"logit_bias": {str(end): 100}, "extra_body": {"return_token_ids": True}}
        choice = greedy(client, **likely).choices[0]
        assert (choice.finish_reason, choice.text, choice.token_ids) == ("stop", "", [end])
        assert choice.stop_reason is None
        likely["extra_body"] = {"return_token_ids": True, "ignore_eos": True}
        choice = greedy(client, **likely).choices[0]
        assert (choice.finish_reason, choice.token_ids) == ("length", [end] * 8)
        likely["extra_body"] = {"return_token_ids": True, "min_tokens": 3}
        choice = greedy(client, **likely).choices[0]
        assert (choice.finish_reason, len(choice.token_ids)) == ("stop", 4)
        assert choice.token_ids.index(end) == 3


def test_stop_tokens_of_the_request_hold_beside_ignore_eos(client: OpenAI, folders: dict[str, Path]) -> None:
    end = end_ids(folders["text"])[0]
    body = {"ignore_eos": True, "stop_token_ids": [5], "return_token_ids": True}
    choice = greedy(client, logit_bias={"5": 100}, extra_body=body).choices[0]
    assert (choice.finish_reason, choice.token_ids, choice.stop_reason) == ("stop", [5], 5)
    choice = greedy(client, logit_bias={str(end): 100}, extra_body=body).choices[0]
    assert (choice.finish_reason, choice.token_ids) == ("length", [end] * 8)


@pytest.mark.parametrize(
    "rules",
    [
        {"structured_outputs": {"regex": "abc"}, "allowed_token_ids": [5]},
        {"stop_token_ids": list(range(300)), "allowed_token_ids": [5], "min_tokens": 3},
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_rules_that_contradict_each_other_are_the_clients_fault(
    text_server: Server, rules: dict[str, Any], stream: bool
) -> None:
    response = post(text_server, "/v1/completions", **{"prompt": "a", "stream": stream, **rules})
    assert response.status_code == 400  # a stream fails before anything of it is sent
    assert response.json()["error"]["code"] == "no_possible_token"


def test_the_four_kinds_of_prompt(client: OpenAI) -> None:
    ids = httpx.post(f"{client.base_url}../tokenize", json={"prompt": PROMPT}).json()["tokens"]
    one = greedy(client)
    assert greedy(client, ids).choices[0].text == one.choices[0].text
    assert one.usage.prompt_tokens == len(ids)
    assert one.usage.completion_tokens == 8
    other = greedy(client, "Hello").choices[0].text
    for prompts in ([PROMPT, "Hello", PROMPT], [ids, *[httpx_ids(client, "Hello")], ids]):
        found = greedy(client, prompts)
        assert [choice.index for choice in found.choices] == [0, 1, 2]
        assert [choice.text for choice in found.choices] == [one.choices[0].text, other, one.choices[0].text]


def httpx_ids(client: OpenAI, prompt: str) -> list[int]:
    ids: list[int] = httpx.post(f"{client.base_url}../tokenize", json={"prompt": prompt}).json()["tokens"]
    return ids


def test_a_stream_joins_to_the_whole(client: OpenAI) -> None:
    whole = greedy(client, [PROMPT, "Hello"], n=2, max_tokens=12)
    texts = [""] * 4
    reasons: list[str | None] = [None] * 4
    usage = None
    options = {"stream": True, "stream_options": {"include_usage": True}}
    for chunk in greedy(client, [PROMPT, "Hello"], n=2, max_tokens=12, **options):
        usage = chunk.usage
        for choice in chunk.choices:
            assert reasons[choice.index] is None
            texts[choice.index] += choice.text
            reasons[choice.index] = choice.finish_reason
    assert texts == [choice.text for choice in whole.choices]
    assert reasons == [choice.finish_reason for choice in whole.choices]
    assert usage is not None
    assert usage.completion_tokens == whole.usage.completion_tokens
    assert usage.prompt_tokens == whole.usage.prompt_tokens


def test_async_client(text_server: Server, client: OpenAI) -> None:
    async def texts_of_all() -> list[str]:
        async with AsyncOpenAI(base_url=text_server.api, api_key="none") as many:
            answers = await asyncio.gather(
                *(
                    many.completions.create(model="text", prompt=PROMPT, temperature=0, max_tokens=8)
                    for _ in range(12)
                )
            )
        return [answer.choices[0].text for answer in answers]

    assert set(asyncio.run(texts_of_all())) == {greedy(client).choices[0].text}


def test_raw_server_sent_events(text_server: Server) -> None:
    response = post(text_server, "/v1/completions", prompt=PROMPT, max_tokens=3, stream=True)
    assert response.headers["content-type"].startswith("text/event-stream")
    frames = event_frames(response.text)
    assert frames[-1] == "data: [DONE]"
    events = [json.loads(frame.removeprefix("data: ")) for frame in frames[:-1]]
    assert events[-1]["choices"][0]["finish_reason"] in {"length", "stop"}
    assert {event["object"] for event in events} == {"text_completion"}
    assert len({event["id"] for event in events}) == 1


def test_seeds(client: OpenAI) -> None:
    options: dict[str, Any] = {"temperature": 1.5, "max_tokens": 24}
    first = greedy(client, seed=5, n=3, **options)
    again = greedy(client, seed=5, n=3, **options)
    texts = [choice.text for choice in first.choices]
    assert texts == [choice.text for choice in again.choices]
    assert len(set(texts)) == 3
    assert greedy(client, seed=6, **options).choices[0].text == texts[1]


def test_logprobs_and_echo(client: OpenAI) -> None:
    answer = greedy(client, logprobs=3, max_tokens=5).choices[0]
    assert len(answer.logprobs.tokens) == len(answer.logprobs.token_logprobs) == 5
    assert all(
        max(top.values()) == own
        for top, own in zip(answer.logprobs.top_logprobs, answer.logprobs.token_logprobs, strict=True)
    )
    echoed = greedy(client, logprobs=3, max_tokens=5, echo=True)
    assert echoed.choices[0].text == PROMPT + answer.text
    logprobs = echoed.choices[0].logprobs
    assert logprobs.token_logprobs[0] is None
    assert len(logprobs.tokens) == echoed.usage.total_tokens
    assert logprobs.token_logprobs[-5:] == pytest.approx(answer.logprobs.token_logprobs, abs=1e-3)
    only = greedy(client, logprobs=0, max_tokens=0, echo=True)
    assert only.choices[0].text == PROMPT
    assert only.usage.completion_tokens == 0
    assert only.choices[0].logprobs.token_logprobs[1:] == pytest.approx(
        logprobs.token_logprobs[1:-5], abs=1e-3
    )
    assert "".join(only.choices[0].logprobs.tokens) == PROMPT
    for start, token in zip(logprobs.text_offset, logprobs.tokens, strict=True):
        if "\ufffd" not in token and start < len(PROMPT):
            assert PROMPT[start:].startswith(token)
    one = greedy(client, [5], logprobs=1, max_tokens=1, echo=True).choices[0]
    assert one.logprobs.token_logprobs[0] is None


def test_prompt_logprobs_in_vllms_shape(client: OpenAI) -> None:
    found = greedy(client, extra_body={"prompt_logprobs": 2}).choices[0].prompt_logprobs
    ids = httpx_ids(client, PROMPT)
    assert found[0] is None
    assert len(found) == len(ids)
    own = [entry[str(token_id)] for token_id, entry in zip(ids[1:], found[1:], strict=True)]
    assert max(each["rank"] for each in own) > 2, "also where it is none of the best"
    assert all((each["rank"] > 2) == (len(entry) == 3) for each, entry in zip(own, found[1:], strict=True))


def test_stop_strings(client: OpenAI) -> None:
    text = greedy(client, max_tokens=24).choices[0].text
    stop = text[9:11]
    stopped = greedy(client, max_tokens=24, stop=[stop, "never there"]).choices[0]
    assert stopped.text == text[: text.index(stop)]
    assert stopped.finish_reason == "stop"
    assert stopped.stop_reason == stop


def test_structured_outputs(client: OpenAI) -> None:
    choice = {"structured_outputs": {"choice": ["red", "blue"]}}
    assert greedy(client, extra_body=choice, max_tokens=20).choices[0].text in {"red", "blue"}
    regex = {"structured_outputs": {"regex": "[0-9]{3}-[0-9]{2}"}}
    text = greedy(client, extra_body=regex, max_tokens=20).choices[0].text
    assert len(text) == 6
    assert text.replace("-", "").isdigit()


def test_a_repeated_prompt_is_cached(client: OpenAI) -> None:
    prompt = "A prompt that nobody else has. " * 4
    first = greedy(client, prompt, max_tokens=1).usage
    second = greedy(client, prompt, max_tokens=1).usage
    assert second.prompt_tokens == first.prompt_tokens
    assert first.prompt_tokens_details.cached_tokens < 16
    assert second.prompt_tokens_details.cached_tokens >= first.prompt_tokens - 16
    salted = greedy(client, prompt, max_tokens=1, extra_body={"cache_salt": "mine"}).usage
    assert salted.prompt_tokens_details.cached_tokens == 0


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        ({}, 400, "prompt"),
        ({"prompt": [1, 10**6]}, 400, "prompt[1]"),
        ({"prompt": "word " * 600}, 400, "prompt"),
        ({"prompt": ["a", "word " * 600]}, 400, "prompt[1]"),
        ({"prompt": "a" * 10**6}, 400, "prompt"),
        ({"prompt": "a", "model": "gpt-9"}, 404, "model"),
        ({"prompt": "a", "stream": "yes"}, 400, "stream"),
        ({"prompt": "a", "structured_outputs": {"regex": "("}}, 400, "structured_outputs"),
        ({"prompt": "a", "logit_bias": {"99999": 1}}, 400, "logit_bias.99999"),
    ],
    ids=range(9),
)
@pytest.mark.parametrize("stream", [False, True])
def test_bad_input_fails_alone(
    text_server: Server, client: OpenAI, body: dict[str, object], status: int, param: str, *, stream: bool
) -> None:
    response = post(text_server, "/v1/completions", **({"stream": True} if stream else {}) | body)
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["param"] == param
    assert greedy(client).choices[0].text


def test_bodies_that_are_no_requests(text_server: Server, client: OpenAI) -> None:
    url = f"{text_server.api}/completions"
    for content, headers in (
        (b"{", {}),
        (b"[" * 100_000, {}),
        (b"\xff", {}),
        (b'{"prompt": "a"}', {"content-type": "text/plain"}),
        (b'{"prompt": [' + b"1," * 1_100_000 + b"1]}", {}),
    ):
        response = httpx.post(url, content=content, headers=headers, timeout=60)
        assert response.status_code in {400, 413}, response.text
        assert response.json()["error"]["type"] == "invalid_request_error"
    assert httpx.get(url).status_code == 405
    assert greedy(client).choices[0].text


def test_errors_are_the_clients_exceptions(client: OpenAI) -> None:
    with pytest.raises(BadRequestError) as bad:
        greedy(client, temperature=7)
    assert bad.value.param == "temperature"
    with pytest.raises(NotFoundError):
        greedy(client, model="gpt-9")


def raw_request(body: dict[str, object]) -> bytes:
    data = json.dumps(body).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n"
    return f"{head}Content-Type: application/json\r\n\r\n".encode() + data


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_frees_its_blocks(text_server: Server, *, stream: bool) -> None:
    body: dict[str, object] = {
        "prompt": PROMPT,
        "max_tokens": LONG,
        "ignore_eos": True,
        "n": 4,
        "stream": stream,
    }
    before = text_server.statistics().num_decode_tokens
    with socket.create_connection(("127.0.0.1", text_server.port)) as connection:
        connection.sendall(raw_request(body))
        wait_until(lambda: text_server.statistics().num_running > 0)
        wait_until(lambda: text_server.statistics().num_decode_tokens > before)
    text_server.wait_quiet(timeout_s=5.0)
    assert text_server.statistics().num_decode_tokens - before < 4 * (LONG - 1)


def test_a_full_queue_is_503_with_retry_after(folders: dict[str, Path]) -> None:
    engine = EngineConfig(
        device="cpu", dtype="float32", num_threads=1, kv_memory="8MiB", max_running=1, max_waiting=1
    )
    config = make_config(str(folders["text"]), engine=engine, listen=ListenConfig(port=0, drain_s=0.1))
    with running_server(config) as server:
        responses: list[httpx.Response] = []

        def texts_of_all(*, stream: bool) -> None:
            body = {"prompt": PROMPT, "max_tokens": LONG, "ignore_eos": True, "stream": stream}
            responses.append(post(server, "/v1/completions", **body))

        threads = [threading.Thread(target=texts_of_all, kwargs={"stream": i % 2 == 1}) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        refused = [response for response in responses if response.status_code == 503]
        assert refused
        assert all(int(response.headers["retry-after"]) >= 1 for response in refused)
        assert all(response.json()["error"]["type"] == "overloaded_error" for response in refused)
        assert any(response.status_code == 200 for response in responses)
        server.wait_quiet()
        with (
            OpenAI(base_url=server.api, api_key="none", max_retries=0) as client,
            pytest.raises(InternalServerError),
        ):
            greedy(client, n=16, max_tokens=LONG)
        server.wait_quiet()


def test_many_small_requests_do_not_take_the_places_of_uploads(folders: dict[str, Path]) -> None:
    engine = EngineConfig(device="cpu", dtype="float32", num_threads=1, kv_memory="8MiB", max_running=4)
    config = make_config(str(folders["text"]), engine=engine, files=FileConfig(max_requests=1))
    with running_server(config) as server:
        codes: list[int] = []

        def texts_of_all() -> None:
            codes.append(post(server, "/v1/completions", prompt=PROMPT, max_tokens=20).status_code)

        threads = [threading.Thread(target=texts_of_all) for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert codes == [200] * 12
        server.wait_quiet()


def test_routes_are_behind_the_key(folders: dict[str, Path]) -> None:
    engine = EngineConfig(device="cpu", dtype="float32", num_threads=1, kv_memory="8MiB")
    listen = ListenConfig(port=0, api_key=("secret",))
    with running_server(make_config(str(folders["text"]), engine=engine, listen=listen)) as server:
        for path in ("/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize"):
            assert post(server, path).status_code == 401
        with OpenAI(base_url=server.api, api_key="secret") as client:
            assert greedy(client).choices[0].text
