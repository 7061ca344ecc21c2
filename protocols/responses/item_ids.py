"""The ids of responses and of their items.

An item's id says which response it is of and where it stands there, so that an input may refer to it. That of
a call of an MCP server's tool holds, too, the id that the model's own call has, so that an item that is sent
back alone can stand in a conversation again.

Asked for by `protocols/responses/writer.py` and `protocols/responses/input_items.py`.
"""

from __future__ import annotations

import re
import secrets
from typing import Final, Literal

_RESPONSE: Final = "resp_"
_MAX_ID: Final = 256
"""Characters of a call's id that an item's id holds."""
_OF_ITEM: Final = re.compile(r"[a-z]+_([0-9a-f]{48})([0-9a-f]{1,8})(?:_.*)?", re.DOTALL)
_OF_CALL: Final = re.compile(r"mcpr?_[0-9a-f]{24,}_(.+)", re.DOTALL)


def new_response_id(tag: str = "") -> str:
    """A new id of a response; it begins with the tag of the server, among several, that keeps it."""
    return f"{_RESPONSE}{tag}{secrets.token_hex(24)[len(tag) :]}"


def item_id(
    prefix: Literal["msg", "rs", "fc", "mcp", "mcpl", "mcpr"], response_id: str, place: int, call_id: str = ""
) -> str:
    """The id of the item at `place` of a response; `call_id` is the model's own of an MCP server's call."""
    end = f"_{call_id[:_MAX_ID]}" if call_id else ""
    return f"{prefix}_{response_id.removeprefix(_RESPONSE)}{place:x}{end}"


def place_of(name: str) -> tuple[str, int] | None:
    """The id of the response that an item is of, and its place there; None for no id of ours."""
    found = _OF_ITEM.fullmatch(name)
    return None if found is None else (f"{_RESPONSE}{found[1]}", int(found[2], 16))


def call_id_of(name: str) -> str:
    """The id of the model's call in an item's id; an id of somebody else's making is one itself."""
    found = _OF_CALL.fullmatch(name)
    return name if found is None else found[1]
