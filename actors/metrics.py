"""What the server counts, in Prometheus' text format: `sensorium_…` names in a registry of its own.

Engine work is counted by the engine (`EngineStatistics`) and only read here, at scrape time; sessions and
requests report theirs as it happens. Latencies are what a client sees less the network: see the help text
of each histogram for where the clock starts and stops. Next: `actors/http/routes.py` serves it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import trio
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ..protocols.messages import EngineStatistics
from .loop_hold import LoopHold

_LATENCY_BUCKETS: Final = (0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.75, 1.0, 1.5, 2.5, 5.0, 10.0)
_BEHIND_BUCKETS: Final = (0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0, 300.0)
_LAG_BUCKETS: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1.0)
_LAG_INTERVAL_S: Final = 0.25

_COUNTERS: Final = {
    "num_steps": ("engine_steps", "Plans executed by the device"),
    "num_windows_encoded": ("windows_encoded", "Encoder windows and images computed"),
    "num_windows_reused": ("windows_reused", "Windows and images of prompts that needed no computing at all"),
    "num_encoder_tokens": ("encoder_tokens", "Encoder positions computed"),
    "num_prefill_tokens": ("prefill_tokens", "Decoder prompt tokens computed"),
    "num_decode_tokens": ("decode_tokens", "Decoder tokens generated"),
    "num_draft_tokens": ("draft_tokens", "Draft tokens offered for verification"),
    "num_draft_accepted": ("draft_accepted", "Draft tokens accepted"),
    "num_preemptions": ("preemptions", "Running requests put back to waiting for want of blocks"),
    "num_prefix_queried": ("prefix_cache_queries", "Prompt tokens looked up in the prefix cache"),
    "num_prefix_hits": ("prefix_cache_hits", "Prompt tokens whose keys and values were there already"),
    "num_session_evictions": ("session_evictions", "Sessions whose kept keys and values were given up"),
    "num_cache_hits": ("encoder_cache_hits", "Windows and images found already encoded"),
    "num_cache_misses": ("encoder_cache_misses", "Windows and images that had to be encoded"),
    "busy_s": ("engine_busy_seconds", "Seconds the device spent executing plans"),
}
_GAUGES: Final = {
    "num_waiting": ("requests_waiting", "Requests waiting for the engine"),
    "num_running": ("requests_running", "Requests the engine is decoding"),
    "num_free_blocks": ("kv_blocks_free", "Free blocks of decoder key-value memory"),
    "num_total_blocks": ("kv_blocks_total", "Blocks of decoder key-value memory"),
    "num_cached_blocks": ("kv_blocks_cached", "Free blocks whose content can still be found"),
    "num_sessions_parked": ("sessions_parked", "Sessions that keep keys and values between requests"),
    "num_cache_entries": ("encoder_cache_entries", "Encoded windows and images kept"),
    "num_cache_references": ("encoder_cache_references", "References held on encoded windows and images"),
    "cache_bytes": ("encoder_cache_bytes", "Bytes of encoded windows and images kept"),
}


class _EngineCollector(Collector):
    def __init__(self, engines: dict[str, Callable[[], EngineStatistics]]) -> None:
        self._engines = engines

    def collect(self) -> Iterator[Metric]:
        statistics = {name: read() for name, read in self._engines.items()}
        for field, (name, text) in _COUNTERS.items():
            counter = CounterMetricFamily(f"sensorium_{name}", text, labels=["model"])
            for model, values in statistics.items():
                counter.add_metric([model], float(getattr(values, field)))
            yield counter
        for field, (name, text) in _GAUGES.items():
            gauge = GaugeMetricFamily(f"sensorium_{name}", text, labels=["model"])
            for model, values in statistics.items():
                gauge.add_metric([model], float(getattr(values, field)))
            yield gauge


class Metrics:
    """All counters of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        self._engines: dict[str, Callable[[], EngineStatistics]] = {}
        self.registry.register(_EngineCollector(self._engines))
        self.sessions_active = Gauge(
            "sensorium_sessions_active", "Live sessions open now", registry=self.registry
        )
        self.sessions_detached = Gauge(
            "sensorium_sessions_detached",
            "Of them, those that wait for a client whose socket was lost",
            registry=self.registry,
        )
        self.sessions_resumed = Counter(
            "sensorium_sessions_resumed", "Times a client went on with its session", registry=self.registry
        )
        self.sessions = Counter(
            "sensorium_sessions",
            "Live sessions ended, by our close code; client: it left, lost: it did not come back",
            ["code"],
            registry=self.registry,
        )
        self.audio_seconds = Counter(
            "sensorium_audio_seconds_received",
            "Seconds of audio received",
            ["source"],
            registry=self.registry,
        )
        self.first_partial = Histogram(
            "sensorium_first_partial_seconds",
            "input_audio_buffer.speech_started to the item's first delta",
            buckets=_LATENCY_BUCKETS,
            registry=self.registry,
        )
        self.final = Histogram(
            "sensorium_final_seconds",
            "input_audio_buffer.committed to the item's completed event",
            buckets=_LATENCY_BUCKETS,
            registry=self.registry,
        )
        self.lag = Histogram(
            "sensorium_lag_seconds",
            "Audio received less audio covered, whenever a session gets a hypothesis",
            buckets=_BEHIND_BUCKETS,
            registry=self.registry,
        )
        self.withheld = Counter(
            "sensorium_releases_withheld",
            "Hypotheses with new text of which none could be released yet",
            registry=self.registry,
        )
        self.corrections = Counter(
            "sensorium_corrections",
            "Completed transcripts that differ from what their deltas had released",
            registry=self.registry,
        )
        self.requests = Counter(
            "sensorium_requests", "HTTP requests answered", ["route", "status"], registry=self.registry
        )
        self.requests_active = Gauge(
            "sensorium_requests_active", "Transcription requests in hand now", registry=self.registry
        )
        self.loop_lag = Histogram(
            "sensorium_loop_lag_seconds",
            "How late the network loop wakes up",
            buckets=_LAG_BUCKETS,
            registry=self.registry,
        )
        self.hold = LoopHold()
        Gauge(
            "sensorium_loop_hold_seconds",
            "Longest CPU time one task held the network loop, since the last scrape",
            registry=self.registry,
        ).set_function(self.hold.take)

    def add_engine(self, model: str, statistics: Callable[[], EngineStatistics]) -> None:
        """Read `statistics` at every scrape, labelled with the model's public name."""
        self._engines[model] = statistics

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
