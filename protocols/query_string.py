"""Options in the address of a request, after its `?`: which are read, and how the others are refused.

No route drops one in silence. Forms of speech take their fields there (`protocols/transcription/form.py`);
what JSON bodies and live sessions have for it is named in the refusal.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from .errors import BadRequestError
from .realtime.conversation_session import DialoguePatch
from .realtime.session import InputPatch, TranscriptionPatch

MARKS: Final = frozenset({"api-version", "beta"})
"""Versions that Azure's and Anthropic's clients name in every address; they change nothing here."""

_SESSION_FIELDS: Final = {
    name: f"{place}.{name}"
    for kind, place in (
        (DialoguePatch, "session"),
        (InputPatch, "session.audio.input"),
        (TranscriptionPatch, "session.audio.input.transcription"),
    )
    for name in kind.__struct_fields__
}


def check_body_address(names: Iterable[str], path: str, known: Collection[str] = ()) -> None:
    """Refuse options in the address of a route whose options are fields of its JSON body, but `known` ones.

    Raises BadRequestError that names the first.
    """
    for name in names:
        if name not in known and name not in MARKS:
            allowed = (
                f"allowed there: {', '.join(known)}" if known else "send options as fields of the JSON body"
            )
            raise _refused(name, f"is not read from the address of {path}; {allowed}")


def check_session_address(names: Iterable[str], known: Collection[str]) -> None:
    """The same of the address of a live session, whose options are set by `session.update`."""
    for name in names:
        if name in known or name in MARKS:
            continue
        if name in _SESSION_FIELDS:
            raise _refused(
                name,
                f"is not read from the address of a session; send it as `{_SESSION_FIELDS[name]}` of a "
                "`session.update`",
            )
        raise _refused(name, f"is not an option in the address of a session; allowed: {', '.join(known)}")


def _refused(name: str, problem: str) -> BadRequestError:
    name = name[:100]
    return BadRequestError(f"`{name}` {problem}", code="unknown_parameter", param=name)
