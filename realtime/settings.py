"""The settings of a session: merging a client's patch, and showing the result. All or nothing.

Values are checked here with the session at hand (is the model served, does it speak the language); shapes
and ranges were checked by `protocols/codec.py`. Refusals raise `BadRequestError` with the dotted field.
"""

from __future__ import annotations

from typing import Final, TypeVar, cast

import msgspec
from msgspec import UNSET, UnsetType

from ..protocols.audio import SUPPORTED_RATES, AudioFormat, Encoding, ms_to_samples
from ..protocols.errors import BadRequestError
from ..protocols.hints import parse_keywords, parse_language, parse_languages
from ..protocols.languages import known_language
from ..protocols.realtime_session import (
    AudioView,
    Delay,
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
from ..protocols.transcript import TranscriptionOptions
from .config import RealtimeModel, SessionConfig
from .endings import Ending
from .turns import TurnDetectorConfig

DEFAULT_VAD: Final = ServerVadView(threshold=0.5, prefix_padding_ms=300, silence_duration_ms=500)
"""OpenAI's defaults."""

SEMANTIC_SILENCE_MS: Final[dict[Eagerness, dict[Ending, int]]] = {
    "low": {"finished": 1000, "unknown": 1500, "open": 2500},
    "medium": {"finished": 500, "unknown": 800, "open": 1500},
    "auto": {"finished": 500, "unknown": 800, "open": 1500},
    "high": {"finished": 300, "unknown": 400, "open": 800},
}
"""`semantic_vad` is served by waiting: less where what was said sounds finished, more where it does not.
"unknown" holds until the words before the pause have been understood."""

_ENCODINGS: Final[dict[FormatType, Encoding]] = {
    "audio/pcm": "pcm16",
    "audio/pcmu": "pcmu",
    "audio/pcma": "pcma",
}
_INPUT: Final = "session.audio.input"
_TRANSCRIPTION: Final = f"{_INPUT}.transcription"
_LOGPROBS: Final[Include] = "item.input_audio_transcription.logprobs"


T = TypeVar("T")


class SessionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a client can change, in force. `turn_detection` None: the client commits."""

    format: AudioFormat
    model: str
    options: TranscriptionOptions = TranscriptionOptions()
    delay: Delay
    turn_detection: TurnDetectionView | None = DEFAULT_VAD
    noise_reduction: NoiseReduction | None = None

    @property
    def prefix_samples(self) -> int:
        """Audio kept before the first frame of speech."""
        detection = self.turn_detection
        return ms_to_samples(
            (detection if isinstance(detection, ServerVadView) else DEFAULT_VAD).prefix_padding_ms
        )

    def detector(self, config: SessionConfig, ending: Ending = "unknown") -> TurnDetectorConfig:
        """Turn detection in samples; `ending` is how the turn sounds so far, which changes only `silence`.

        Without detection the default still tells speech from silence.
        """
        detection = self.turn_detection
        if isinstance(detection, SemanticVadView):
            waits = SEMANTIC_SILENCE_MS[detection.eagerness]
            silence_ms, least_ms = waits[ending], min(waits.values())
        else:
            silence_ms = least_ms = (detection or DEFAULT_VAD).silence_duration_ms
        threshold = detection.threshold if isinstance(detection, ServerVadView) else DEFAULT_VAD.threshold
        return TurnDetectorConfig(
            threshold=threshold,
            min_speech=ms_to_samples(config.min_speech_ms),
            pause=ms_to_samples(min(config.tail_padding_ms, least_ms)),
            silence=ms_to_samples(silence_ms),
        )

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
                    list(self.options.languages) or UNSET,
                    list(self.options.keywords) or UNSET,
                    self.delay,
                ),
                turn_detection=self.turn_detection,
                noise_reduction=self.noise_reduction,
            )
        )

    def include_view(self) -> list[Include]:
        """The `include` list as shown to the client."""
        return [_LOGPROBS] if self.options.logprobs else []


def initial_settings(config: SessionConfig) -> SessionSettings:
    """A session before any update. Raises `BadRequestError` if it cannot begin as configured."""
    settings = SessionSettings(format=config.format, model=config.model, delay=config.delay)
    return merge(settings, config.initial, config)


def merge(settings: SessionSettings, patch: SessionPatch, config: SessionConfig) -> SessionSettings:
    """The settings after `patch`. Raises `BadRequestError` and changes nothing if any part is refused."""
    audio = InputPatch(None, None, None, None)
    if patch.audio is UNSET:
        audio = InputPatch()
    elif patch.audio is not None and patch.audio.input is not None:
        audio = InputPatch() if patch.audio.input is UNSET else patch.audio.input
    model = _model(settings, audio.transcription, patch, config)
    wishes = audio.transcription
    if wishes is None:
        # There is no session without a transcription: null goes back to the server's defaults.
        settings = msgspec.structs.replace(
            settings, options=TranscriptionOptions(logprobs=settings.options.logprobs), delay=config.delay
        )
    options = settings.options if wishes is UNSET or wishes is None else _options(settings.options, wishes)
    _check_languages(options, model)
    if patch.include is not UNSET:
        options = msgspec.structs.replace(options, logprobs=_LOGPROBS in (patch.include or []))
    return SessionSettings(
        format=_format(settings.format, audio.format, config),
        model=model.name,
        options=options,
        delay=_either(wishes.delay if wishes else UNSET, settings.delay, config.delay),
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


def _model(
    settings: SessionSettings,
    wishes: TranscriptionPatch | UnsetType | None,
    session: SessionPatch,
    config: SessionConfig,
) -> RealtimeModel:
    """The model to use: the transcription's, else the session's, else what is in force."""
    name, where = settings.model, f"{_TRANSCRIPTION}.model"
    if wishes is None:
        name = config.model
    if wishes and wishes.model is not UNSET:
        name = wishes.model or config.model
    elif session.model is not UNSET:
        name, where = session.model or config.model, "session.model"
    for served in config.models:
        if served.name == name:
            return served
    raise BadRequestError(f"the model {name[:60]!r} is not served", code="model_not_found", param=where)


def _options(current: TranscriptionOptions, wishes: TranscriptionPatch) -> TranscriptionOptions:
    """The options after `wishes`; each field that is given replaces what was there."""
    changes: dict[str, object] = {}
    if wishes.language is not UNSET:
        changes["language"] = parse_language(wishes.language or "", param=f"{_TRANSCRIPTION}.language")
    if wishes.languages is not UNSET:
        where = f"{_TRANSCRIPTION}.languages"
        changes["languages"] = parse_languages(wishes.languages or (), param=where)
    if wishes.keywords is not UNSET:
        where = f"{_TRANSCRIPTION}.keywords"
        changes["keywords"] = parse_keywords(wishes.keywords or (), param=where)
    if wishes.prompt is not UNSET:
        changes["prompt"] = wishes.prompt or ""
    if wishes.timestamp_granularities is not UNSET:
        wanted = wishes.timestamp_granularities or []
        changes["word_timestamps"] = "word" in wanted
        changes["segment_timestamps"] = "segment" in wanted
    return msgspec.structs.replace(current, **changes)


def _check_languages(options: TranscriptionOptions, model: RealtimeModel) -> None:
    """Refuse languages that the model does not know."""
    wanted = [(f"{_TRANSCRIPTION}.languages[{at}]", code) for at, code in enumerate(options.languages)]
    if options.language is not None:
        wanted.insert(0, (f"{_TRANSCRIPTION}.language", options.language))
    for where, language in wanted:
        if model.languages and known_language(language, model.languages) is None:
            raise BadRequestError(
                f"the model {model.name!r} does not transcribe the language {language!r}",
                code="unsupported_language",
                param=where,
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
