"""A native library's panic at every boundary of a real server is one request's error."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from sensorium.actors.http.service import Service
from sensorium.engine.execution import grammar_store
from sensorium.engine.execution.grammar import GrammarMatcher
from sensorium.engine.execution.runner import Runner
from sensorium.engine.text import chat_template
from sensorium.engine.text.detokenizer import Detokenizer
from sensorium.engine.text.tokenizer import TextTokenizer
from sensorium.media.speech.voice_activity import FrameCutter
from support.event_frames import event_frames
from support.raw_socket import RawSession, pcm, raw_session
from support.server import Server

pytestmark = pytest.mark.slow


class Panic(BaseException):
    """As `pyo3_runtime.PanicException`."""


MARK = "panic, please"


def breaking(function: Callable[..., Any], is_meant: Callable[..., bool]) -> Callable[..., Any]:
    """`function`, which panics where that is meant."""

    def broken(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 (as the function has it)
        if is_meant(*args, **kwargs):
            raise Panic("index out of bounds: the len is 3 but the index is 7")
        return function(*args, **kwargs)

    return broken


def chat(server: Server, content: str = "hello", **more: object) -> httpx.Response:
    body = {"messages": [{"role": "user", "content": content}], "max_tokens": 4, "temperature": 0, **more}
    return httpx.post(f"{server.api}/chat/completions", json=body, timeout=60)


@contextmanager
def a_bystander(server: Server) -> Iterator[None]:
    """An answer that is streamed meanwhile, whole at the end, and the same as one without company."""
    body = {"prompt": "a long story", "max_tokens": 150, "temperature": 0, "ignore_eos": True}
    url = f"{server.api}/completions"
    alone = httpx.post(url, json=body, timeout=60).json()["choices"][0]["text"]
    with httpx.stream("POST", url, json={**body, "stream": True}, timeout=60) as stream:
        frames = (line.removeprefix("data: ") for line in stream.iter_lines() if line.startswith("data: "))
        text = [next(frames)]
        yield
        text += frames
    assert text.pop() == "[DONE]"
    assert "".join(each["choices"][0]["text"] for each in map(json.loads, text)) == alone


def constant(value: object) -> dict[str, object]:
    """A grammar that no other request has had compiled."""
    return {"type": "json_schema", "json_schema": {"name": "constant", "schema": {"const": value}}}


BOUNDARIES: dict[str, tuple[object, str, Callable[..., bool], dict[str, object]]] = {
    "tokenizer": (TextTokenizer, "encode", lambda _, text, **__: MARK in text, {}),
    "template": (chat_template, "_rendered", lambda messages, **_: MARK in str(messages), {}),
    "grammar compiler": (grammar_store, "compile_grammar", lambda *_: True, {"response_format": {}}),
    "grammar": (GrammarMatcher, "_mask", lambda _, stops: bool(stops), {"response_format": {}}),
    "detokenizer": (Detokenizer, "push", lambda each, _: each._stops is not None, {"stop": ["zzz"]}),
    "application": (Service, "admission", lambda *_, **__: True, {}),
}


def test_a_panic_is_one_requests_error(chat_server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Short texts are read on the loop, long ones in a thread. What panicked is used again at once."""
    with a_bystander(chat_server):
        for boundary, (place, name, is_meant, more) in BOUNDARIES.items():
            for content, is_streamed in ((MARK, False), (300 * MARK, True)):
                if "response_format" in more:
                    more["response_format"] = constant([len(boundary), is_streamed])
                with monkeypatch.context() as patch:
                    patch.setattr(place, name, breaking(getattr(place, name), is_meant))
                    failed = chat(chat_server, content, **more, stream=is_streamed)
                has_begun = failed.headers["content-type"].startswith("text/event-stream")
                last = event_frames(failed.text)[-2].removeprefix("data: ") if has_begun else failed.text
                assert has_begun or failed.status_code == (400 if boundary == "grammar" else 500), boundary
                assert json.loads(last)["error"], boundary
                assert "out of bounds" not in failed.text, boundary
                assert chat(chat_server, content, **more).status_code == 200, boundary


def speak(session: RawSession, audio: bytes) -> str:
    session.append(audio)
    session.commit()
    return str(session.until("completed")["transcript"])


def test_a_step_that_panics_is_tried_again_for_live_turns(
    server: Server, lights: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    panics = [True]
    with raw_session(server.realtime) as session:
        session.configure()
        text = speak(session, pcm(lights))
        monkeypatch.setattr(
            Runner, "execute", breaking(Runner.execute, lambda *_: bool(panics and panics.pop()))
        )
        assert speak(session, pcm(lights)) == text
        assert not panics


def test_a_session_that_panics_ends_alone(
    server: Server, lights: bytes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with raw_session(server.realtime) as broken, raw_session(server.realtime) as other:
        other.configure()
        text = speak(other, pcm(lights))
        with monkeypatch.context() as patch:
            patch.setattr(FrameCutter, "reset", breaking(FrameCutter.reset, lambda _: True))
            broken.append(pcm(lights))
            broken.send({"type": "input_audio_buffer.clear"})
            assert broken.until_closed()[0] == 1011
        assert broken.seen("error")[-1]["error"]["code"] == "internal_error"
        assert speak(other, pcm(lights)) == text
    assert "index out of bounds" in caplog.text
