"""The synchronous client: `Client().transcribe("talk.mp3")`, and live sessions through `Client.realtime`.

Read next: `client/async_client.py`, the same for asyncio and trio; `client/realtime.py` for live sessions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Self, overload

import httpx
from websockets.exceptions import WebSocketException

from ..protocols.audio import Encoding
from ..protocols.realtime_session import Delay, Granularity
from ..protocols.transcript import Transcript
from .bench.metrics import parse_metrics
from .connection import connect_error, request_error
from .options import MAX_CONNECTIONS, client_options
from .realtime import RealtimeSession, open_connection
from .requests import (
    TRANSCRIPTIONS,
    TRANSLATIONS,
    AudioFile,
    Form,
    Model,
    StreamDecoder,
    TextDelta,
    TextDone,
    TextFormat,
    TranscriptFormat,
    check_status,
    open_part,
    parse_models,
    parse_transcript,
    parse_version,
    transcription_form,
)
from .session_core import SessionCore, TurnDetection, session_settings


class Client:
    """Talks to one server. Usable from several threads; `close` it, or use it as a context manager.

    `base_url` and `api_key` default to SENSORIUM_BASE_URL and SENSORIUM_API_KEY, then to a server on this
    machine without a key. `timeout` is seconds for every single wait. Methods raise APIError when the server
    refuses, SensoriumConnectionError when it cannot be reached, SensoriumTimeoutError when it is too slow.
    """

    def __init__(
        self, base_url: str | None = None, api_key: str | None = None, timeout: float | None = None
    ) -> None:
        self.options = client_options(base_url, api_key, timeout)
        self._http = httpx.Client(
            base_url=self.options.root_url,
            headers=self.options.headers,
            timeout=self.options.timeout_s,
            limits=httpx.Limits(max_connections=MAX_CONNECTIONS, max_keepalive_connections=20),
            trust_env=not self.options.is_loopback,
        )

    @overload
    def transcribe(
        self,
        file: AudioFile,
        *,
        model: str | None = None,
        language: str | None = None,
        prompt: str | None = None,
        languages: Sequence[str] = (),
        keywords: Sequence[str] = (),
        response_format: TranscriptFormat = "verbose_json",
        timestamp_granularities: Sequence[Granularity] = (),
        temperature: float | None = None,
    ) -> Transcript: ...

    @overload
    def transcribe(
        self,
        file: AudioFile,
        *,
        model: str | None = None,
        language: str | None = None,
        prompt: str | None = None,
        languages: Sequence[str] = (),
        keywords: Sequence[str] = (),
        response_format: TextFormat,
        timestamp_granularities: Sequence[Granularity] = (),
        temperature: float | None = None,
    ) -> str: ...

    def transcribe(
        self,
        file: AudioFile,
        *,
        model: str | None = None,
        language: str | None = None,
        prompt: str | None = None,
        languages: Sequence[str] = (),
        keywords: Sequence[str] = (),
        response_format: TranscriptFormat | TextFormat = "verbose_json",
        timestamp_granularities: Sequence[Granularity] = (),
        temperature: float | None = None,
    ) -> Transcript | str:
        """The transcript of a whole file in any format the server can decode.

        `file` is a path, bytes or a binary file object. The formats `text`, `srt` and `vtt` give the document
        itself; `verbose_json` fills all fields of the Transcript, words only if asked for by
        `timestamp_granularities`. `languages` are the codes to choose from where `language` is not given, and
        `keywords` are names and words to expect (extensions, for models that know them).
        """
        form = transcription_form(
            model=model,
            response_format=response_format,
            language=language,
            prompt=prompt,
            languages=languages,
            keywords=keywords,
            temperature=temperature,
            timestamp_granularities=timestamp_granularities,
        )
        body = self._upload(TRANSCRIPTIONS, file, form)
        return parse_transcript(body) if response_format.endswith("json") else body.decode()

    def transcribe_stream(
        self,
        file: AudioFile,
        *,
        model: str | None = None,
        language: str | None = None,
        prompt: str | None = None,
        languages: Sequence[str] = (),
        keywords: Sequence[str] = (),
        temperature: float | None = None,
    ) -> Iterator[TextDelta | TextDone]:
        """The text of a whole file piece by piece as it is transcribed, then once as a whole."""
        form = transcription_form(
            model=model,
            response_format="json",
            language=language,
            prompt=prompt,
            languages=languages,
            keywords=keywords,
            temperature=temperature,
            stream=True,
        )
        decoder = StreamDecoder()
        try:
            with (
                open_part(file) as part,
                self._http.stream("POST", TRANSCRIPTIONS, data=form, files=part) as response,
            ):
                if not response.is_success:
                    check_status(response.status_code, response.read())
                for line in response.iter_lines():
                    event = decoder.feed(line)
                    if event is not None:
                        yield event
        except httpx.HTTPError as error:
            raise request_error(error, self.options) from error

    def translate(
        self,
        file: AudioFile,
        *,
        model: str | None = None,
        prompt: str | None = None,
        temperature: float | None = None,
    ) -> Transcript:
        """What is said in a file, in English, where the model can do that."""
        form = transcription_form(
            model=model, response_format="verbose_json", prompt=prompt, temperature=temperature
        )
        return parse_transcript(self._upload(TRANSLATIONS, file, form))

    @contextmanager
    def realtime(
        self,
        model: str | None = None,
        *,
        language: str | None = None,
        prompt: str | None = None,
        languages: Sequence[str] = (),
        keywords: Sequence[str] = (),
        delay: Delay | None = None,
        sample_rate: int = 24_000,
        encoding: Encoding = "pcm16",
        turn_detection: TurnDetection = "server_vad",
        timestamp_granularities: Sequence[Granularity] = (),
        binary: bool = True,
        resume: bool = True,
    ) -> Iterator[RealtimeSession]:
        """A live session: audio chunks in, typed events out, while the person is still speaking.

        `languages` and `keywords` are as in `transcribe`; `delay` is how long text waits before it is
        released, from minimal, which is soonest, to xhigh, which is corrected least; None leaves it
        to the server.
        `encoding` is pcm16 at `sample_rate` (8, 16, 24 or 48 kHz), or pcmu or pcma at 8 kHz. `turn_detection`
        None leaves the turns to `commit`. `binary=False` sends audio as base64 in JSON, for servers that only
        take that. With `resume` a connection that is lost is opened again and the session goes on where it
        was, where the server can do that. Leaving the context discards what has not been answered.
        """
        settings = session_settings(
            model=model,
            language=language,
            prompt=prompt,
            languages=languages,
            keywords=keywords,
            delay=delay,
            sample_rate=sample_rate,
            encoding=encoding,
            turn_detection=turn_detection,
            timestamp_granularities=timestamp_granularities,
            binary=binary,
            resume=resume,
        )
        url = self.options.realtime_url(model=model)
        with ExitStack() as stack:
            try:
                connection = stack.enter_context(open_connection(url, self.options))
            except (OSError, WebSocketException) as error:
                raise connect_error(error, self.options) from error
            session = RealtimeSession(
                connection,
                SessionCore(settings),
                timeout_s=self.options.timeout_s,
                connect=lambda limit_s: open_connection(url, self.options, open_timeout_s=limit_s),
            )
            stack.callback(session.close)
            session.open()
            yield session

    def models(self) -> list[Model]:
        """The models the server offers."""
        return parse_models(self._get("/v1/models"))

    def health(self) -> bool:
        """True if the server is ready to serve. Raises SensoriumConnectionError if there is none."""
        try:
            return self._http.get("/health").is_success
        except httpx.HTTPError as error:
            raise request_error(error, self.options) from error

    def version(self) -> str:
        """The version the server says it is."""
        return parse_version(self._get("/version"))

    def metrics(self) -> dict[str, float]:
        """The server's counters and gauges by name, summed over labels."""
        return parse_metrics(self._get("/metrics").decode())

    def close(self) -> None:
        """Close idle connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _get(self, path: str) -> bytes:
        try:
            response = self._http.get(path)
        except httpx.HTTPError as error:
            raise request_error(error, self.options) from error
        check_status(response.status_code, response.content)
        return response.content

    def _upload(self, path: str, file: AudioFile, form: Form) -> bytes:
        try:
            with open_part(file) as part:
                response = self._http.post(path, data=form, files=part)
        except httpx.HTTPError as error:
            raise request_error(error, self.options) from error
        check_status(response.status_code, response.content)
        return response.content
