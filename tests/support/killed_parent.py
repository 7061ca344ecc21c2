"""Runs the fake engines' process until it is killed; prints that one's id. A script."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[1])  # its own folder has names of packages

import trio  # noqa: E402
from sensorium.actors.engine_process.process import EngineProcess  # noqa: E402
from support.fake_process import COMMAND, orders  # noqa: E402


async def main() -> None:
    """Start it and wait."""
    process = EngineProcess(orders("fake"), silence_s=10, command=COMMAND)
    async with trio.open_nursery() as nursery:
        await nursery.start(process.run)
        print(process.pid(), flush=True)


trio.run(main)
