"""When each token was spoken: dynamic time warping over cross-attention, as openai/whisper does.

Takes the attention of the alignment heads, gives boundaries in encoder positions. Knows neither tokens
nor text; `engine/execution/runner.py` runs the forward pass, `WhisperText.words` makes words of the result.

There a path begins with the first token, which therefore begins with the audio, whatever is heard first. Here
the row of the prompt's first token comes first: it looks at what comes before anybody speaks.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

FloatArray = npt.NDArray[np.float64]

_DIAGONAL, _UP, _LEFT = 0, 1, 2


def token_boundaries(
    weights: Tensor, first_row: int, num_rows: int, *, filter_width: int = 7
) -> tuple[int, ...]:
    """Encoder position at which each of `num_rows` rows begins, never decreasing.

    `weights` [heads, rows, positions] are attention probabilities over positions that hold audio. All
    rows serve to normalise a head, rows from `first_row` are aligned; the first of those before them, if
    there are any, has what lies in front of the text. Raises ValueError if the weights are not finite or
    there is nothing to align.
    """
    if num_rows < 1 or weights.shape[-1] < 1:
        raise ValueError("nothing to align")
    std, mean = torch.std_mean(weights.float(), dim=-2, keepdim=True, unbiased=False)
    normalised = (weights.float() - mean) / std.clamp_min(torch.finfo(torch.float32).tiny)
    matrix = median_filter(normalised, filter_width).mean(dim=0)
    num_before = min(first_row, 1)
    rows = torch.cat((matrix[:num_before], matrix[first_row : first_row + num_rows]))
    cost = -rows.double().cpu().numpy()
    if not np.isfinite(cost).all():
        raise ValueError("attention weights are not finite")
    return tuple(int(start) for start in row_starts(cost)[num_before:])


def median_filter(x: Tensor, width: int) -> Tensor:
    """Median over `width` neighbours along the last axis, edges reflected; short rows stay as they are."""
    half = width // 2
    if x.shape[-1] <= half:
        return x
    padded = F.pad(x, (half, half), mode="reflect")
    return padded.unfold(-1, width, 1).sort(dim=-1).values[..., half]


def row_starts(cost: FloatArray) -> npt.NDArray[np.int64]:
    """Column where the cheapest monotone path through `cost` [rows, columns] enters each row."""
    trace = _trace(cost)
    starts = np.zeros(cost.shape[0], dtype=np.int64)
    i, j = cost.shape[0] - 1, cost.shape[1] - 1
    while i >= 0 and j >= 0:
        starts[i] = j
        move = trace[i, j]
        if i == 0 and move != _LEFT:
            break
        i -= move != _LEFT
        j -= move != _UP
    return starts


def _trace(cost: FloatArray) -> npt.NDArray[np.int8]:
    """Which way each cell was reached: ties go left, as in openai/whisper.

    Row by row: c[j] = m[j] + min(above[j - 1], above[j], c[j - 1]). With S the running sum of m, the
    last term becomes a running minimum: c[j] = S[j] + min over k ≤ j of (min(above) - S)[k] + m[k].
    """
    rows, columns = cost.shape
    trace = np.empty((rows, columns), dtype=np.int8)
    above = np.full(columns + 1, np.inf)
    above[0] = 0.0
    current = np.empty(columns + 1)
    for i in range(rows):
        entry = np.minimum(above[:-1], above[1:])
        running = np.cumsum(cost[i])
        current[0] = np.inf
        current[1:] = running + np.minimum.accumulate(entry - running + cost[i])
        diagonal, up, left = above[:-1], above[1:], current[:-1]
        trace[i] = np.where(
            (diagonal < up) & (diagonal < left),
            _DIAGONAL,
            np.where((up < diagonal) & (up < left), _UP, _LEFT),
        )
        above, current = current, above
    return trace
