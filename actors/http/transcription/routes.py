"""The routes that turn a file into text: transcription and translation. Shapes are
`protocols/transcription/rest.py`.

Memory for a file's samples is reserved before they are decoded (`actors/media_decoding/memory_budget.py`);
what becomes of them is `actors/speech/`'s business.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from ....media.audio.decode import DecodeLimits
from ....media.transcript.segments import CUT_INLINE
from ....protocols.chat.content import MediaAddress, read_address
from ....protocols.errors import BadRequestError, SensoriumError, wrong
from ....protocols.query_string import MARKS
from ....protocols.shared.audio_format import INTERNAL_RATE
from ....protocols.shared.data_uri import read_data_text
from ....protocols.transcription import rest
from ....protocols.transcription.form import TranscriptionRequest, parse_transcription_form
from ....protocols.transcription.transcript import Task, TimedSegment, Transcript
from ...callers import Caller
from ...config.server import SAMPLE_BYTES_PER_S
from ...runtime.off_loop import off_loop
from ...service_class import work_s
from ...speech.model import SpeechModel
from ..event_stream import SlicedResponse, transcript_stream, unless_gone
from ..service import ServedModel, Service
from ..uploads import read_upload


class TranscriptionRoutes:
    """The endpoints. They take a request and give a response or raise a `SensoriumError`."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def transcriptions(self, request: Request) -> Response:
        """A file's text in its own language."""
        return await self._transcribe(request, "transcribe")

    async def translations(self, request: Request) -> Response:
        """A file's text in English."""
        return await self._transcribe(request, "translate")

    async def _transcribe(self, request: Request, task: Task) -> Response:
        caller = self._service.caller(request)
        admission = self._service.admission(caller)
        with admission():
            in_address = [each for each in request.query_params.multi_items() if each[0] not in MARKS]
            has_url = bool(request.query_params.get("url"))
            max_bytes = self._service.config.files.max_upload_bytes
            upload = await read_upload(request, max_bytes=max_bytes, has_url=has_url)
            form = parse_transcription_form([*in_address, *upload.fields], task=task)
            model = self._service.transcribing_model(form.model)
            _check_task(model, form, task)
            if upload.data is not None and form.url:
                raise wrong("url", "and `file` are both given; send one of them")
            transcribed = partial(self._transcribed, model.transcriber, upload.data, form, caller)

            if form.stream:
                return transcript_stream(transcribed, form, admission, model=model.name)

            async def work() -> Response:
                transcript = await transcribed()
                render = partial(rest.render_transcript, transcript, form)
                # In lines of subtitles it is cut, too.
                size = len(transcript.text)
                content_type, body = await off_loop(render, size=size, most_inline=CUT_INLINE)
                return SlicedResponse(body, media_type=content_type)

            return await unless_gone(request, work)

    async def _transcribed(
        self,
        transcriber: SpeechModel,
        data: bytes | None,
        form: TranscriptionRequest,
        caller: Caller,
        on_delta: Callable[[str], None] | None = None,
        on_segment: Callable[[TimedSegment], None] | None = None,
    ) -> Transcript:
        """The transcript of the file that was sent, or else of the one at its address."""
        transcribe = partial(transcriber.transcribe, on_delta=on_delta, on_segment=on_segment)
        if data is None and form.url[:5].lower() == "data:":
            data = await off_loop(partial(read_data_text, form.url, "url"), size=len(form.url))
        if data is not None:
            return await self._transcript(transcribe, data, form, caller)
        address = MediaAddress(read_address(form.url, "url"), "url")
        async with self._service.addresses.files([address], self._service.lane(caller).caller) as files:
            with _naming_url():
                return await self._transcript(transcribe, files[address.url], form, caller)

    async def _transcript(
        self,
        transcribe: Callable[..., Awaitable[Transcript]],
        data: bytes,
        form: TranscriptionRequest,
        caller: Caller,
    ) -> Transcript:
        """A file's transcript; memory for its samples is reserved before they are decoded."""
        config, shares_as = self._service.config, self._service.lane(caller).caller
        media = self._service.media.of(shares_as)
        most = config.fetch.max_fetch_bytes if form.url else config.files.max_upload_bytes
        limits = DecodeLimits(max_bytes=most, max_seconds=config.files.max_audio_s)
        are_kept, track = form.options.multichannel, form.options.audio_track
        seconds = await media.measure_audio(data, limits=limits, are_channels_kept=are_kept, track=track)
        num_copies = 1 if form.options.speech_filter is None else 2
        expected = num_copies * int(seconds * SAMPLE_BYTES_PER_S)
        async with self._service.budget.reserved(expected, shares_as) as reservation:
            audio = await media.decode(data, limits=limits, are_channels_kept=are_kept, track=track)
            reservation.settle(num_copies * audio.samples.nbytes)
            self._service.metrics.audio_seconds.labels("file").inc(audio.duration_s)
            num_clips = -(-len(form.options.clips) // 2) * (len(audio.samples) if are_kept else 1)
            lane = self._service.lane(caller, audio_s=work_s(audio.samples.size / INTERNAL_RATE, num_clips))
            return await transcribe(audio.samples, form.options, lane=lane)


@contextmanager
def _naming_url() -> Iterator[None]:
    """Let errors name the field that the file came by."""
    try:
        yield
    except SensoriumError as error:
        error.param = "url" if error.param == "file" else error.param
        raise


def _check_task(model: ServedModel, form: TranscriptionRequest, task: Task) -> None:
    if task not in model.transcriber.tasks:
        raise BadRequestError(
            f"The model `{model.name}` cannot {task}.", param="model", code="unsupported_task"
        )
    model.transcriber.check(form.options)
