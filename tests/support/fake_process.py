"""A process that runs fake engines, started as the real one is: `fake_process.py DESCRIPTOR NAME…`.

What is opened for an order depends on the name of its model; no torch is loaded.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])  # its own folder has names of packages

from sensorium.actors.config.engine import EngineConfig
from sensorium.actors.engine_process.child import run_child
from sensorium.actors.inference.engine import Engine
from sensorium.actors.inference.executor import ThreadWorker
from sensorium.actors.telemetry.logs import LogConfig
from sensorium.actors.worker_config import ModelOrder, Orders
from sensorium.engine.models.info import ModelInfo
from sensorium.protocols.errors import ModelLoadError
from support.fake_engine import make_fake_engine, make_fed_engine
from support.fake_runner import INFO

COMMAND = (sys.executable, __file__)


@dataclass(frozen=True)
class Opened:
    """See `actors/engine_process/child.py`."""

    engine: Engine
    info: ModelInfo


def orders(*models: str) -> Orders:
    """For models of those kinds: fed, missing, stuck, changing, or else a fake whose folder that is."""
    return Orders(
        tuple(ModelOrder(f"{model}{place}", model, EngineConfig()) for place, model in enumerate(models)),
        max_pixels=0,
        logs=LogConfig(),
    )


def open_next(received: Orders, opened: Sequence[Opened]) -> Opened:
    """What the order's model is called decides."""
    order = received.models[len(opened)]
    match order.model:
        case "missing":
            raise ModelLoadError(f"{order.name}: no such folder")
        case "fed":
            return Opened(make_fed_engine(make_worker=ThreadWorker), INFO)
        case "stuck":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "changing":
            return Opened(make_fake_engine(make_worker=ThreadWorker), replace(INFO, max_context=os.getpid()))
    return Opened(make_fake_engine(make_worker=ThreadWorker), replace(INFO, folder=Path(order.model)))


if __name__ == "__main__":
    run_child(int(sys.argv[1]), open_next)
