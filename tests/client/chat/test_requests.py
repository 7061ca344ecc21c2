"""`client.chat` of both clients against scripted streams; httpx's own transports stand for the network."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, TypedDict

import httpx
import pytest
from sensorium.client import (
    AnswerError,
    APIError,
    AsyncClient,
    ChatAnswer,
    ChatDelta,
    Client,
    SensoriumConnectionError,
    ToolCall,
    ToolResult,
)
from sensorium.client.chat.answer import ChatUsage

Script = list[bytes | Exception]
USAGE = {"prompt_tokens": 5, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 3}}


def events(*deltas: dict[str, Any], reason: str | None = "stop") -> bytes:
    """A stream of these deltas, with usage at its end."""
    chunks: list[dict[str, Any]] = [{"model": "m", "choices": [{"delta": delta}]} for delta in deltas]
    if reason is not None:
        chunks.append({"choices": [{"delta": {}, "finish_reason": reason}]})
    chunks.append({"choices": [], "usage": USAGE})
    lines = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks)
    return f": hello\n\n{lines}data: [DONE]\n\n".encode()


def calling(*calls: tuple[str, str], text: str = "") -> bytes:
    """A stream that calls functions, with their arguments in pieces."""
    deltas: list[dict[str, Any]] = [{"content": text}] if text else []
    for index, (name, arguments) in enumerate(calls):
        head = {
            "index": index,
            "id": f"c{index}",
            "type": "function",
            "function": {"name": name, "arguments": ""},
        }
        deltas.append({"tool_calls": [head]})
        deltas += [{"tool_calls": [{"index": index, "function": {"arguments": each}}]} for each in arguments]
    return events(*deltas, reason="tool_calls")


class Server:
    """Gives one answer after the other, and remembers what it was asked."""

    def __init__(self, *answers: bytes | httpx.Response | Exception) -> None:
        self.answers = list(answers)
        self.bodies: list[dict[str, Any]] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        assert request.url.path == "/v1/chat/completions"
        assert request.headers["content-type"] == "application/json"
        self.bodies.append(json.loads(request.read()))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return httpx.Response(200, content=answer) if isinstance(answer, bytes) else answer

    @property
    def client(self) -> Client:
        http = httpx.Client(transport=httpx.MockTransport(self))
        return Client("http://a.test", http_client=http, max_retries=0)

    @property
    def async_client(self) -> AsyncClient:
        http = httpx.AsyncClient(transport=httpx.MockTransport(self))
        return AsyncClient("http://a.test", http_client=http, max_retries=0)


async def test_an_answer_is_its_text_and_the_conversation_with_it() -> None:
    stream = events(
        {"role": "assistant"}, {"reasoning_content": "Hm."}, {"content": "Bl"}, {"content": "ue."}
    )
    for server in (Server(stream), Server(stream)):
        answer = server.client.chat("Which?", system="Be brief.", temperature=0, extra={"min_p": 0.1})
        bodies = {
            "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Which?"}],
            "temperature": 0,
            "min_p": 0.1,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        assert server.bodies == [bodies]
        assert (answer.text, answer.reasoning, answer.finish_reason) == ("Blue.", "Hm.", "stop")
        assert (answer.model, answer.tool_calls) == ("m", ())
        assert answer.usage == ChatUsage(5, 2, 3, 0)
        answered = {"role": "assistant", "content": "Blue.", "reasoning_content": "Hm."}
        assert answer.messages == [*bodies["messages"], answered]  # type: ignore[misc]
    assert (await Server(stream).async_client.chat("Which?")).text == "Blue."


async def test_a_stream_yields_deltas_then_the_whole() -> None:
    stream = events({"reasoning": "Hm."}, {"content": "Bl"}, {"content": ""}, {"content": "ue."})
    deltas = [ChatDelta(reasoning="Hm."), ChatDelta("Bl"), ChatDelta("ue.")]
    *found, last = Server(stream).client.chat.stream("Which?")
    assert found == deltas
    assert isinstance(last, ChatAnswer)
    assert last.text == "Blue."
    async with aclosing(Server(stream).async_client.chat.stream("Which?")) as same:
        *found, last = [event async for event in same]
    assert found == deltas
    assert isinstance(last, ChatAnswer)
    assert last.text == "Blue."


def add(a: int, b: int = 1) -> int:
    """Add."""
    return a + b


async def add_async(a: int, b: int = 1) -> int:
    """Add."""
    return a + b


def fail(why: str) -> None:
    """Fail."""
    raise LookupError(why)


CALLS = (("add", '{"a": 2}'), ("fail", '{"why": "so"}'), ("add", '{"a": "x"}'), ("add", "no json"))
RESULTS = ["3", "error: LookupError: so"]


def check_round(server: Server, found: Iterable[object]) -> None:
    """Four calls were answered, two of them wrong in themselves, and the model was told all of it."""
    results = [event for event in found if isinstance(event, ToolResult)]
    assert [result.is_error for result in results] == [False, True, True, True]
    assert [result.text for result in results[:2]] == RESULTS
    assert "$.a" in results[2].text
    first, second = server.bodies
    assert first["tool_choice"] == "required"
    assert "tool_choice" not in second
    assert first["tools"] == second["tools"]
    _, answered, *results_sent = second["messages"]
    assert answered["content"] == "Let me see."
    assert [call["function"]["arguments"] for call in answered["tool_calls"]] == [
        *(c[1] for c in CALLS[:3]),
        "{}",
    ]
    assert [each["tool_call_id"] for each in results_sent] == ["c0", "c1", "c2", "c3"]
    assert [each["content"] for each in results_sent] == [result.text for result in results]


async def test_functions_are_run_and_their_errors_told() -> None:
    script = (calling(*CALLS, text="Let me see."), events({"content": "3."}))
    server = Server(*script)
    found = list(server.client.chat.stream("2 + 1?", tools=[add, fail], tool_choice="required"))
    check_round(server, found)
    assert found[1] == ToolCall("c0", "add", '{"a": 2}')
    last = found[-1]
    assert isinstance(last, ChatAnswer)
    assert (last.text, last.tool_calls) == ("3.", ())
    assert last.usage == ChatUsage(10, 4, 6, 0)

    server = Server(*script)
    add_async.__name__ = "add"
    stream = server.async_client.chat.stream("2 + 1?", tools=[add_async, fail], tool_choice="required")
    check_round(server, [event async for event in stream])


async def test_rounds_are_bounded() -> None:
    forever = [calling(("add", '{"a": 1}'))] * 5
    server = Server(*forever)
    answer = server.client.chat("Go on.", tools=[add], max_rounds=2)
    assert len(server.bodies) == 3
    assert answer.finish_reason == "tool_calls"
    assert answer.tool_calls == (ToolCall("c0", "add", '{"a": 1}'),)
    server = Server(*forever)
    assert (await server.async_client.chat("Go on.", tools=[add], max_rounds=0)).tool_calls
    assert len(server.bodies) == 1


def test_calls_that_are_not_ours_are_the_callers() -> None:
    tool = {"type": "function", "function": {"name": "theirs", "parameters": {"type": "object"}}}
    server = Server(calling(("add", '{"a": 1}'), ("theirs", "{}")))
    answer = server.client.chat("Go on.", tools=[add, tool], tool_choice=add)
    assert [call.name for call in answer.tool_calls] == ["add", "theirs"]
    assert server.bodies[0]["tool_choice"] == {"type": "function", "function": {"name": "add"}}
    # One that was cut is not run, either.
    cut = calling(("add", '{"a": 1')).replace(b'"tool_calls"}', b'"length"}')
    answer = Server(cut).client.chat("Go on.", tools=[add])
    assert (answer.finish_reason, answer.tool_calls[0].arguments) == ("length", '{"a": 1')


def test_an_interruption_in_a_tool_is_nobodys_result() -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Server(calling(("stop", "{}"))).client.chat("Go on.", tools=[stop])


@dataclass
class Light:
    room: str
    level: int


class Lamp(TypedDict):
    room: str


def test_answers_in_a_form() -> None:
    server = Server(events({"content": '{"room": "hall", '}, {"content": '"level": 3}'}))
    answer = server.client.chat("Dim it.", output=Light)
    assert answer.parsed == Light("hall", 3)
    shape = server.bodies[0]["response_format"]["json_schema"]
    assert (shape["name"], shape["schema"]["required"]) == ("Light", ["room", "level"])
    text = events({"content": '{"room": "hall"}'})
    lamp: Lamp = Server(text).client.chat("Dim it.", output=Lamp).parsed
    assert lamp == {"room": "hall"}
    assert Server(text).client.chat("Dim it.", output={"type": "object"}).parsed == {"room": "hall"}
    assert Server(events({"content": "[1, 2]"})).client.chat("Count.", output=list[int]).parsed == [1, 2]

    class Model:
        """As pydantic's."""

        model_json_schema = classmethod(lambda cls: {"type": "object"})
        model_validate_json = classmethod(lambda cls, text: (cls, text))

    read: object = Server(text).client.chat("Dim it.", output=Model).parsed
    assert read == (Model, '{"room": "hall"}')

    server = Server(events({"content": "no"}))
    assert server.client.chat("Is it on?", choices=["yes", "no"]).text == "no"
    assert server.bodies[0]["structured_outputs"] == {"choice": ["yes", "no"]}


