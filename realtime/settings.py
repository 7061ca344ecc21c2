"""The settings of a session: merging a client's patch, and showing the result. All or nothing.

Values are checked here with the session at hand (is the model served, does it speak the language); shapes
and ranges were checked by `protocols/codec.py`. Refusals raise `BadRequestError` with the dotted field.
"""

from __future__ import annotations

from typing import Final, Literal, TypeVar, cast

import msgspec
from msgspec import UNSET, UnsetType

from ..protocols.audio import SUPPORTED_RATES, AudioFormat, Encoding, ms_to_samples
from ..protocols.errors import BadRequestError
from ..protocols.realtime_session import (
    AudioView,
    Eagerness,
    FormatPatch,
    FormatType,
    FormatView,
    Granularity,
    Include,
    InputPatch,
    InputView,
    NoiseReduction,
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
from ..protocols.rest import parse_language
from ..protocols.transcript import TranscriptionOptions
from .config import SessionConfig
from .turns import TurnDetectorConfig

DEFAULT_VAD: Final = ServerVadView(threshold=0.5, prefix_padding_ms=300, silence_duration_ms=500)
"""OpenAI's defaults."""

SEMANTIC_SILENCE_MS: Final[dict[Eagerness, int]] = {"low": 1500, "medium": 800, "auto": 800, "high": 400}
"""`semantic_vad` is served by waiting: the eager answer sooner, the patient ones later."""

_ENCODINGS: Final[dict[FormatType, Encoding]] = {
    "audio/pcm": "pcm16",
    "audio/pcmu": "pcmu",
    "audio/pcma": "pcma",
}
_INPUT: Final = "session.audio.input"
_LOGPROBS: Final[Include] = "item.input_audio_transcription.logprobs"


T = TypeVar("T")


class SessionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a client can change, in force. `turn_detection` None: the client commits."""

    format: AudioFormat
    model: str
    options: TranscriptionOptions = TranscriptionOptions()
    turn_detection: TurnDetectionView | None = DEFAULT_VAD
    noise_reduction: NoiseReduction | None = None

    @property
    def prefix_samples(self) -> int:
        """Audio kept before the first frame of speech."""
        detection = self.turn_detection
        return ms_to_samples(
            (detection if isinstance(detection, ServerVadView) else DEFAULT_VAD).prefix_padding_ms
        )

    def detector(self, config: SessionConfig) -> TurnDetectorConfig:
        """Turn detection in samples. Without detection the default still tells speech from silence."""
        detection = self.turn_detection
        if isinstance(detection, SemanticVadView):
            silence_ms = SEMANTIC_SILENCE_MS[detection.eagerness]
        else:
            silence_ms = (detection or DEFAULT_VAD).silence_duration_ms
        threshold = detection.threshold if isinstance(detection, ServerVadView) else DEFAULT_VAD.threshold
        return TurnDetectorConfig(
            threshold=threshold,
            min_speech=ms_to_samples(config.min_speech_ms),
            pause=ms_to_samples(min(config.tail_padding_ms, silence_ms)),
            silence=ms_to_samples(silence_ms),
        )

    def tail_samples(self, config: SessionConfig) -> int:
        """Silence kept behind the last frame of speech."""
        return self.detector(config).pause

    def audio_view(self) -> AudioView:
        """As shown to the client."""
        encoding, rate = self.format.encoding, self.format.rate
        wire_type = next((name for name, known in _ENCODINGS.items() if known == encoding), "audio/pcm")
        granularities: list[Granularity] = []
        if self.options.word_timestamps:
            granularities.append("word")
        if self.options.segment_timestamps:
            granularities.append("segment")
        return AudioView(
            InputView(
                format=FormatView(cast("FormatType", wire_type), rate if wire_type == "audio/pcm" else UNSET),
                transcription=TranscriptionView(
                    self.model,
                    self.options.language,
                    self.options.prompt or None,
                    granularities or UNSET,
                ),
                turn_detection=self.turn_detection,
                noise_reduction=self.noise_reduction,
            )
        )

    def include_view(self) -> list[Include]:
        """The `include` list as shown to the client."""
        return [_LOGPROBS] if self.options.logprobs else []


def initial_settings(config: SessionConfig) -> SessionSettings:
    """A session before any update."""
    return SessionSettings(format=config.format, model=config.model)


def merge(settings: SessionSettings, patch: SessionPatch, config: SessionConfig) -> SessionSettings:
    """The settings after `patch`. Raises `BadRequestError` and changes nothing if any part is refused."""
    audio = InputPatch(None, None, None, None)
    if patch.audio is UNSET:
        audio = InputPatch()
    elif patch.audio is not None and patch.audio.input is not None:
        audio = InputPatch() if patch.audio.input is UNSET else patch.audio.input
    model, options = _transcription(settings, audio.transcription, patch, config)
    return SessionSettings(
        format=_format(settings.format, audio.format, config),
        model=model,
        options=options,
        turn_detection=_turn_detection(settings.turn_detection, audio.turn_detection),
        noise_reduction=_noise_reduction(settings.noise_reduction, audio.noise_reduction),
    )


def _format(
    current: AudioFormat, patch: FormatPatch | UnsetType | None, config: SessionConfig
) -> AudioFormat:
    if patch is UNSET:
        return current
    if patch is None:
        return config.format
    encoding = _ENCODINGS[patch.type]
    param = f"{_INPUT}.format.rate"
    if encoding != "pcm16":
        if patch.rate not in (UNSET, None, 8_000):
            raise BadRequestError(f"`{param}` of {patch.type} is 8000", param=param)
        return AudioFormat(encoding, 8_000)
    rate = patch.rate
    if rate is UNSET or rate is None:
        rate = current.rate if current.encoding == "pcm16" else AudioFormat().rate
    if rate not in SUPPORTED_RATES:
        allowed = ", ".join(map(str, SUPPORTED_RATES))
        raise BadRequestError(f"`{param}` must be one of {allowed}, not {rate}", param=param)
    return AudioFormat("pcm16", rate)


def _transcription(
    settings: SessionSettings,
    patch: TranscriptionPatch | UnsetType | None,
    session: SessionPatch,
    config: SessionConfig,
) -> tuple[str, TranscriptionOptions]:
    """Model and options. `transcription: null` goes back to the server's defaults: it cannot be off."""
    options = settings.options
    model, where = settings.model, f"{_INPUT}.transcription.model"
    if patch is None:
        model, options = config.model, TranscriptionOptions(logprobs=options.logprobs)
        patch = TranscriptionPatch()
    elif patch is UNSET:
        patch = TranscriptionPatch()
    if patch.model is not UNSET:
        model = patch.model or config.model
    elif session.model is not UNSET:
        model, where = session.model or config.model, "session.model"
    served = next((known for known in config.models if known.name == model), None)
    if served is None:
        raise BadRequestError(f"the model {model[:60]!r} is not served", code="model_not_found", param=where)
    _refuse_unsupported(patch)
    language = options.language
    if patch.language is not UNSET:
        language = parse_language(patch.language or "", param=f"{_INPUT}.transcription.language")
    if language is not None and served.languages and language not in served.languages:
        raise BadRequestError(
            f"the model {model!r} does not transcribe the language {language!r}",
            code="unsupported_language",
            param=f"{_INPUT}.transcription.language",
        )
    options = msgspec.structs.replace(options, language=language)
    if patch.prompt is not UNSET:
        options = msgspec.structs.replace(options, prompt=patch.prompt or "")
    if patch.timestamp_granularities is not UNSET:
        wanted = patch.timestamp_granularities or []
        options = msgspec.structs.replace(
            options, word_timestamps="word" in wanted, segment_timestamps="segment" in wanted
        )
    if session.include is not UNSET:
        options = msgspec.structs.replace(options, logprobs=_LOGPROBS in (session.include or []))
    return model, options


def _refuse_unsupported(patch: TranscriptionPatch) -> None:
    """Fields of OpenAI's newer models; empty and null are accepted."""
    name: Literal["languages", "keywords", "delay"]
    for name in ("languages", "keywords", "delay"):
        value = getattr(patch, name)
        if value is not UNSET and value:
            param = f"{_INPUT}.transcription.{name}"
            raise BadRequestError(
                f"`{param}` is not supported by the models here", code="unsupported_parameter", param=param
            )


def _turn_detection(
    current: TurnDetectionView | None, patch: TurnDetectionPatch | UnsetType | None
) -> TurnDetectionView | None:
    """Fields of the same type merge; a change of type starts from that type's defaults."""
    if patch is UNSET:
        return current
    if patch is None:
        return None
    if isinstance(patch, SemanticVadPatch):
        semantic = current if isinstance(current, SemanticVadView) else SemanticVadView("auto")
        return SemanticVadView(
            _either(patch.eagerness, semantic.eagerness, "auto"),
            _either(patch.create_response, semantic.create_response, UNSET),
            _either(patch.interrupt_response, semantic.interrupt_response, UNSET),
        )
    return _server_vad(current if isinstance(current, ServerVadView) else DEFAULT_VAD, patch)


def _server_vad(current: ServerVadView, patch: ServerVadPatch) -> ServerVadView:
    if patch.idle_timeout_ms is not UNSET and patch.idle_timeout_ms is not None:
        param = f"{_INPUT}.turn_detection.idle_timeout_ms"
        raise BadRequestError(
            f"`{param}` belongs to sessions that answer", code="unsupported_parameter", param=param
        )
    default = DEFAULT_VAD
    return ServerVadView(
        _either(patch.threshold, current.threshold, default.threshold),
        _either(patch.prefix_padding_ms, current.prefix_padding_ms, default.prefix_padding_ms),
        _either(patch.silence_duration_ms, current.silence_duration_ms, default.silence_duration_ms),
        None,
        _either(patch.create_response, current.create_response, UNSET),
        _either(patch.interrupt_response, current.interrupt_response, UNSET),
    )


def _either(patch: T | UnsetType | None, current: T, default: T) -> T:
    """UNSET keeps the current value, None returns to the default."""
    if patch is UNSET:
        return current
    return default if patch is None else patch


def _noise_reduction(
    current: NoiseReduction | None, patch: NoiseReduction | UnsetType | None
) -> NoiseReduction | None:
    if patch is UNSET:
        return current
    if patch is None or current is None:
        return patch
    return NoiseReduction(
        patch.type or current.type, current.strength if patch.strength is None else patch.strength
    )
