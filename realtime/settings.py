"""The settings of a session: merging a client's patch, and showing the result. All or nothing.

Values are checked here with the session at hand (is the model served, does it speak the language); shapes
and ranges were checked by `protocols/realtime/codec.py`. Refusals raise `BadRequestError` with the dotted
field.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from ..protocols.errors import BadRequestError, wrong
from ..protocols.realtime.session import (
    AudioView,
    CaptionsPatch,
    CaptionsView,
    Eagerness,
    FormatPatch,
    FormatView,
    Include,
    InputPatch,
    InputView,
    SemanticVadPatch,
    SemanticVadView,
    ServerVadPatch,
    ServerVadView,
    SessionPatch,
    TranscriptionPatch,
    TranscriptionView,
    TurnDetectionPatch,
    TurnDetectionView,
)
from ..protocols.shared.audio_format import SUPPORTED_RATES, WIRE_TYPES, AudioFormat, Encoding, ms_to_samples
from ..protocols.shared.container_format import CONTAINER_TYPES, ContainerFormat, InputFormat, parse_container
from ..protocols.transcription.options import Delay, Granularity
from ..protocols.transcription.streaming import ChunkDelay, Segmentation
from ..protocols.transcription.transcript import TranscriptionOptions
from .config import RealtimeModel, SessionConfig
from .transcript.appended import own_delay
from .transcription_options import (
    INPUT,
    SHARED,
    check_model,
    either,
    merged,
    patched_options,
    served_model,
    unsupported,
)
from .turns.detector import TurnDetectorConfig
from .turns.end_of_turn import Ending

DEFAULT_VAD: Final = ServerVadView(threshold=0.5, prefix_padding_ms=300, silence_duration_ms=500)
"""OpenAI's defaults."""
DEFAULT_CAPTIONS: Final = CaptionsView(silence_duration_ms=800, max_segment_ms=20_000)
"""A pause between sentences, and two full lines of a subtitle at 15 characters a second, four times over."""

SEMANTIC_SILENCE_MS: Final[dict[Eagerness, dict[Ending, int]]] = {
    "low": {"finished": 1000, "unknown": 1500, "open": 2500},
    "medium": {"finished": 500, "unknown": 800, "open": 1500},
    "auto": {"finished": 500, "unknown": 800, "open": 1500},
    "high": {"finished": 300, "unknown": 400, "open": 800},
}
"""`semantic_vad` is served by waiting: less where what was said sounds finished, more where it does not.
Until the words before a pause have been understood the longest counts: if they end the turn sooner, it ends
where it would have ended (`realtime/turns/pauses.py`)."""

_ENCODINGS: Final = {wire_type: encoding for encoding, wire_type in WIRE_TYPES.items()}
MULTICHANNEL: Final = f"{INPUT}.multichannel"
TURN_DETECTION: Final = f"{INPUT}.turn_detection"
"""Fields, for messages."""
_DEFAULT_OPTIONS: Final = TranscriptionOptions()
_LOGPROBS: Final[Include] = "item.input_audio_transcription.logprobs"


class SessionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a client can change, in force. `turn_detection` None: the client commits."""

    format: InputFormat
    model: str
    options: TranscriptionOptions = TranscriptionOptions()
    delay: Delay | None = None
    """None: the server's own."""
    utterance_end_ms: int | None = None
    """None: utterances are not told."""
    left_context_ms: int = 0
    """So much of earlier turns may be heard in front of a turn."""
    turn_detection: TurnDetectionView | None = DEFAULT_VAD
    delays: tuple[ChunkDelay, ...] = ()
    """The model's own, if it streams."""
    multichannel: bool = False
    """Channels are heard apart; else they are mixed."""

    @property
    def num_channels(self) -> int:
        """That are heard apart."""
        return self.format.num_channels if self.multichannel else 1

    @property
    def prefix_samples(self) -> int:
        """Audio kept before the first frame of speech."""
        detection = self.turn_detection
        return ms_to_samples(
            (detection if isinstance(detection, ServerVadView) else DEFAULT_VAD).prefix_padding_ms
        )

    @property
    def segmentation(self) -> Segmentation | None:
        """Of a session without turns; None: it has turns."""
        detection = self.turn_detection
        if not isinstance(detection, CaptionsView):
            return None
        return Segmentation(
            ms_to_samples(detection.silence_duration_ms), ms_to_samples(detection.max_segment_ms)
        )

    @property
    def waits(self) -> dict[Ending, int] | None:
        """Samples of silence that end a turn, by how it sounds; None: always the same."""
        detection = self.turn_detection
        if not isinstance(detection, SemanticVadView):
            return None
        waits = SEMANTIC_SILENCE_MS[detection.eagerness]
        return {ending: ms_to_samples(wait_ms) for ending, wait_ms in waits.items()}

    def detector(self, config: SessionConfig, ending: Ending | None = None) -> TurnDetectorConfig:
        """Turn detection in samples; `ending` is how the turn sounds so far (None: that is not known yet),
        which changes only `silence`.

        Without detection the default still tells speech from silence.
        """
        detection, waits = self.turn_detection, self.waits
        if waits is not None:
            silence = max(waits.values()) if ending is None else waits[ending]
            least = min(waits.values())
        else:
            known = detection if isinstance(detection, ServerVadView) else DEFAULT_VAD
            silence = least = ms_to_samples(known.silence_duration_ms)
        threshold = detection.threshold if isinstance(detection, ServerVadView) else DEFAULT_VAD.threshold
        return TurnDetectorConfig(
            threshold=threshold,
            min_speech=ms_to_samples(config.min_speech_ms),
            pause=min(ms_to_samples(config.tail_padding_ms), least),
            silence=silence,
        )

    def own_delay(self, default: Delay | None) -> ChunkDelay | None:
        """The delay that a model that streams has; None: it does not. `default` is what the server's own is
        called."""
        name = self.delay or default or "medium"
        return own_delay(self.delays, name) if self.delays else None

    def audio_view(self, delay: Delay | None = None) -> AudioView:
        """As shown to the client; no transcription where the session does not listen. `delay` is shown where
        the client asked for none."""
        return AudioView(
            InputView(
                _format_view(self.format),
                self._transcription_view(delay) if self.model else None,
                self.turn_detection,
                multichannel=self.multichannel or UNSET,
            )
        )

    def _transcription_view(self, delay: Delay | None) -> TranscriptionView:
        granularities: list[Granularity] = []
        if self.options.word_timestamps:
            granularities.append("word")
        if self.options.segment_timestamps:
            granularities.append("segment")
        own: dict[str, Any] = {
            name: list(value) if isinstance(value, tuple) else value
            for name in SHARED
            if (value := getattr(self.options, name)) != getattr(_DEFAULT_OPTIONS, name)
        }
        in_force = self.own_delay(delay)
        return TranscriptionView(
            model=self.model,
            timestamp_granularities=granularities or UNSET,
            delay=self.delay or delay or UNSET,
            delay_ms=UNSET if in_force is None else in_force.delay_ms,
            utterance_end_ms=self.utterance_end_ms or UNSET,
            left_context_ms=self.left_context_ms or UNSET,
            **own,
        )

    def include_view(self) -> list[Include]:
        """The `include` list as shown to the client."""
        return [_LOGPROBS] if self.options.logprobs else []


def initial_settings(config: SessionConfig) -> SessionSettings:
    """A session before any update. Raises `BadRequestError` if it cannot begin as configured."""
    settings = SessionSettings(format=config.format, model=config.model)
    return merge(settings, config.initial, config)


def merge(settings: SessionSettings, patch: SessionPatch, config: SessionConfig) -> SessionSettings:
    """The settings after `patch`. Raises `BadRequestError` and changes nothing if any part is refused."""
    audio = InputPatch(None, None, None, None, None)
    if patch.audio is UNSET:
        audio = InputPatch()
    elif patch.audio is not None and patch.audio.input is not None:
        audio = InputPatch() if patch.audio.input is UNSET else patch.audio.input
    _check_unserved(audio, answers=config.dialogue is not None)
    model = served_model(settings.model, audio.transcription, patch, config)
    transcription = audio.transcription or TranscriptionPatch()
    if audio.transcription is None:
        # There is no session without a transcription: null goes back to the server's defaults.
        options = TranscriptionOptions(logprobs=settings.options.logprobs)
        settings = msgspec.structs.replace(
            settings, options=options, delay=None, utterance_end_ms=None, left_context_ms=0
        )
    options = patched_options(settings.options, transcription)
    left_context_ms = either(transcription.left_context_ms, settings.left_context_ms, 0)
    check_model(options, model, left_context_ms)
    if patch.include is not UNSET:
        options = msgspec.structs.replace(options, logprobs=_LOGPROBS in (patch.include or []))
    audio_format = _format(settings.format, audio.format, config)
    multichannel = either(audio.multichannel, settings.multichannel, False)
    _check_channels(audio_format, config, multichannel=multichannel)
    turn_detection = _turn_detection(settings.turn_detection, audio.turn_detection)
    _check_captions(turn_detection, model, config)
    return SessionSettings(
        format=audio_format,
        model=model.name,
        delays=model.delays,
        options=options,
        delay=either(transcription.delay, settings.delay, None),
        utterance_end_ms=either(transcription.utterance_end_ms, settings.utterance_end_ms, None),
        left_context_ms=left_context_ms,
        turn_detection=turn_detection,
        multichannel=multichannel,
    )


def _check_channels(audio_format: InputFormat, config: SessionConfig, *, multichannel: bool) -> None:
    if not multichannel:
        return
    if config.dialogue is not None:
        raise unsupported(MULTICHANNEL, "is not supported in a session that answers; allowed: false")
    if not audio_format.num_channels:
        raise BadRequestError(
            f"`{MULTICHANNEL}` needs `{INPUT}.format.channels`: the number must be known before the audio",
            param=f"{INPUT}.format.channels",
        )


