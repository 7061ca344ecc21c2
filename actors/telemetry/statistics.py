"""Counters of connections, read at each scrape of `/metrics`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class ConnectionStatistics:
    """Counted since the start."""

    num_accepted: int = 0
    num_left: int = 0
    """Those that their peer had closed, without a word, before we looked."""
    num_evicted: int = 0
    """Idle ones that made room for others."""
    num_refused: int = 0
    """Those that found no room."""
    num_floods: int = 0
    """Those that ended because of their rate of frames."""
    num_open: int = 0
    num_idle: int = 0
