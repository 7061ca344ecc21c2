"""The synchronous client: `Client().transcribe("talk.mp3")`, and live sessions through `Client.realtime`.

Requests and how their answers are read: `client/requests.py`. Read next: `client/async_client.py`, the same
for asyncio and trio; `client/realtime/transcription.py` for live sessions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cached_property, partial
from typing import Any, Literal, Self, TypeVar, Unpack, overload

import httpx

from ..protocols.transcription.transcript import Transcript
from .bounded_network import bound, ending_with
from .bounds import Deadline, LineSplitter, WholeBody
from .chat.requests import Chat
from .connection import (
    PerProcess,
    Retries,
    http_arguments,
    noting,
    readable_connect_errors,
    readable_errors,
)
from .errors import APIError, SDKError
from .options import DEFAULT_MAX_RETRIES, client_options
from .realtime.conversation import DialogueSession
from .realtime.conversation_machine import DialogueCore, DialogueOptions
from .realtime.socket import LiveShell, open_connection
from .realtime.transcription import RealtimeSession
from .realtime.transcription_machine import SessionCore, SessionOptions
from .requests import (
    HEALTH,
    METRICS,
    MODELS,
    VERSION,
    Call,
    Model,
    TextFormat,
    TranscriptFormat,
    TranscriptOptions,
    check_status,
    embedding,
    streamed_transcription,
    transcription,
)
from .server_events import StreamDecoder, TextEvent
from .upload import AudioFile, Part, open_part

T = TypeVar("T")
Shell = TypeVar("Shell", bound=LiveShell)


class Client:
    """Talks to one server. Usable from several threads; `close` it, or use it as a context manager.

    `base_url` and `api_key` default to SENSORIUM_BASE_URL and SENSORIUM_CLIENT_API_KEY, then to a server on
    this machine without a key. `timeout` is seconds for every single wait, and for a whole answer
    once it has begun; `total_timeout` is seconds for a request and all of its answer, streamed ones too (4
    hours). Methods raise APIError when the
    server refuses, SensoriumConnectionError when it cannot be reached, SensoriumTimeoutError when it is too
    slow.

    `max_retries` is how often a request is sent again, or a live session's connection opened again, that
    found no server, or one that is overloaded or failed; 0 is never. A file object or a pipe is sent once,
    and nothing is sent again after a timeout. `headers` go with every request and handshake.
    `http_client` (proxies, certificates) is used for all but live sessions, with `timeout`, and stays yours
    to close.
    """

    def __init__(
        self,
        base_url: str | None = None,
        api_key: str | None = None,
        timeout: float | None = None,
        *,
        max_retries: int = DEFAULT_MAX_RETRIES,
        headers: Mapping[str, str] | None = None,
        http_client: httpx.Client | None = None,
        total_timeout: float | None = None,
    ) -> None:
        self.options = client_options(
            base_url,
            api_key,
            timeout,
            max_retries=max_retries,
            headers=headers,
            total_timeout=total_timeout,
        )
        self._owns_http = http_client is None
        made = partial(httpx.Client, **http_arguments(self.options))
        self._pool = PerProcess((lambda: bound(made())) if http_client is None else lambda: http_client)

    @cached_property
    def chat(self) -> Chat:
        """Asks a model and runs the functions it calls: `client.chat("Why?").text`, or
        `client.chat.stream("Why?")` for the answer as it grows; see `sensorium.client.chat.requests.Chat`.
        """
        return Chat(self._lines)

    @overload
    def transcribe(
        self,
        file: AudioFile,
        *,
        response_format: TranscriptFormat = "verbose_json",
        **options: Unpack[TranscriptOptions],
    ) -> Transcript: ...

    @overload
    def transcribe(
        self, file: AudioFile, *, response_format: TextFormat, **options: Unpack[TranscriptOptions]
    ) -> str: ...

    def transcribe(
        self,
        file: AudioFile,
        *,
        response_format: TranscriptFormat | TextFormat = "verbose_json",
        **options: Unpack[TranscriptOptions],
    ) -> Transcript | str:
        """The transcript of a whole file in any format the server can decode.

        `file` is a path, an address that the server fetches if it may (`https:`, `data:`), bytes, a binary
        file object, or samples as (array, rate): floats of full scale 1, int16 or int32, [n] or [n,
        channels]; an array alone is at 16 kHz. The formats `text`, `srt`, `vtt` and `tsv` give the document;
        `verbose_json` fills all fields of the Transcript, words only if asked for
        by `timestamp_granularities`. The options are those of `FileOptions` and of `SpeechOptions`:
        `language`, `prompt`, `languages` to choose from where `language` is not given, and `keywords` to
        expect, likelier by `keyword_boost` (these three are extensions, for models that know them). With
        `task` `translate` the text is in English.
        """
        return self._send(transcription(file, response_format, **options))

    def transcribe_stream(
        self, file: AudioFile, **options: Unpack[TranscriptOptions]
    ) -> Generator[TextEvent]:
        """The text of a whole file piece by piece as it is transcribed, then once as a whole; with
        `timestamp_granularities` also each segment as soon as it is sure.

        Raises SensoriumConnectionError if it breaks off before. The options are those of `transcribe`.
        """
        decoder = StreamDecoder()
        for line in self._lines(streamed_transcription(file, **options)):
            event = decoder.feed(line)
            if event is not None:
                yield event
        decoder.end()

    def translate(
        self,
        file: AudioFile,
        *,
        model: str | None = None,
        prompt: str | None = None,
        temperature: float | None = None,
    ) -> Transcript:
        """What is said in a file, in English, where the model can do that."""
        return self.transcribe(file, task="translate", model=model, prompt=prompt, temperature=temperature)

    @overload
    def realtime(
        self, model: str | None = None, *, type: Literal["realtime"], **options: Unpack[DialogueOptions]
    ) -> AbstractContextManager[DialogueSession]: ...

    @overload
    def realtime(
        self,
        model: str | None = None,
        *,
        type: Literal["transcription"] = "transcription",
        **options: Unpack[SessionOptions],
    ) -> AbstractContextManager[RealtimeSession]: ...

    def realtime(
        self,
        model: str | None = None,
        *,
        type: Literal["realtime", "transcription"] = "transcription",  # noqa: A002 (as the wire has it)
        **options: Any,
    ) -> AbstractContextManager[DialogueSession] | AbstractContextManager[RealtimeSession]:
        """A live session: audio chunks in, typed events out, while the person is still speaking.

        `language`, `prompt`, `languages`, `keywords` and `keyword_boost` are as in `transcribe`; `delay` is
        how long text waits before it is released, from minimal, which is soonest, to xhigh, which is
        corrected least; None leaves it to the server. `encoding` is pcm16 (the default) at `sample_rate` (8,
        16, 24 or 48 kHz; 24,000 if not given), or pcmu or pcma at 8 kHz. `turn_detection` is server_vad or a
        mapping; None leaves the turns to `commit`. With `timestamp_granularities` finals carry words,
        segments or both, with `utterance_end_ms` an event comes so long behind the last word of an utterance,
        with `left_context_ms` they are made behind so much of what was said before, and better.
        `binary=False` sends audio as base64 in JSON, for servers that only take that. A connection that is
        lost is opened again and the session goes on where it was, where the server can do that, unless
        `resume=False`. Leaving the context discards what has not been answered.

        With `type="realtime"` the session answers: frames, pictures, speech and questions go in
        (`DialogueSession`), with the options of `DialogueOptions`.
        """
        url = self.options.realtime_url(model=model, intent=type)
        connect = partial(open_connection, url, self.options)
        timeout_s = self.options.timeout_s
        if type == "realtime":
            dialogue = DialogueCore(**options)
            return self._opened(DialogueSession(dialogue, timeout_s=timeout_s, connect=connect))
        core = SessionCore(model, **options)
        return self._opened(RealtimeSession(core, timeout_s=timeout_s, connect=connect))

    @contextmanager
    def _opened(self, session: Shell) -> Iterator[Shell]:
        try:
            self._tried(partial(self._connect, session))
            session.open()
            yield session
        finally:
            session.close()

    def _connect(self, session: LiveShell) -> None:
        with readable_connect_errors(self.options):
            session.connect()

    def embed(
        self, texts: str | Sequence[str], *, model: str | None = None, dimensions: int | None = None
    ) -> list[list[float]]:
        """The vectors of one or many texts, in order. `dimensions` keeps the first so many of each."""
        return self._send(embedding(texts, model, dimensions))

    def models(self) -> list[Model]:
        """The models the server offers."""
        return self._send(MODELS)

    def health(self) -> bool:
        """True if the server is ready to serve. Raises SensoriumConnectionError if there is none."""
        try:
            self._send(HEALTH)
        except APIError:
            return False
        return True

    def version(self) -> str:
        """The version the server says it is."""
        return self._send(VERSION)

    def metrics(self) -> dict[str, float]:
        """The server's counters and gauges by name, summed over labels."""
        return self._send(METRICS)

    def close(self) -> None:
        """Close idle connections."""
        if self._owns_http:
            self._pool.value.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _tried(self, attempt: Callable[[], T], *, is_repeatable: bool = True) -> T:
        retries = Retries(self.options, is_repeatable=is_repeatable)
        while True:
            try:
                return attempt()
            except SDKError as error:
                wait_s = retries.wait_s(error)
            time.sleep(wait_s)

    def _send(self, call: Call[T]) -> T:
        return self._tried(partial(self._request_once, call), is_repeatable=call.is_repeatable)

    def _request_once(self, call: Call[T]) -> T:
        deadline = Deadline(self.options)
        with (
            readable_errors(self.options),
            open_part(call.file) as part,
            self._response(call, part, deadline) as response,
            noting(response.headers),
        ):
            return call.result(response.status_code, _whole(response, deadline))

    def _lines(self, call: Call[None]) -> Iterator[str]:
        """The lines of a streamed answer; what fails before the first may be sent again."""
        retries = Retries(self.options, is_repeatable=call.is_repeatable)
        while True:
            try:
                for line in self._lines_once(call):
                    retries.may_repeat = False
                    yield line
                return
            except SDKError as error:
                wait_s = retries.wait_s(error)
            time.sleep(wait_s)

    def _lines_once(self, call: Call[None]) -> Iterator[str]:
        deadline = Deadline(self.options)
        with (
            readable_errors(self.options),
            open_part(call.file) as part,
            self._response(call, part, deadline) as response,
        ):
            if not response.is_success:
                with noting(response.headers):
                    check_status(response.status_code, _whole(response, deadline))
            splitter = LineSplitter(response.status_code, response.headers.get("content-encoding"))
            for piece in _pieces(response, deadline):
                yield from splitter.feed(piece)
            yield from splitter.end()

    @contextmanager
    def _response(
        self, call: Call[Any], part: dict[str, Part] | None, deadline: Deadline
    ) -> Iterator[httpx.Response]:
        """The answer, once its head came within the deadline."""
        with ExitStack() as stack:
            with ending_with(deadline):
                response = stack.enter_context(self._pool.value.stream(**call.to_send(self.options, part)))
            yield response


def _pieces(response: httpx.Response, deadline: Deadline) -> Iterator[bytes]:
    pieces = response.iter_bytes()
    while True:
        with ending_with(deadline):  # between pieces the thread may do something else
            piece = next(pieces, None)
        if piece is None:
            return
        deadline.left_s()
        yield piece


def _whole(response: httpx.Response, deadline: Deadline) -> bytes:
    body = WholeBody(response.status_code, response.headers.get("content-encoding"))
    deadline.answer_begins()
    for piece in _pieces(response, deadline):
        if not body.add(piece):
            break
    return body.data()
