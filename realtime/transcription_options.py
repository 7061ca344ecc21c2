"""What a client wishes of the transcription in a session: the model, and how it transcribes.

`realtime/settings.py` merges these with the rest. Refusals raise `BadRequestError` with the dotted field.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from ..protocols.errors import BadRequestError, wrong
from ..protocols.realtime.session import SessionPatch, TranscriptionPatch
from ..protocols.shared.languages import known_language
from ..protocols.transcription.hints import parse_keywords, parse_language, parse_languages
from ..protocols.transcription.numerals import check_numerals
from ..protocols.transcription.transcript import TranscriptionOptions
from .config import RealtimeModel, SessionConfig

INPUT: Final = "session.audio.input"
TRANSCRIPTION: Final = f"{INPUT}.transcription"

SHARED: Final = tuple(
    name for name in TranscriptionPatch.__struct_fields__ if name in TranscriptionOptions.__struct_fields__
)
"""Options that a session hands on as they are."""
_DEFAULTS: Final = TranscriptionOptions()
_PARSERS: Final[Mapping[str, Callable[..., object]]] = {
    "language": parse_language,
    "languages": parse_languages,
    "keywords": parse_keywords,
}

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)


def served_model(
    current: str,
    patch: TranscriptionPatch | UnsetType | None,
    session: SessionPatch,
    config: SessionConfig,
) -> RealtimeModel:
    """The model to use: the transcription's, else the session's, else what is in force."""
    name, where = current, f"{TRANSCRIPTION}.model"
    if patch is None:
        name = config.model
    if patch and patch.model is not UNSET:
        name = patch.model or config.model
    elif session.model is not UNSET:
        name, where = session.model or config.model, "session.model"
    if not name and not config.models:
        return RealtimeModel("")  # the session does not listen
    for served in config.models:
        if name in (served.name, *served.aliases):
            return served
    known = ", ".join(served.name for served in config.models) or "none that transcribes"
    problem = (
        f"the model {name[:60]!r} is not served (`--alias` of `sensorium serve` gives a model another name); "
        f"served here: {known}"
    )
    raise BadRequestError(problem, code="model_not_found", param=where)


def patched_options(current: TranscriptionOptions, patch: TranscriptionPatch) -> TranscriptionOptions:
    """The options after `patch`; each field that is given replaces what was there, null by the default."""
    changes: dict[str, object] = {}
    for name in SHARED:
        value = getattr(patch, name)
        if value is None:
            changes[name] = getattr(_DEFAULTS, name)
        elif value is not UNSET:
            parse = _PARSERS.get(name)
            changes[name] = parse(value, param=f"{TRANSCRIPTION}.{name}") if parse else value
    if patch.timestamp_granularities is not UNSET:
        wanted = patch.timestamp_granularities or []
        changes["word_timestamps"] = "word" in wanted
        changes["segment_timestamps"] = "segment" in wanted
    return msgspec.structs.replace(current, **changes)


def check_model(options: TranscriptionOptions, model: RealtimeModel, left_context_ms: int) -> None:
    """Refuse languages that the model does not know, and what else it cannot do."""
    if options.task not in model.tasks:
        raise BadRequestError(
            f"the model {model.name!r} cannot {options.task}",
            code="unsupported_task",
            param=f"{TRANSCRIPTION}.task",
        )
    if left_context_ms and not model.supports_left_context:
        where = f"{TRANSCRIPTION}.left_context_ms"
        raise unsupported(where, f"is not supported by the model {model.name!r}; allowed: 0")
    for name in () if model.takes_hints else ("prompt", "keywords", "numerals"):
        if getattr(options, name) != getattr(_DEFAULTS, name):
            raise unsupported(
                f"{TRANSCRIPTION}.{name}", f"is not supported by the model {model.name!r}; leave it out"
            )
    written = [options.language] if options.language else options.languages
    check_numerals(
        options.numerals,
        written if options.task == "transcribe" else (),
        spells_numbers=model.spells_numbers,
        param=f"{TRANSCRIPTION}.numerals",
    )
    wanted = [(f"{TRANSCRIPTION}.languages[{at}]", code) for at, code in enumerate(options.languages)]
    if options.language is not None:
        wanted.insert(0, (f"{TRANSCRIPTION}.language", options.language))
    for where, language in wanted:
        if model.languages and known_language(language, model.languages) is None:
            raise BadRequestError(
                f"the model {model.name!r} does not transcribe the language {language!r}; allowed: "
                f"{', '.join(model.languages)}",
                code="unsupported_language",
                param=where,
            )


def unsupported(param: str, reason: str) -> BadRequestError:
    """The refusal of what is not served."""
    return wrong(param, f"{reason}", code="unsupported_parameter")


def merged(current: S, patch: msgspec.Struct, default: S) -> S:
    """What is in force after `patch`, field by field as `either` has it."""
    changes = {
        name: either(getattr(patch, name), getattr(current, name), getattr(default, name))
        for name in current.__struct_fields__
        if name in patch.__struct_fields__
    }
    return msgspec.structs.replace(current, **changes)


def either(patch: T | UnsetType | None, current: T, default: T) -> T:
    """UNSET keeps the current value, None returns to the default."""
    if patch is UNSET:
        return current
    return default if patch is None else patch
