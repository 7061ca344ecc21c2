"""What a request can wait for: each of these has one owner, and nothing else lets a request that waits go on.

`docs/engine.md` has the table of owners. A wait is noted where it is found out, when a step is planned: it is
what the request waited for then.
"""

from __future__ import annotations

from typing import Final, Literal, get_args

Wait = Literal["slot", "blocks", "prefix", "encoding", "input", "transfer"]
"""A place among those that run, or a slot of states; blocks; blocks that another request is computing; the
encoding of an item; its own next input; blocks that come from another place. A grammar is compiled before its
request is queued."""

WAITS: Final[tuple[Wait, ...]] = get_args(Wait)
