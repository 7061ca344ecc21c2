"""`python -m sensorium.actors.cluster DESCRIPTOR NAME…`: the process of one engine of a cluster.

The descriptor is its end of a pair of sockets; the names are for people who look at processes. Read
`child.py` for what it does.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..importing import importing
from ..worker_config import Orders
from .child import run_child

if TYPE_CHECKING:
    from ..model_loading import OpenedModel


def open_next(config: Orders, opened: Sequence[OpenedModel]) -> OpenedModel:
    """Open the next model of the orders."""
    with importing():
        from .. import model_loading as models  # in the thread that opens them: importing torch takes seconds

    return models.open_next(config, opened)


if __name__ == "__main__":
    run_child(int(sys.argv[1]), open_next)
