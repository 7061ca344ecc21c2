"""What the recipe of overlapping windows asks of a model: its windows, its features, its tokens as text.

A file of `actors/speech/families/` fills it in. Torch-free. Read `windows.py` next.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ....media.transcript.range_answer import Samples
from ...inference.client import EngineClient
from ..streaming.family import TokenText

Frames = npt.NDArray[np.float32]
"""Features [bins, frames]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowedFamily:
    """One served model whose input is a window. Holds no state of any request."""

    engine: EngineClient
    text: TokenText
    languages: tuple[str, ...]
    """ISO codes that may be asked for, at least one."""
    row_samples: int
    """Audio of one frame of the encoder."""
    window_rows: int
    """Frames of the longest window."""
    overlap_rows: int
    """Frames that a window has in common with the next: less than half of a window."""
    features: Callable[[Samples], Frames]
    """Of a whole window [n]; none of one that is too short for a frame. Blocks for milliseconds a second of
    audio: for a thread."""

    def __post_init__(self) -> None:
        if not 0 < 2 * self.overlap_rows < self.window_rows:
            raise ValueError(
                f"overlap_rows is {self.overlap_rows}; allowed: above 0, and less than half of window_rows, "
                f"{self.window_rows}"
            )
