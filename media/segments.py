"""Where long audio is cut into windows: at the quietest place near the end of each window.

`split` cuts a whole recording; a live stream that calls `find_cut` whenever its open segment outgrows the
window gets the same cuts, because a cut depends only on the first `window_samples` after the segment start.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

QUIET_SAMPLES: Final = 1600
"""The stretch whose loudness decides: 100 ms at 16 kHz, longer than a stop consonant's closure."""
HOP_SAMPLES: Final = 160
"""Distance between candidates: 10 ms."""


def find_cut(samples: npt.NDArray[np.float32], *, search_samples: int) -> int:
    """Position at which to cut `samples` [n]: the middle of the quietest 100 ms in the last `search_samples`.

    Of equally quiet places the latest wins, so that segments are as long as they can be. The result is in
    (0, n]; it is n (a hard cut) when the searched part is shorter than 100 ms. Raises ValueError when
    there are no samples.
    """
    num_samples = len(samples)
    if num_samples == 0:
        raise ValueError("there is nothing to cut")
    start = max(0, num_samples - max(search_samples, 0))
    num_blocks = (num_samples - start) // HOP_SAMPLES
    num_blocks_quiet = QUIET_SAMPLES // HOP_SAMPLES
    if num_blocks < num_blocks_quiet:
        return num_samples
    # Anchored at the end, so that the very last samples are candidates too.
    start = num_samples - num_blocks * HOP_SAMPLES
    blocks = samples[start:].astype(np.float64).reshape(num_blocks, HOP_SAMPLES)
    block_energies = np.square(blocks).sum(axis=1)
    # Summed afresh for each place: a running sum would leave rounding noise where there is silence.
    energies = np.lib.stride_tricks.sliding_window_view(block_energies, num_blocks_quiet).sum(axis=1)
    quietest = len(energies) - 1 - int(np.argmin(energies[::-1]))
    return start + quietest * HOP_SAMPLES + QUIET_SAMPLES // 2


def split(
    samples: npt.NDArray[np.float32], *, window_samples: int, search_samples: int
) -> list[tuple[int, int]]:
    """Contiguous segments `(start, end)` that cover `samples` [n], each of 1 to `window_samples` samples.

    Empty audio has no segments.
    """
    if window_samples <= 0:
        raise ValueError(f"window_samples must be positive, not {window_samples}")
    segments = []
    start = 0
    while len(samples) - start > window_samples:
        cut = start + find_cut(samples[start : start + window_samples], search_samples=search_samples)
        segments.append((start, cut))
        start = cut
    if start < len(samples):
        segments.append((start, len(samples)))
    return segments
