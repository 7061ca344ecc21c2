"""What the server counts, in Prometheus' text format: `sensorium_…` names in a registry of its own.

Work is counted by who does it (engines, their actors' inboxes, the media actor) and only read here, at scrape
time; sessions and requests report theirs as it happens. Latencies are what a client sees less the network:
see the help text of each histogram for where the clock starts and stops. Next: `actors/http/routes.py`
serves it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Final, get_args

import trio
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ..protocols.messages import GAUGES, EngineStatistics, Service
from .kernel.actor import InboxStatistics
from .loop_hold import LoopHold
from .media import MediaStatistics
from .wire.guard import ConnectionStatistics

_LATENCY_BUCKETS: Final = (0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.75, 1.0, 1.5, 2.5, 5.0, 10.0)
_BEHIND_BUCKETS: Final = (0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0, 300.0)
_LAG_BUCKETS: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1.0)
_LAG_INTERVAL_S: Final = 0.25

ENGINE: Final = {
    "num_steps": ("engine_steps", "Plans executed by the device"),
    "num_windows_encoded": ("windows_encoded", "Encoder windows and images computed"),
    "num_windows_reused": ("windows_reused", "Windows and images of prompts that needed no computing at all"),
    "num_encoder_tokens": ("encoder_tokens", "Encoder positions computed"),
    "num_prefill_tokens": ("prefill_tokens", "Decoder prompt tokens computed"),
    "num_decode_tokens": ("decode_tokens", "Decoder tokens generated"),
    "num_draft_tokens": ("draft_tokens", "Draft tokens offered for verification"),
    "num_draft_accepted": ("draft_accepted", "Draft tokens accepted"),
    "num_prefix_queried": ("prefix_cache_queries", "Prompt tokens looked up in the prefix cache"),
    "num_prefix_hits": ("prefix_cache_hits", "Prompt tokens whose keys and values were there already"),
    "num_session_evictions": ("session_evictions", "Sessions whose kept keys and values were given up"),
    "num_cache_hits": ("encoder_cache_hits", "Windows and images found already encoded"),
    "num_cache_misses": ("encoder_cache_misses", "Windows and images that had to be encoded"),
    "num_restarts": ("engine_restarts", "Times the engine was started again after a crash"),
    "busy_s": ("engine_busy_seconds", "Seconds the device spent executing plans"),
    "num_free_blocks": ("kv_blocks_free", "Free blocks of decoder key-value memory"),
    "num_total_blocks": ("kv_blocks_total", "Blocks of decoder key-value memory"),
    "num_cached_blocks": ("kv_blocks_cached", "Free blocks whose content can still be found"),
    "num_sessions_parked": ("sessions_parked", "Sessions that keep keys and values between requests"),
    "num_cache_entries": ("encoder_cache_entries", "Encoded windows and images kept"),
    "num_cache_references": ("encoder_cache_references", "References held on encoded windows and images"),
    "cache_bytes": ("encoder_cache_bytes", "Bytes of encoded windows and images kept"),
}
"""Name and help of the fields of `EngineStatistics`."""
BY_SERVICE: Final = {
    "num_preemptions": ("preemptions", "Running requests put back to waiting for want of a slot or blocks"),
    "num_waiting": ("requests_waiting", "Requests waiting for the engine"),
    "num_running": ("requests_running", "Requests the engine is decoding"),
}
"""And of those it has for each class of service."""
INBOX: Final = {
    "num_received": ("inbox_messages", "Messages an actor has taken"),
    "num_refused": ("inbox_refused", "Messages refused because an actor's inbox was full"),
    "depth": ("inbox_depth", "Messages waiting for an actor"),
    "max_depth": ("inbox_max_depth", "Most messages that ever waited for an actor"),
}
MEDIA: Final = {
    "num_jobs": ("media_files", "Jobs of decode processes: a file is measured in one and opened in the next"),
    "num_failed": ("media_failed", "Of them, those that ended in an error"),
    "num_killed": ("media_killed", "Of them, those whose process was killed or died"),
    "num_refused": ("media_refused", "Files refused because too many waited"),
    "decoded_s": ("media_decoded_seconds", "Seconds of audio decoded"),
    "busy_s": ("media_busy_seconds", "Seconds that files have spent in decode processes"),
    "num_waiting": ("media_waiting", "Files waiting for a decode process"),
    "num_running": ("media_running", "Files being decoded"),
    "num_workers": ("media_workers", "Decode processes alive"),
}
CONNECTIONS: Final = {
    "num_open": ("connections_open", "Connections now"),
    "num_idle": ("connections_idle", "Of them, those without a request in hand"),
    "num_accepted": ("connections", "Connections taken in"),
    "num_evicted": ("connections_evicted", "Idle connections closed to make room for others"),
    "num_refused": ("connections_refused", "Connections that found no room"),
    "num_floods": (
        "connections_flooding",
        "WebSockets closed because of their rate of frames without content",
    ),
}
_GAUGES: Final = GAUGES | {
    "depth",
    "max_depth",
    "num_workers",
    "num_waiting",
    "num_running",
    "num_open",
    "num_idle",
}


def _of_service(statistics: EngineStatistics, service: Service) -> SimpleNamespace:
    return SimpleNamespace(**{field: getattr(statistics, f"{field}_{service}") for field in BY_SERVICE})


class _Statistics(Collector):
    """Rows of labels and a statistics object, read at every scrape."""

    def __init__(
        self,
        names: Mapping[str, tuple[str, str]],
        labels: Sequence[str],
        read: Callable[[], Iterable[tuple[Sequence[str], object]]],
    ) -> None:
        self._names = names
        self._labels = labels
        self._read = read

    def collect(self) -> Iterator[Metric]:
        rows = list(self._read())
        for field, (name, text) in self._names.items():
            kind = GaugeMetricFamily if field in _GAUGES else CounterMetricFamily
            family = kind(f"sensorium_{name}", text, labels=self._labels)
            for labels, statistics in rows:
                family.add_metric(labels, float(getattr(statistics, field)))
            yield family


class Metrics:
    """All counters of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        self._engines: dict[str, Callable[[], EngineStatistics]] = {}
        self._inboxes: dict[str, Callable[[], Iterable[InboxStatistics]]] = {}
        self.registry.register(
            _Statistics(ENGINE, ["model"], lambda: (([name], read()) for name, read in self._engines.items()))
        )
        self.registry.register(
            _Statistics(
                BY_SERVICE,
                ["model", "service"],
                lambda: (
                    ([name, service], _of_service(read(), service))
                    for name, read in self._engines.items()
                    for service in get_args(Service)
                ),
            )
        )
        self.registry.register(
            _Statistics(
                INBOX,
                ["model", "actor"],
                lambda: (
                    ([name, inbox.name], inbox) for name, read in self._inboxes.items() for inbox in read()
                ),
            )
        )
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
            "sensorium_audio_seconds_received", "Seconds of audio received", ["source"]
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
        self.lag = histogram(
            "sensorium_lag_seconds",
            "Audio received less audio covered, whenever a session gets a hypothesis",
            buckets=_BEHIND_BUCKETS,
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
        self.requests = counter("sensorium_requests", "HTTP requests answered", ["route", "status"])
        self.requests_active = gauge("sensorium_requests_active", "Requests in hand now")
        self.loop_lag = histogram(
            "sensorium_loop_lag_seconds", "How late the network loop wakes up", buckets=_LAG_BUCKETS
        )
        self.hold = LoopHold()
        gauge(
            "sensorium_loop_hold_seconds",
            "Longest CPU time one task held the network loop, since the last scrape",
        ).set_function(self.hold.take)

    def add_engine(
        self,
        model: str,
        statistics: Callable[[], EngineStatistics],
        inboxes: Callable[[], Iterable[InboxStatistics]] = tuple,
    ) -> None:
        """Read both at every scrape, labelled with the model's public name."""
        self._engines[model] = statistics
        self._inboxes[model] = inboxes

    def add_media(self, statistics: Callable[[], MediaStatistics]) -> None:
        """Read `statistics` of the media actor at every scrape."""
        self.registry.register(_Statistics(MEDIA, [], lambda: [([], statistics())]))

    def add_connections(self, statistics: Callable[[], ConnectionStatistics]) -> None:
        """Read `statistics` of the listener's connections at every scrape."""
        self.registry.register(_Statistics(CONNECTIONS, [], lambda: [([], statistics())]))

    def render(self) -> bytes:
        """The exposition in Prometheus' text format."""
        return generate_latest(self.registry)

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