def test_an_answer_that_was_cut_has_no_form() -> None:
    answer = Server(events({"content": '{"room": "ha'}, reason="length")).client.chat("Dim it.", output=Light)
    with pytest.raises(AnswerError, match="not a whole Light: it was cut at its limit of tokens"):
        answer.parsed  # noqa: B018
    with pytest.raises(AnswerError, match="pass `output`"):
        Server(events()).client.chat("Dim it.").parsed  # noqa: B018


@pytest.mark.parametrize(
    ("arguments", "kind", "results_sent"),
    [
        ({"tools": [add], "choices": ["a"]}, ValueError, "exclude each other"),
        ({"tools": [add, add]}, ValueError, "two tools are named 'add'"),
        ({"tools": [add_async]}, TypeError, "is async: use AsyncClient"),
        ({"max_rounds": -1}, ValueError, "max_rounds is -1"),
        ({"temprature": 1}, TypeError, "'temprature' is not an option"),
        ({"extra": {"n": 2}}, ValueError, "extra has n=2: a chat gives one answer"),
        ({"output": object()}, TypeError, "output is <object"),
    ],
)
def test_what_cannot_be_asked_is_not(
    arguments: dict[str, Any], kind: type[Exception], results_sent: str
) -> None:
    server = Server()
    with pytest.raises(kind, match=results_sent):
        server.client.chat("Hi", **arguments)
    assert server.bodies == []


