"""What runs a server's models, of all that there is: as its configuration says.

Read `processes.py` for processes of this machine and nodes of a list, `discovered.py` for a directory's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec

from ...engine.models.memory import host_bytes
from ..config.server import ServerConfig
from ..engine_process.process import EngineProcess
from ..worker_config import Orders, orders_of
from .cores import shared_cores, shared_devices
from .discovered import DiscoveredEngines
from .processes import LEFT_OUT_S, ModelProcesses, Nodes, Replicas, SingleProcess


def model_processes(config: ServerConfig) -> ModelProcesses:
    """Those of a server, not started yet."""
    orders, silence_s, num = orders_of(config), config.process.engine_silence_s, config.process.replicas
    if config.process.engines:
        return Nodes(config)
    if config.process.cluster:
        return DiscoveredEngines(config)
    if num == 1:
        return SingleProcess(EngineProcess(orders, silence_s=silence_s))
    cores = shared_cores(num)
    devices = [shared_devices(order.config.device, num) for order in orders.models]
    num_sharing = -(-num // min(len(set(each)) for each in devices))
    orders = msgspec.structs.replace(orders, host_bytes=host_bytes())  # before the first of them takes any

    def make(index: int, has_others: Callable[[], bool]) -> EngineProcess:
        return EngineProcess(
            _orders_of_one(orders, [each[index] for each in devices], num_sharing),
            silence_s=silence_s,
            left_out_s=LEFT_OUT_S,
            has_others=has_others,
            cores=cores[index],
            name=f"engines of replica {index}",
        )

    return Replicas(make, num, config)


def _orders_of_one(orders: Orders, devices: Sequence[str], num_sharing: int) -> Orders:
    models = tuple(
        msgspec.structs.replace(order, config=replace(order.config, device=device))
        for order, device in zip(orders.models, devices, strict=True)
    )
    return msgspec.structs.replace(orders, models=models, num_sharing=num_sharing)
