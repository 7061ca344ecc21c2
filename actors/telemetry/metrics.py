"""What the server counts, in Prometheus' text format: `sensorium_…` names in a registry of its own.

Work is counted by who does it (engines, their actors' inboxes, the decoder pool) and only read here, at
scrape time; sessions and requests report theirs as it happens. Latencies are what a client sees less the
network: see the help text of each histogram for where the clock starts and stops. Next:
`actors/http/routes.py` serves it.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Final

import trio
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from ...protocols.engine.histograms import SECONDS
from ...protocols.engine.statistics import EngineStatistics, SpeechStatistics
from ..runtime.actor import InboxStatistics
from .collectors import (
    BY_SERVICE,
    CONNECTIONS,
    ENGINE,
    INBOX,
    PROCESS,
    REFUSED,
    SERVICES,
    SPEECH,
    Statistics,
    Times,
    of_service,
)
from .loop_blocking import LoopHold
from .statistics import ConnectionStatistics

_LATENCY_BUCKETS: Final = (0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.75, 1.0, 1.5, 2.5, 5.0, 10.0)
_AUDIO_LAG_BUCKETS: Final = (0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0, 300.0)
_LAG_BUCKETS: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1.0)
_LAG_INTERVAL_S: Final = 0.25
_SAMPLES_AT_A_TIME: Final = 100
"""Samples that are rendered at once, in less than a millisecond."""

disable_created_metrics()  # type: ignore[no-untyped-call]  # gauges of when a counter was made, as many as there are counters: nobody asks


class _One(Collector):
    """A metric by itself."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterator[Metric]:
        """That."""
        yield self._metric