def _check_captions(detection: TurnDetectionView | None, model: RealtimeModel, config: SessionConfig) -> None:
    """Captions are for models that stream, in sessions that only transcribe."""
    if not isinstance(detection, CaptionsView):
        return
    where = f"{TURN_DETECTION}.type"
    if config.dialogue is not None:
        raise unsupported(
            where,
            "is `captions`, which has no turns to answer; allowed in a session that answers: `server_vad`, "
            "`semantic_vad`, or null for `turn_detection`",
        )
    if not model.delays:
        streaming = ", ".join(each.name for each in config.models if each.delays)
        use = f"use one that does ({streaming}), or " if streaming else ""
        raise unsupported(
            where,
            f"is `captions`, which is for models that stream, and {model.name!r} does not: {use}"
            "`server_vad`, `semantic_vad`, or null for `turn_detection`",
        )


def _check_unserved(audio: InputPatch, *, answers: bool) -> None:
    """Refuse what OpenAI's sessions know and are not served, or only in a session that `answers`; to ask for
    nothing of it is what is done anyway.
    """
    detection = audio.turn_detection
    if not detection or isinstance(detection, CaptionsPatch):
        return
    where = TURN_DETECTION
    for name in ("create_response", "interrupt_response"):
        if getattr(detection, name) is True and not answers:
            raise unsupported(
                f"{where}.{name}",
                "is not supported in a transcription session, which has no responses; allowed: false",
            )
    if isinstance(detection, ServerVadPatch) and isinstance(detection.idle_timeout_ms, int):
        raise unsupported(f"{where}.idle_timeout_ms", "is not supported; allowed: null")


def _format(
    current: InputFormat, patch: FormatPatch | UnsetType | None, config: SessionConfig
) -> InputFormat:
    if patch is UNSET:
        return current
    if patch is None:
        return config.format
    param = f"{INPUT}.format.rate"
    if patch.type not in _ENCODINGS:
        return _container_format(patch, param)
    encoding = _ENCODINGS[patch.type]
    if encoding != "pcm16":
        if patch.rate not in (UNSET, None, 8_000):
            raise wrong(param, f"of {patch.type} is 8000")
        return AudioFormat(encoding, 8_000, _num_channels(current, patch, encoding))
    rate = patch.rate
    if rate is UNSET or rate is None:
        known = current if isinstance(current, AudioFormat) and current.encoding == "pcm16" else AudioFormat()
        rate = known.rate
    if rate not in SUPPORTED_RATES:
        allowed = ", ".join(map(str, SUPPORTED_RATES))
        raise wrong(param, f"must be one of {allowed}, not {rate}")
    return AudioFormat("pcm16", rate, _num_channels(current, patch, "pcm16"))


def _num_channels(current: InputFormat, patch: FormatPatch, encoding: Encoding) -> int:
    """Kept where the encoding is, as the rate is."""
    is_same = isinstance(current, AudioFormat) and current.encoding == encoding
    return either(patch.channels, current.num_channels if is_same else 1, 1)


def _container_format(patch: FormatPatch, rate_param: str) -> ContainerFormat:
    param = f"{INPUT}.format.type"
    known = parse_container(patch.type, param=param)
    if known is None:
        allowed = ", ".join((*_ENCODINGS, *CONTAINER_TYPES))
        raise wrong(param, f"must be one of {allowed}, not {patch.type[:60]!r}")
    if patch.rate not in (UNSET, None):
        message = f"`{rate_param}` belongs to audio/pcm: a container tells its own"
        raise BadRequestError(message, param=rate_param)
    return msgspec.structs.replace(known, num_channels=patch.channels or 0)


def _format_view(audio_format: InputFormat) -> FormatView:
    if isinstance(audio_format, ContainerFormat):
        return FormatView(audio_format.type, channels=audio_format.num_channels or UNSET)
    encoding = audio_format.encoding
    wire_type = WIRE_TYPES.get(encoding, "audio/pcm")
    return FormatView(
        wire_type,
        audio_format.rate if wire_type == "audio/pcm" else UNSET,
        audio_format.num_channels if audio_format.num_channels > 1 else UNSET,
    )


def _turn_detection(
    current: TurnDetectionView | None, patch: TurnDetectionPatch | UnsetType | None
) -> TurnDetectionView | None:
    """Fields of the same type merge; a change of type starts from that type's defaults."""
    if patch is UNSET:
        return current
    if patch is None:
        return None
    default: TurnDetectionView = DEFAULT_VAD
    if isinstance(patch, SemanticVadPatch):
        default = SemanticVadView("auto")
    elif isinstance(patch, CaptionsPatch):
        default = DEFAULT_CAPTIONS
    return merged(current if isinstance(current, type(default)) else default, patch, default)
