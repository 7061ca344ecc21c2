"""What others count, read at scrape time: engines, their actors' inboxes, the decoder pool.

Each table names the fields of one statistics object. `actors/telemetry/metrics.py` registers them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from types import SimpleNamespace
from typing import Final, get_args

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from ...protocols.engine.histograms import DRAFTS, SECONDS, TOKENS, Distribution
from ...protocols.engine.messages import Service
from ...protocols.engine.statistics import GAUGES, EngineStatistics, RequestTimes

SERVICES: Final[tuple[Service, ...]] = get_args(Service)

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
    "num_transfers_failed": (
        "kv_transfers_failed",
        "Transfers of key-value memory from another engine that failed",
    ),
    "num_cache_hits": ("encoder_cache_hits", "Windows and images found already encoded"),
    "num_cache_misses": ("encoder_cache_misses", "Windows and images that had to be encoded"),
    "num_restarts": ("engine_restarts", "Times the engine was started again after a crash"),
    "busy_s": ("engine_busy_seconds", "Seconds the device spent executing plans"),
    "num_free_blocks": ("kv_blocks_free", "Free blocks of decoder key-value memory"),
    "num_total_blocks": ("kv_blocks", "Blocks of decoder key-value memory"),
    "num_cached_blocks": ("kv_blocks_cached", "Free blocks whose content can still be found"),
    "num_sessions_parked": ("sessions_parked", "Sessions that keep keys and values between requests"),
    "num_cache_entries": ("encoder_cache_entries", "Encoded windows and images kept"),
    "num_cache_references": ("encoder_cache_references", "References held on encoded windows and images"),
    "cache_bytes": ("encoder_cache_bytes", "Bytes of encoded windows and images kept"),
    "num_chunks": ("fed_chunks", "Chunks of input that fed requests have run"),
    "num_chunks_forked": ("fed_chunks_forked", "Of them, those of forks"),
    "num_chunks_again": ("fed_chunks_again", "Of them, those fed again after an eviction"),
    "num_state_evictions": ("state_evictions", "Fed requests that lost their slot of states to another"),
    "num_state_slots": ("state_slots_used", "Slots of states that fed requests hold"),
    "num_waits_slot": ("requests_waiting_slot", "Requests that wait for a slot"),
    "num_waits_blocks": ("requests_waiting_blocks", "Requests that wait for key-value memory"),
    "num_waits_prefix": (
        "requests_waiting_prefix",
        "Requests that wait for a prefix that another one is computing",
    ),
    "num_waits_encoding": ("requests_waiting_encoding", "Requests that wait for an encoding"),
    "num_waits_input": ("requests_waiting_input", "Fed requests that wait for their next input"),
    "num_waits_transfer": (
        "requests_waiting_transfer",
        "Requests that wait for key-value memory of another engine",
    ),
}
"""Name and help of the fields of `EngineStatistics`."""
BY_SERVICE: Final = {
    "num_preemptions": ("preemptions", "Running requests put back to waiting for want of a slot or blocks"),
    "num_waiting": ("requests_waiting", "Requests waiting for the engine"),
    "num_running": ("requests_running", "Requests the engine is decoding"),
}
"""And of those it has for each class of service."""
TIMES: Final = {
    "queue_s": ("queue_seconds", "A request queued to the device getting something of it"),
    "first_token_s": ("time_to_first_token_seconds", "A request queued to its first token"),
    "between_tokens_s": ("inter_token_seconds", "One token of a request to its next"),
    "whole_s": ("engine_request_seconds", "A request queued to its last token"),
    "prompt_tokens": ("request_prompt_tokens", "Tokens in the prompt of a request, media included"),
    "output_tokens": ("request_output_tokens", "Tokens in the answer to a request"),
    "drafts_accepted": ("draft_accepted_length", "Tokens of one verified draft that were right"),
}
"""And of its `RequestTimes`."""
_BOUNDS: Final = {"drafts_accepted": DRAFTS}
INBOX: Final = {
    "num_received": ("inbox_messages", "Messages an actor has taken"),
    "num_refused": ("inbox_refused", "Messages refused because an actor's inbox was full"),
    "depth": ("inbox_depth", "Messages waiting for an actor"),
    "max_depth": ("inbox_max_depth", "Most messages that ever waited for an actor"),
}
SPEECH: Final = {
    "speech_s": ("speech_seconds", "Seconds of speech, by voice activity, in transcripts with timed words"),
    "wordless_s": ("speech_without_words_seconds", "Of them, those farther than 200 ms from any word"),
    "num_words": ("timed_words", "Words in these transcripts"),
    "num_words_without_speech": ("words_without_speech", "Of them, those farther than 200 ms from speech"),
    "num_retranscribed": (
        "speech_retranscribed",
        "Stretches of recordings transcribed again for a doubtful answer",
    ),
    "retranscribed_s": ("speech_retranscribed_seconds", "Seconds of them"),
}
PROCESS: Final = {
    "num_restarts": ("engine_process_restarts", "Times the engines' process was started again"),
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
SOUND: Final = {
    "num_streams": ("sound_streams", "Sessions whose sound comes in a container"),
    "num_deaths": ("sound_deaths", "Processes decoding live sound that died or were killed"),
    "decoded_s": ("sound_decoded_seconds", "Seconds of live sound decoded out of containers"),
}
FETCHES: Final = {
    "num_fetched": ("fetched_files", "Files fetched by address"),
    "num_failed": ("fetch_failed", "Addresses whose file could not be had, or may not be"),
    "num_retries": ("fetch_retries", "Further attempts at an address"),
    "num_bytes": ("fetched_bytes", "Bytes received of files fetched, also of those that failed"),
    "num_waiting": ("fetches_waiting", "Files waiting to be fetched"),
    "num_running": ("fetches_running", "Files being fetched"),
}
MEDIA_CACHE: Final = {
    "num_hits": ("media_cache_hits", "Files of prompts that were opened before, and not opened again"),
    "num_misses": ("media_cache_misses", "Files of prompts that had to be opened"),
    "num_evictions": ("media_cache_evictions", "Opened files given up for others"),
    "num_entries": ("media_cache_entries", "Opened files kept"),
    "num_kept_bytes": ("media_cache_bytes", "Bytes of opened files kept"),
}
POSTING: Final = {
    "num_posted": ("callback_events", "Events of calls that were posted to their callbacks"),
    "num_dropped": ("callback_events_dropped", "Events that found no room or that nobody took"),
    "num_posting": ("callbacks_active", "Callbacks of calls that go on, or that have not posted everything"),
    "num_to_post": ("callback_events_waiting", "Events to be posted"),
}
CONNECTIONS: Final = {
    "num_open": ("connections_open", "Connections now"),
    "num_idle": ("connections_idle", "Of them, those without a request in hand"),
    "num_accepted": ("connections", "Connections taken in"),
    "num_left": ("connections_left", "Connections closed again, without a word, before they were taken in"),
    "num_evicted": ("connections_evicted", "Idle connections closed to make room for others"),
    "num_refused": ("connections_refused", "Connections that found no room"),
    "num_floods": (
        "connections_flooding",
        "WebSockets closed because of their rate of frames without content",
    ),
}
REFUSED: Final = {
    "num": (
        "requests_refused",
        "Requests that reached no route: no HTTP, too large or slow a head, no room, no proper WebSocket",
    )
}
_OF_OTHERS: Final = {
    "depth",
    "max_depth",
    "num_workers",
    "num_waiting",
    "num_running",
    "num_open",
    "num_idle",
    "num_streams",
    "num_entries",
    "num_kept_bytes",
    "num_posting",
    "num_to_post",
}
_GAUGES: Final = GAUGES | _OF_OTHERS


def of_service(statistics: EngineStatistics, service: Service) -> SimpleNamespace:
    return SimpleNamespace(**{field: getattr(statistics, f"{field}_{service}") for field in BY_SERVICE})


class Statistics(Collector):
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


class Times(Collector):
    """Histograms of every model's requests, by class of service."""

    def __init__(self, read: Callable[[], Iterable[tuple[str, EngineStatistics]]]) -> None:
        self._read = read

    def collect(self) -> Iterator[Metric]:
        """One family for each field of `RequestTimes`."""
        rows = list(self._read())
        for field, (name, text) in TIMES.items():
            bounds = SECONDS if field.endswith("_s") else _BOUNDS.get(field, TOKENS)
            family = HistogramMetricFamily(f"sensorium_{name}", text, labels=["model", "service"])
            for model, statistics in rows:
                for service in SERVICES:
                    times: RequestTimes = getattr(statistics, f"times_{service}")
                    found: Distribution = getattr(times, field)
                    counts = found.counts or (0,) * (len(bounds) + 1)
                    ends = [*map(repr, bounds), "+Inf"]
                    buckets = list(zip(ends, map(float, accumulate(counts)), strict=True))
                    family.add_metric([model, service], buckets, found.total)
            yield family
