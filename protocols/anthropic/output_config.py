"""What a request of `/v1/messages` says of its answer's form and effort, and of what it forgets.

Belongs to `request.py`.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from ..shared.json_body import refuse, unsupported
from ..shared.structured_outputs import JsonSchemaFormat, ResponseFormat

_EFFORTS: Final = ("low", "medium", "high", "xhigh", "max")
FIELD_NAMES: Final = (
    ("response_format.json_schema.schema", "output_config.format.schema"),
    ("response_format", "output_config.format"),
    ("stop", "stop_sequences"),
)
"""What chat's rules are about, by this API's names."""
_KEEPS_ALL: Final = {"type": "clear_thinking_20251015", "keep": "all"}


class OutputForm(Struct, frozen=True, forbid_unknown_fields=True):
    """`output_config.format`: the form of the answer's text; calls may come in its place."""

    type: str
    schema: Raw | UnsetType = UNSET


class OutputConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """`output_config`. How much is thought is the template's business: it is told the effort."""

    effort: str | None = None
    format: OutputForm | None = None


def effort_of(config: OutputConfig | None) -> str | None:
    """As templates are told it: they know of none beyond `xhigh`. Raises BadRequestError."""
    if config is None or config.effort is None:
        return None
    if config.effort not in _EFFORTS:
        raise refuse("output_config.effort", config.effort, ", ".join(_EFFORTS))
    return "xhigh" if config.effort == "max" else config.effort


def form_of(config: OutputConfig | None) -> ResponseFormat | None:
    """As chat has it. Raises BadRequestError."""
    if config is None or config.format is None:
        return None
    if config.format.type != "json_schema":
        raise refuse("output_config.format.type", config.format.type, "json_schema")
    return ResponseFormat("json_schema", JsonSchemaFormat(schema=config.format.schema))


def check_context_management(raw: Raw | UnsetType) -> None:
    """Raise BadRequestError for what would have to be forgotten: nothing is, here."""
    parsed: Any = msgspec.json.decode(raw) if isinstance(raw, Raw) else None
    if parsed is None:
        return
    edits = parsed.get("edits") if isinstance(parsed, dict) and set(parsed) <= {"edits"} else None
    if not isinstance(edits, list) or any(each != _KEEPS_ALL for each in edits):
        raise unsupported("context_management", "is not served, but for edits that keep all that was thought")
