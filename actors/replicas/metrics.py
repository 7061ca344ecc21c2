"""What `/metrics` says of replicas: each process, and how many requests and sessions are placed at it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ..engine_process.peer import EnginePeer
from .client import ReplicatedEngine


class _Processes(Collector):
    """Memory, processor time and files of each process, as of the only one, with a label for its number."""

    def __init__(self, processes: Sequence[EnginePeer]) -> None:
        self._processes = processes
        self._collectors: list[ProcessCollector] = []

    def collect(self) -> Iterator[Metric]:
        """One family for each value."""
        for process in self._processes[len(self._collectors) :]:
            self._collectors.append(
                ProcessCollector("sensorium_engine", partial(_pid, process), registry=None)
            )
        families: dict[str, Metric] = {}
        for number, collector in enumerate(self._collectors):
            for metric in collector.collect():
                family = families.setdefault(
                    metric.name, Metric(metric.name, metric.documentation, metric.type)
                )
                for sample in metric.samples:
                    family.add_sample(sample.name, {**sample.labels, "replica": str(number)}, sample.value)
        yield from families.values()
        ready = GaugeMetricFamily("sensorium_replica_ready", "1: it takes requests", labels=["replica"])
        restarts = CounterMetricFamily(
            "sensorium_engine_process_restarts", "Times the process was started again", labels=["replica"]
        )
        for number, process in enumerate(self._processes):
            is_ready = all(engine.health == "ready" for engine in process.engines)
            ready.add_metric([str(number)], float(is_ready))
            restarts.add_metric([str(number)], process.num_restarts())
        yield from (ready, restarts)


def _pid(process: EnginePeer) -> int | str:
    return process.pid() or "none"


class _Placements(Collector):
    """What is placed where."""

    def __init__(self, engines: Sequence[ReplicatedEngine]) -> None:
        self._engines = engines

    def collect(self) -> Iterator[Metric]:
        """Of each model and replica."""
        labels = ["model", "replica"]
        requests = GaugeMetricFamily("sensorium_replica_requests", "Requests placed at it now", labels=labels)
        placed = CounterMetricFamily(
            "sensorium_replica_placed", "Requests that were placed at it", labels=labels
        )
        sessions = GaugeMetricFamily("sensorium_replica_sessions", "Sessions that stay at it", labels=labels)
        for engine in self._engines:
            for number in range(len(engine.engines)):
                of = [engine.name, str(number)]
                requests.add_metric(of, engine.router.num_open(number))
                placed.add_metric(of, engine.router.num_placed(number))
                sessions.add_metric(of, engine.router.num_keys(number))
        yield from (requests, placed, sessions)


def register_replicas(
    registry: CollectorRegistry, processes: Sequence[EnginePeer], engines: Sequence[ReplicatedEngine]
) -> None:
    """Have them read at every scrape."""
    registry.register(_Processes(processes))
    registry.register(_Placements(engines))
