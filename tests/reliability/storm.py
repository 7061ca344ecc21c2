"""Seeded requests and frames at a real server, some of which meet a native panic: each is answered.

A live session goes on meanwhile, whose turns come out whole. `test_storm.py` sends four hundred requests. By
hand, in `tests/`: `python -m reliability.storm --number 100000`.
"""

from __future__ import annotations

import argparse
import json
import random
import socket
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import httpx
from sensorium.actors.config.server import EngineConfig
from sensorium.actors.http.service import Service
from sensorium.engine.execution.grammar import GrammarMatcher
from sensorium.engine.text import chat_template
from sensorium.engine.text.detokenizer import Detokenizer
from sensorium.engine.text.tokenizer import TextTokenizer
from support.raw_socket import RawSession, pcm, raw_session
from support.server import Server, make_config, running_server
from support.text_folder import make_qwen3_folder
from websockets.exceptions import ConnectionClosed, InvalidStatus

MESSAGES: Final = [{"role": "user", "content": "hello"}]
BODIES: Final[dict[str, dict[str, Any]]] = {
    "/v1/completions": {"prompt": "a", "max_tokens": 1},
    "/v1/chat/completions": {"messages": MESSAGES, "max_tokens": 1},
    "/v1/responses": {"input": "hello", "max_output_tokens": 1},
    "/v1/messages": {"messages": MESSAGES, "max_tokens": 1},
    "/tokenize": {"prompt": "a b"},
    "/detokenize": {"tokens": [1, 2]},
    "/v1/realtime/client_secrets": {},
}
PATHS: Final = (
    "/v1/models",
    "/health",
    "/live",
    "/ping",
    "/metrics",
    "/openapi.json",
    "/v1/audio/transcriptions",
)
EVENTS: Final = (
    "session.update",
    "input_audio_buffer.append",
    "input_audio_buffer.commit",
    "response.create",
    "x",
)
VALUES: Final[tuple[object, ...]] = (
    *(None, True, False, 0, -1, 2**31, 2**63, 1e308, "", "x", "\x00", "\udc80", "é" * 300, " " * 5000),
    *([], [1], [[]], {}, {"type": "x"}, [{"type": "image_url", "image_url": {"url": "data:,"}}]),
)
FIELDS: Final = (
    *(
        "stream",
        "n",
        "stop",
        "temperature",
        "top_p",
        "logprobs",
        "top_logprobs",
        "seed",
        "user",
        "model",
        "tools",
    ),
    *("response_format", "logit_bias", "prompt", "messages", "input", "max_tokens", "tokens", "store", "x"),
)

LIGHTS: Final = (Path(__file__).parents[2] / "examples" / "data" / "kitchen_lights.wav").read_bytes()
SPEECH_MODEL: Final = "tiny-whisper"
TEXT_REQUESTS: Final = ("cmpl-", "chatcmpl-", "msg_", "resp_")
"""How the ids of requests for text begin."""


class Panic(BaseException):
    """As `pyo3_runtime.PanicException`."""


