"""What msgspec says about JSON of the wrong shape, taken apart. The only file that reads its wording.

`protocols/codec.py` makes error events of it, `protocols/body.py` makes HTTP errors.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

_LOCATION: Final = re.compile(r"^(?P<problem>.*?)(?: - at `\$(?P<path>[^`]*)`)?$", re.DOTALL)
_MISSING: Final = re.compile(r"^Object missing required field `(?P<field>[^`]*)`$")
_UNKNOWN: Final = re.compile(r"^Object contains unknown field `(?P<field>.*)`$", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Fault:
    """``Expected `float` <= 1.0 - at `$.a.b` `` is the param `a.b` and the problem before it.

    `param` is empty where the whole is wrong; of a missing or an unknown field it is the field.
    """

    param: str
    problem: str
    kind: Literal["missing", "unknown", "invalid"] = "invalid"


def read_fault(message: str, prefix: str = "") -> Fault:
    """Take a ValidationError's message apart, about something that lies at `prefix`.

    A client chose an unknown field's name: little of it is repeated.
    """
    found = _LOCATION.match(message)
    problem, path = (found["problem"], found["path"] or "") if found else (message, "")
    param = (prefix + path).strip(".")
    if missing := _MISSING.match(problem):
        return Fault(f"{param}.{missing['field']}".lstrip("."), problem, "missing")
    if unknown := _UNKNOWN.match(problem):
        return Fault(f"{param}.{shortened(unknown['field'])}".lstrip("."), problem, "unknown")
    return Fault(param, problem)


def shortened(text: str, limit: int = 60) -> str:
    """A text of at most `limit` characters and an ellipsis."""
    return text if len(text) <= limit else text[:limit] + "…"
