"""Read a server's `/metrics` (Prometheus text) and turn two readings into work per second of audio.

Work is what the engine counted itself: encoder tokens, prefill tokens, decode steps. Read next:
`client/bench/bench.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import msgspec

_SAMPLE: Final = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{[^}]*\})?\s+(\S+)")

WORK: Final = {
    "windows": "sensorium_windows_encoded",
    "windows reused": "sensorium_windows_reused",
    "encoder tokens": "sensorium_encoder_tokens",
    "prefill tokens": "sensorium_prefill_tokens",
    "decode tokens": "sensorium_decode_tokens",
    "draft tokens": "sensorium_draft_tokens",
    "engine steps": "sensorium_engine_steps",
    "device s": "sensorium_engine_busy_seconds",
}
"""Shown name → counter, without the `_total` a counter may end in."""


class Work(msgspec.Struct, frozen=True):
    """Engine work between two readings, per second of audio sent in between."""

    audio_s: float
    per_audio_s: dict[str, float]
    draft_accepted_share: float | None = None
    """Accepted draft tokens over verified ones."""


def parse_metrics(text: str) -> dict[str, float]:
    """Metric name → value, summed over label sets; comments and malformed lines are skipped."""
    values: dict[str, float] = {}
    for line in text.splitlines():
        match = _SAMPLE.match(line)
        if match is None:
            continue
        try:
            value = float(match[2])
        except ValueError:
            continue
        values[match[1]] = values.get(match[1], 0.0) + value
    return values


def work_between(before: dict[str, float], after: dict[str, float], audio_s: float) -> Work | None:
    """Work done per audio second; None when the server exports none of the counters."""
    done = {
        shown: delta for shown, name in WORK.items() if (delta := _delta(before, after, name)) is not None
    }
    if not done or audio_s <= 0:
        return None
    accepted = _delta(before, after, "sensorium_draft_accepted")
    verified = done.get("draft tokens")
    share = accepted / verified if accepted is not None and verified else None
    return Work(audio_s, {shown: value / audio_s for shown, value in done.items()}, share)


def pool_work(works: Iterable[Work | None]) -> Work | None:
    """Work of several rounds as if it had been one; None if none was counted."""
    known = [work for work in works if work is not None]
    audio_s = sum(work.audio_s for work in known)
    if not known or not audio_s:
        return None
    per_audio_s = {
        name: sum(work.audio_s * work.per_audio_s.get(name, 0.0) for work in known) / audio_s
        for name in known[0].per_audio_s
    }
    shares = [work.draft_accepted_share for work in known if work.draft_accepted_share is not None]
    return Work(audio_s, per_audio_s, sum(shares) / len(shares) if shares else None)


def _delta(before: dict[str, float], after: dict[str, float], name: str) -> float | None:
    for candidate in (f"{name}_total", name):
        if candidate in after:
            return after[candidate] - before.get(candidate, 0.0)
    return None
