"""The asynchronous client, under asyncio and trio alike: `await AsyncClient().transcribe("talk.mp3")`.

Same methods as `client/client.py`, from the same request building and parsing. Read next:
`client/async_realtime.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Self, overload

import anyio
import httpx
from websockets.exceptions import WebSocketException

from ..protocols.audio import Encoding
from ..protocols.realtime_session import Delay, Granularity
from ..protocols.transcript import Transcript
from .async_realtime import GOODBYE_S, AsyncRealtimeSession, open_socket
from .bench.metrics import parse_metrics
from .connection import CLOSE_TIMEOUT_S, connect_error, request_error
from .options import MAX_CONNECTIONS, client_options
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


class AsyncClient:
    """Talks to one server. Usable from several tasks of one event loop; `close` it, or use it as a context
    manager.

    `base_url` and `api_key` default to SENSORIUM_BASE_URL and SENSORIUM_API_KEY, then to a server on this
    machine without a key. `timeout` is seconds for every single wait. Methods raise APIError when the server
    refuses, SensoriumConnectionError when it cannot be reached, SensoriumTimeoutError when it is too slow.
    """

    def __init__(
        self, base_url: str | None = None, api_key: str | None = None, timeout: float | None = None
    ) -> None:
        self.options = client_options(base_url, api_key, timeout)
        self._http = httpx.AsyncClient(
            base_url=self.options.root_url,
            headers=self.options.headers,
            timeout=self.options.timeout_s,
            limits=httpx.Limits(max_connections=MAX_CONNECTIONS, max_keepalive_connections=20),
            trust_env=not self.options.is_loopback,
        )

    @overload
    async def transcribe(
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
    async def transcribe(
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

    async def transcribe(
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
        body = await self._upload(TRANSCRIPTIONS, file, form)
        return parse_transcript(body) if response_format.endswith("json") else body.decode()

    async def transcribe_stream(
        self,
        file: AudioFile,
        *,
        model: str | None = None,
        language: str | None = None,
        prompt: str | None = None,
        languages: Sequence[str] = (),
        keywords: Sequence[str] = (),
        temperature: float | None = None,
    ) -> AsyncIterator[TextDelta | TextDone]:
        """The text of a whole file piece by piece as it is transcribed, then once as a whole.

        Wrap it in `contextlib.aclosing` if you may leave the loop before its end.
        """
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
            with open_part(file) as part:
                async with self._http.stream("POST", TRANSCRIPTIONS, data=form, files=part) as response:
                    if not response.is_success:
                        check_status(response.status_code, await response.aread())
                    async for line in response.aiter_lines():
                        event = decoder.feed(line)
                        if event is not None:
                            yield event
        except httpx.HTTPError as error:
            raise request_error(error, self.options) from error

    async def translate(
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
        return parse_transcript(await self._upload(TRANSLATIONS, file, form))

    @asynccontextmanager
    async def realtime(
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
    ) -> AsyncIterator[AsyncRealtimeSession]:
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
        core = SessionCore(settings)
        raised: Exception | None = None
        url = self.options.realtime_url(model=model)
        async with anyio.create_task_group() as tasks:
            session = AsyncRealtimeSession(
                core,
                tasks,
                timeout_s=self.options.timeout_s,
                connect=lambda limit_s: open_socket(url, self.options, open_timeout_s=limit_s),
            )
            try:
                try:
                    await session.connect()
                except (OSError, WebSocketException) as error:
                    raise connect_error(error, self.options) from error
                await session.open()
                yield session
                await session.close(CLOSE_TIMEOUT_S)
            except Exception as error:
                raised = error  # raised again outside the task group, which would wrap it in a group
            finally:
                await session.close(GOODBYE_S)
            tasks.cancel_scope.cancel()
        if raised is not None:
            raise raised

    async def models(self) -> list[Model]:
        """The models the server offers."""
        return parse_models(await self._get("/v1/models"))

    async def health(self) -> bool:
        """True if the server is ready to serve. Raises SensoriumConnectionError if there is none."""
        try:
            return (await self._http.get("/health")).is_success
        except httpx.HTTPError as error:
            raise request_error(error, self.options) from error

    async def version(self) -> str:
        """The version the server says it is."""
        return parse_version(await self._get("/version"))

    async def metrics(self) -> dict[str, float]:
        """The server's counters and gauges by name, summed over labels."""
        return parse_metrics((await self._get("/metrics")).decode())

    async def close(self) -> None:
        """Close idle connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def _get(self, path: str) -> bytes:
        try:
            response = await self._http.get(path)
        except httpx.HTTPError as error:
            raise request_error(error, self.options) from error
        check_status(response.status_code, response.content)
        return response.content

    async def _upload(self, path: str, file: AudioFile, form: Form) -> bytes:
        try:
            with open_part(file) as part:
                response = await self._http.post(path, data=form, files=part)
        except httpx.HTTPError as error:
            raise request_error(error, self.options) from error
        check_status(response.status_code, response.content)
        return response.content