class Metrics:
    """All counters of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self.registry)
        Gauge("sensorium_build_info", "Always 1", ["version"], registry=self.registry).labels(
            importlib.metadata.version("sensorium")
        ).set(1)
        self._kv_info = Gauge(
            "sensorium_kv_info",
            "Always 1: what decoder keys and values are kept as",
            ["model", "dtype"],
            registry=self.registry,
        )
        self._engines: dict[str, Callable[[], EngineStatistics]] = {}
        self._inboxes: dict[str, Callable[[], Iterable[InboxStatistics]]] = {}
        self._speech: dict[str, Callable[[], SpeechStatistics]] = {}
        self._register_engines()
        self._define_sessions()
        self._define_requests()

    def _define_sessions(self) -> None:
        """What live sessions report."""
        gauge = partial(Gauge, registry=self.registry)
        counter = partial(Counter, registry=self.registry)
        histogram = partial(Histogram, registry=self.registry)
        self.sessions_active = gauge("sensorium_sessions_active", "Live sessions open now")
        self.sessions_detached = gauge(
            "sensorium_sessions_detached", "Of them, those that wait for a client whose socket was lost"
        )
        self.sessions_resumed = counter(
            "sensorium_sessions_resumed", "Times a client went on with its session"
        )
        self.sessions = counter(
            "sensorium_sessions",
            "Live sessions ended, by our close code; client: it left, lost: it did not come back",
            ["code"],
        )
        self.audio_seconds = counter(
            "sensorium_audio_received_seconds", "Seconds of audio received", ["source"]
        )
        self.first_partial = histogram(
            "sensorium_first_partial_seconds",
            "input_audio_buffer.speech_started to the item's first delta",
            buckets=_LATENCY_BUCKETS,
        )
        self.final = histogram(
            "sensorium_final_seconds",
            "input_audio_buffer.committed to the item's completed event",
            buckets=_LATENCY_BUCKETS,
        )
        self.turns_failed = counter(
            "sensorium_turns_failed",
            "Committed turns that were not transcribed, by the error's code",
            ["code"],
        )
        self.lag = histogram(
            "sensorium_lag_seconds",
            "Audio received less audio covered, whenever a session gets a hypothesis",
            buckets=_AUDIO_LAG_BUCKETS,
        )
        self.partial_interval = gauge(
            "sensorium_partial_interval_factor",
            "By how much partial hypotheses are asked for less often than usual; the largest of all sessions",
        )
        self.partial_lag = gauge(
            "sensorium_partial_lag_seconds",
            "How long the newest partial hypothesis took to be answered; the longest of all sessions",
        )
        self.withheld = counter(
            "sensorium_releases_withheld", "Hypotheses with new text of which none could be released yet"
        )
        self.corrections = counter(
            "sensorium_corrections", "Completed transcripts that differ from what their deltas had released"
        )

    def _define_requests(self) -> None:
        """What requests and the loop report."""
        gauge = partial(Gauge, registry=self.registry)
        histogram = partial(Histogram, registry=self.registry)
        self.requests = Counter(
            "sensorium_requests", "HTTP requests answered", ["route", "status"], registry=self.registry
        )
        self.request_duration = histogram(
            "sensorium_request_duration_seconds",
            "An HTTP request's headers read to the end of its answer",
            ["route"],
            buckets=SECONDS,
        )
        self.requests_active = gauge("sensorium_requests_active", "Requests in hand now")
        self.relays = Counter(
            "sensorium_relays",
            "Requests and WebSockets relayed to another server of the cluster, by what came of it",
            ["kind", "outcome"],
            registry=self.registry,
        )
        self.mcp_calls = Counter(
            "sensorium_mcp_calls",
            "Times MCP servers were asked for their tools, or to call one, by what came of it",
            ["server", "method", "outcome"],
            registry=self.registry,
        )
        self.mcp_seconds = histogram(
            "sensorium_mcp_call_seconds",
            "Such a call until its outcome, waiting for a place included",
            ["server", "method"],
            buckets=SECONDS,
        )
        self.mcp_active = gauge("sensorium_mcp_calls_active", "Of them, those without an outcome yet")
        self.loop_lag = histogram(
            "sensorium_loop_lag_seconds", "How late the network loop wakes up", buckets=_LAG_BUCKETS
        )
        self.hold = LoopHold()
        gauge(
            "sensorium_loop_hold_seconds",
            "Longest CPU time one task held the network loop, since the last scrape",
        ).set_function(self.hold.take)

    def _register_engines(self) -> None:
        """What is read of engines at every scrape."""
        self.registry.register(
            Statistics(ENGINE, ["model"], lambda: (([name], read()) for name, read in self._engines.items()))
        )
        self.registry.register(
            Statistics(
                BY_SERVICE,
                ["model", "service"],
                lambda: (
                    ([name, service], of_service(read(), service))
                    for name, read in self._engines.items()
                    for service in SERVICES
                ),
            )
        )
        self.registry.register(
            Statistics(SPEECH, ["model"], lambda: (([name], read()) for name, read in self._speech.items()))
        )
        self.registry.register(Times(lambda: ((name, read()) for name, read in self._engines.items())))
        self.registry.register(
            Statistics(
                INBOX,
                ["model", "actor"],
                lambda: (
                    ([name, inbox.name], inbox) for name, read in self._inboxes.items() for inbox in read()
                ),
            )
        )

    def add_engine(
        self,
        model: str,
        statistics: Callable[[], EngineStatistics],
        inboxes: Callable[[], Iterable[InboxStatistics]] = tuple,
        kv_dtype: str = "",
    ) -> None:
        """Read both at every scrape, labelled with the model's public name."""
        if kv_dtype:
            self._kv_info.labels(model, kv_dtype).set(1)
        self._engines[model] = statistics
        self._inboxes[model] = inboxes

    def add_speech(self, model: str, statistics: Callable[[], SpeechStatistics]) -> None:
        """Read what came of a model's transcripts at every scrape, labelled with its public name."""
        self._speech[model] = statistics

    def add_process(self, pid: Callable[[], int | None], num_restarts: Callable[[], int]) -> None:
        """Read memory, processor time and restarts of the engines' process at every scrape."""
        ProcessCollector("sensorium_engine", lambda: pid() or "none", registry=self.registry)
        self.add(PROCESS, lambda: SimpleNamespace(num_restarts=num_restarts()))

    def add(self, names: Mapping[str, tuple[str, str]], statistics: Callable[[], object]) -> None:
        """Read `statistics` at every scrape: the fields in `names`, a table of `collectors.py`."""
        self.registry.register(Statistics(names, [], lambda: [([], statistics())]))

    def add_connections(
        self, statistics: Callable[[], ConnectionStatistics], refused: Callable[[], Mapping[int, int]]
    ) -> None:
        """Read `statistics` of the listener's connections, and how often it answered itself by status, at
        every scrape."""
        self.add(CONNECTIONS, statistics)
        self.registry.register(
            Statistics(
                REFUSED,
                ["status"],
                lambda: (
                    ([str(status)], SimpleNamespace(num=num)) for status, num in sorted(refused().items())
                ),
            )
        )

    def parts(self) -> Iterator[bytes]:
        """The exposition in Prometheus' text format, in portions: all at once takes tens of milliseconds, one
        with many labels alone some of them, and the loop is everybody's."""
        for metric in self.registry.collect():
            samples = metric.samples
            for start in range(0, max(1, len(samples)), _SAMPLES_AT_A_TIME):
                metric.samples = samples[start : start + _SAMPLES_AT_A_TIME]
                text = generate_latest(_One(metric))
                yield text.split(b"\n", 2)[2] if start else text  # its help and type are said

    async def watch_loop(self) -> None:
        """Measure how late the loop wakes up and who holds it, for as long as it is not cancelled."""
        trio.lowlevel.add_instrument(self.hold)
        try:
            while True:
                expected = trio.current_time() + _LAG_INTERVAL_S
                await trio.sleep_until(expected)
                self.loop_lag.observe(max(0.0, trio.current_time() - expected))
        finally:
            trio.lowlevel.remove_instrument(self.hold)
