"""Tags in ids: which of a cluster's fronts has what an id names. Pure.

A front of a cluster has a tag, and the ids that it makes begin with it, behind their prefix: those of stored
responses and of their items (`resp_1f0c9a2e…`, `msg_1f0c9a2e…`), of live sessions (`sess_1f0c9a2e…`), and
ephemeral keys (`ek_1f0c9a2e…`). An id tells every front which one owns it; servers without a
cluster make ids without a tag, which look the same. Read next: `actors/fronts/fronts.py`.
"""

from __future__ import annotations

import re
import secrets
from typing import Final, TypeGuard

TAG_CHARS: Final = 8
"""Hexadecimal digits: that two of a thousand fronts choose the same tag happens once in 8,000 clusters."""
_TAG: Final = re.compile(rf"[0-9a-f]{{{TAG_CHARS}}}")


def new_tag() -> str:
    """A tag that no other front has."""
    return secrets.token_hex(TAG_CHARS // 2)


def tag_of(name: str) -> str:
    """What stands where an id has its front's tag."""
    return name.partition("_")[2][:TAG_CHARS]


def is_tag(value: object) -> TypeGuard[str]:
    """Whether it is one that `new_tag` may have made."""
    return isinstance(value, str) and _TAG.fullmatch(value) is not None