def refusal(status: int) -> httpx.Response:
    error = {"message": "no", "type": "t", "param": "messages", "code": "c"}
    return httpx.Response(status, json={"error": error})


@pytest.mark.parametrize(
    ("answer", "kind", "results_sent"),
    [
        (lambda: refusal(400), APIError, r"no \(400, c, param: messages\)"),
        (lambda: b'data: {"error": {"message": "broke", "code": "engine"}}\n\n', APIError, "broke"),
        (
            lambda: events({"content": "Bl"}, reason=None),
            SensoriumConnectionError,
            "broke off before its end",
        ),
        (lambda: httpx.ReadError("gone"), SensoriumConnectionError, "broke: gone"),
    ],
)
async def test_what_fails_says_so(
    answer: Callable[[], Any], kind: type[Exception], results_sent: str
) -> None:
    with pytest.raises(kind, match=results_sent):
        Server(answer()).client.chat("Hi")
    with pytest.raises(kind, match=results_sent):
        await Server(answer()).async_client.chat("Hi")


async def test_what_failed_before_its_first_line_is_asked_again() -> None:
    answers = (httpx.ConnectError("refused"), events({"content": "Hi."}))
    server = Server(*answers)
    http = httpx.Client(transport=httpx.MockTransport(server))
    assert Client("http://a.test", http_client=http, max_retries=1).chat("Hi").text == "Hi."
    server = Server(*answers)
    other = httpx.AsyncClient(transport=httpx.MockTransport(server))
    assert (await AsyncClient("http://a.test", http_client=other, max_retries=1).chat("Hi")).text == "Hi."
