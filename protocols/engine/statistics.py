"""What an engine counts of its own work, as it is read for `/metrics` and by benches."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from .histograms import Distribution


class RequestTimes(msgspec.Struct, frozen=True):
    """Of one class of service: how long the engine's requests took, and how large they were.

    Clocks start when a request is queued, with its media decoded and not yet encoded. What is aborted or
    fails is only in what it reached before.
    """

    queue_s: Distribution = Distribution()
    """Until the device first gets something of it."""
    first_token_s: Distribution = Distribution()
    between_tokens_s: Distribution = Distribution()
    """One value for each token but those that came first; several of one step share its time."""
    whole_s: Distribution = Distribution()
    prompt_tokens: Distribution = Distribution()
    output_tokens: Distribution = Distribution()
    drafts_accepted: Distribution = Distribution()
    """One value for each draft that was verified: how many of its tokens were right."""

    def __add__(self, other: RequestTimes) -> RequestTimes:
        names = self.__struct_fields__
        return RequestTimes(**{name: getattr(self, name) + getattr(other, name) for name in names})


_Gauge = Annotated[int, msgspec.Meta(title="gauge")]


class EngineStatistics(msgspec.Struct, frozen=True):
    """Counters since start, and gauges now. Work is counted by the engine, not estimated."""

    num_waiting_live: _Gauge = 0
    num_waiting_interactive: _Gauge = 0
    num_waiting_batch: _Gauge = 0
    num_running_live: _Gauge = 0
    num_running_interactive: _Gauge = 0
    num_running_batch: _Gauge = 0
    num_waits_slot: _Gauge = 0
    """Of all of these, those that wait for a slot; the next five are by what they wait for, too."""
    num_waits_blocks: _Gauge = 0
    num_waits_prefix: _Gauge = 0
    """For what another request is computing."""
    num_waits_encoding: _Gauge = 0
    num_waits_input: _Gauge = 0
    """For their feeders."""
    num_waits_transfer: _Gauge = 0
    """For blocks of another engine."""
    num_free_blocks: _Gauge = 0
    num_total_blocks: _Gauge = 0
    num_steps: int = 0
    num_windows_encoded: int = 0
    num_encoder_tokens: int = 0
    num_prefill_tokens: int = 0
    num_decode_tokens: int = 0
    num_draft_tokens: int = 0
    num_draft_accepted: int = 0
    num_preemptions_live: int = 0
    num_preemptions_interactive: int = 0
    num_preemptions_batch: int = 0
    num_prefix_queried: int = 0
    """Prompt tokens looked up in the prefix cache."""
    num_prefix_hits: int = 0
    """Prompt tokens found there, or taken over from a session's previous request."""
    num_windows_reused: int = 0
    """Windows and images of prompts that were among those: not even their encoding was needed."""
    num_cached_blocks: _Gauge = 0
    """Free blocks whose content can still be found."""
    num_sessions_parked: _Gauge = 0
    num_session_evictions: int = 0
    num_transfers_failed: int = 0
    """Transfers of blocks from another engine that failed: what they were for was computed."""
    num_state_slots: _Gauge = 0
    """Slots that fed requests hold."""
    num_state_evictions: int = 0
    """Times a fed request lost its states."""
    num_chunks: int = 0
    """Chunks of fed requests that were run: new input, and the next two."""
    num_chunks_again: int = 0
    """Fed again after an eviction."""
    num_chunks_forked: int = 0
    """Of forks."""
    num_cache_hits: int = 0
    num_cache_misses: int = 0
    num_cache_entries: _Gauge = 0
    num_cache_references: _Gauge = 0
    cache_bytes: _Gauge = 0
    busy_s: float = 0.0
    """Seconds the device has spent executing plans."""
    num_restarts: int = 0
    """Times the engine was started again after a crash."""
    times_live: RequestTimes = RequestTimes()
    times_interactive: RequestTimes = RequestTimes()
    times_batch: RequestTimes = RequestTimes()

    def __add__(self, other: EngineStatistics) -> EngineStatistics:
        names = self.__struct_fields__
        return EngineStatistics(**{name: getattr(self, name) + getattr(other, name) for name in names})

    def counters(self) -> EngineStatistics:
        """These without the gauges: what stays of an engine that is gone."""
        return msgspec.structs.replace(self, **dict.fromkeys(GAUGES, 0))

    @property
    def num_waiting(self) -> int:
        """Requests and alignments that wait."""
        return self.num_waiting_live + self.num_waiting_interactive + self.num_waiting_batch

    @property
    def num_running(self) -> int:
        """Requests that run."""
        return self.num_running_live + self.num_running_interactive + self.num_running_batch

    @property
    def num_preemptions(self) -> int:
        """Running requests that were put back to waiting."""
        return self.num_preemptions_live + self.num_preemptions_interactive + self.num_preemptions_batch


GAUGES: Final = frozenset(
    field.name for field in msgspec.structs.fields(EngineStatistics) if field.type == _Gauge
)
"""Fields of `EngineStatistics` that tell of now; the others count since the start."""


class SpeechStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a speech model's transcripts, since the start; of those whose words were timed the first
    four."""

    speech_s: float
    wordless_s: float
    """Seconds of it that are farther than 200 ms from any word."""
    num_words: int
    num_words_without_speech: int
    """Words that are farther than 200 ms from speech."""
    num_retranscribed: int
    """Stretches that were transcribed again."""
    retranscribed_s: float
