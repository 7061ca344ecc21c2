"""`python -m sensorium.actors.remote DESCRIPTOR NAME…`: the process that runs a server's models.

The descriptor is its end of a pair of sockets; the names are for people who look at processes. Read
`actors/remote/child.py` for what it does.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..importing import importing
from .child import run_child
from .orders import Orders

if TYPE_CHECKING:
    from ..models import OpenedModel


def open_next(told: Orders, opened: Sequence[OpenedModel]) -> OpenedModel:
    """Open the next model of the orders."""
    with importing():
        from .. import models  # in the thread that opens them: importing torch takes seconds

    return models.open_next(told, opened)


if __name__ == "__main__":
    run_child(int(sys.argv[1]), open_next)
