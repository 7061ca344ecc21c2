"""How much an object holds: everything of ours that can be reached from it, in objects and bytes.

For tests that something does not grow. Follows our own classes, structs, containers and arrays; stops at
modules, classes, functions and everything of other libraries.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec
import numpy as np

_LEAVES = (str, bytes, bytearray, int, float, complex, bool, type(None))


class Footprint(NamedTuple):
    """What was reached."""

    num_objects: int
    num_bytes: int


def footprint(root: object, *, leave_out: Iterable[object] = ()) -> Footprint:
    """Count what `root` holds, without `leave_out` and what only they hold. Each object counts once."""
    seen = {id(thing) for thing in leave_out}
    waiting: list[object] = [root]
    num_objects = num_bytes = 0
    while waiting:
        thing = waiting.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        num_objects += 1
        num_bytes += thing.nbytes if isinstance(thing, np.ndarray) else sys.getsizeof(thing)
        waiting += (held for held in _held(thing) if held is not None)
    return Footprint(num_objects, num_bytes)


def _held(thing: object) -> Iterator[object]:
    if isinstance(thing, _LEAVES):
        return
    if isinstance(thing, dict):
        yield from thing.keys()
        yield from thing.values()
    elif isinstance(thing, list | tuple | set | frozenset | deque):
        yield from thing
    elif isinstance(thing, msgspec.Struct):
        yield from (getattr(thing, name) for name in thing.__struct_fields__)
    elif type(thing).__module__.startswith(("sensorium.", "support.")):
        yield from getattr(thing, "__dict__", {}).values()
        for kind in type(thing).__mro__:
            slots = kind.__dict__.get("__slots__", ())
            for name in (slots,) if isinstance(slots, str) else slots:
                yield getattr(thing, name, None)