class Panics:
    """Makes a share of the calls of some native boundaries panic, not those of the live session's model."""

    def __init__(self, seed: int, share: float) -> None:
        self.num = 0
        self._random = random.Random(seed)
        self._share = share

    def breaking(self, function: Callable[..., Any], is_meant: Callable[..., bool]) -> Callable[..., Any]:
        """`function`, which panics now and then where that is meant."""

        def broken(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 (as the function has it)
            if is_meant(*args) and self._random.random() < self._share:
                self.num += 1
                raise Panic("explicit panic")
            return function(*args, **kwargs)

        return broken

    @contextmanager
    def everywhere(self) -> Iterator[None]:
        """At every boundary meanwhile."""
        places: tuple[tuple[object, str, Callable[..., bool]], ...] = (
            (TextTokenizer, "encode", lambda each, *_: each.added_id("<|startoftranscript|>") is None),
            (chat_template, "_rendered", lambda *_: True),
            (Detokenizer, "push", lambda _, sampled: sampled.request_id.startswith(TEXT_REQUESTS)),
            (GrammarMatcher, "_mask", lambda *_: True),
            (Service, "admission", lambda *_: True),
        )
        with ExitStack() as stack:
            for place, name, is_meant in places:
                broken = self.breaking(getattr(place, name), is_meant)
                stack.enter_context(patch.object(place, name, broken))
            yield


def mutated(chance: random.Random, body: dict[str, Any]) -> bytes:
    """A body with a few of its fields changed, or one that is cut or no JSON."""
    changed = dict(body)
    for _ in range(chance.choice((0, 1, 1, 2, 3))):
        changed[chance.choice((*FIELDS, *body))] = chance.choice(VALUES)
    data = json.dumps(changed).encode()
    match chance.randrange(12):
        case 0:
            return data[: chance.randrange(len(data) + 1)]
        case 1:
            return chance.randbytes(chance.randrange(200))
        case _:
            return data


def send_one(client: httpx.Client, chance: random.Random) -> httpx.Response:
    """One request, to any route."""
    if chance.random() < 0.2:
        path = chance.choice((*PATHS, f"/v1/{chance.randbytes(3).hex()}"))
        return client.request(chance.choice(("GET", "HEAD", "POST", "DELETE", "OPTIONS")), path)
    path = chance.choice(tuple(BODIES))
    kind = chance.choice(("application/json",) * 9 + ("text/plain",))
    return client.post(path, content=mutated(chance, BODIES[path]), headers={"content-type": kind})


def send_frames(server: Server, chance: random.Random, number: int) -> None:
    """One live session with frames of any kind, which ends by its client or is closed with a reason."""
    try:
        with raw_session(server.realtime) as session:
            for _ in range(number):
                event: dict[str, Any] = {"type": chance.choice(EVENTS)}
                event[chance.choice(("session", "audio", "response", "event_id"))] = chance.choice(VALUES)
                if chance.random() < 0.2:
                    session.append_binary(chance.randbytes(chance.randrange(64)))
                else:
                    session.send_text(json.dumps(event))
    except ConnectionClosed as closed:
        if closed.rcvd is None:
            raise AssertionError("the connection was cut") from closed
    except InvalidStatus as refused:
        if refused.response.status_code not in (400, 500, 503):
            raise AssertionError("an unexpected refusal") from refused


def send_cut(server: Server, chance: random.Random) -> None:
    """Bytes that are no whole request."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as cut:
        head = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n{}"
        cut.sendall(chance.choice((chance.randbytes(40), head[: chance.randrange(len(head))], head)))


@dataclass
class Bystander:
    """A live session that goes on for as long as a storm lasts; each turn is answered as the first."""

    server: Server
    num_turns: int = 0
    errors: list[BaseException] = field(default_factory=list)
    _is_over: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def speaking(self) -> Iterator[None]:
        """Speak one turn, and turn after turn meanwhile. Raises what went wrong with one."""
        with raw_session(f"{self.server.realtime}?model={SPEECH_MODEL}") as session:
            session.configure()
            text = self._speak(session)
            thread = threading.Thread(target=self._go_on, args=(session, text), daemon=True)
            thread.start()
            try:
                yield
            finally:
                self._is_over.set()
                thread.join(60)
        assert not thread.is_alive(), "the live session waits for the end of a turn"
        if self.errors:
            raise AssertionError(f"turn {self.num_turns} of the live session failed") from self.errors[0]

    def _go_on(self, session: RawSession, text: str) -> None:
        try:
            while not self._is_over.wait(0.2):
                transcript = self._speak(session)
                assert transcript == text, transcript
        except BaseException as error:
            self.errors.append(error)

    def _speak(self, session: RawSession) -> str:
        session.append(pcm(LIGHTS))
        session.commit()
        transcript: str = session.until("completed")["transcript"]
        self.num_turns += 1
        return transcript


@dataclass(frozen=True)
class Weathered:
    """What a storm was."""

    statuses: Counter[int]
    num_panics: int
    num_turns: int
    """Of the live session."""


def storm(server: Server, *, number: int, seed: int, share: float = 0.02) -> Weathered:
    """Send so many requests; AssertionError where a law is broken.

    Each is answered, with 500 only where something panicked; a live session goes on meanwhile; after them the
    server answers as before.
    """
    chance, panics, statuses = random.Random(seed), Panics(seed, share), Counter[int]()
    bystander = Bystander(server)
    with httpx.Client(base_url=server.url, timeout=60) as client:
        before = completion(client)
        with bystander.speaking(), panics.everywhere():
            for index in range(number):
                num_panics = panics.num
                if index % 50 == 10:
                    send_cut(server, chance)
                elif index % 50 == 11:
                    send_frames(server, chance, 10)
                else:
                    answer = send_one(client, chance)
                    statuses[answer.status_code] += 1
                    is_ours = answer.status_code == 500
                    assert not is_ours or panics.num > num_panics, (seed, index, answer.text)
        assert completion(client) == before
        assert client.get("/live").status_code == 200
    return Weathered(statuses, panics.num, bystander.num_turns)


def completion(client: httpx.Client) -> str:
    """The text of a request that nothing happens to."""
    body = {"prompt": "the bystander", "max_tokens": 8, "temperature": 0, "ignore_eos": True}
    answer = client.post("/v1/completions", json=body)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["choices"][0]["text"])


def main() -> None:
    """Send a storm at a server of its own, and say what was answered."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--number", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        engine = EngineConfig(device="cpu", dtype="float32", num_threads=1, kv_memory="64MiB", max_running=8)
        config = make_config(str(make_qwen3_folder(Path(folder) / "text")), SPEECH_MODEL, engine=engine)
        with running_server(config) as server:
            met = storm(server, number=asked.number, seed=asked.seed)
            server.wait_quiet()
    print(
        f"seed {asked.seed}: {met.num_panics} panics, statuses {dict(sorted(met.statuses.items()))}, "
        f"{met.num_turns} live turns whole"
    )


if __name__ == "__main__":
    main()
