"""Several channels → one: their mean, unless that would cancel them.

The two channels of a stereo recording may be in opposite phase (a cable wired the wrong way, a widening
effect): their mean is silence. Where the energy of the channels' sum was under a tenth of theirs over the
last second, the loudest channel stands for all; every other mix is the mean, bit for bit.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float32]

_BLOCKS_PER_S: Final = 20
"""The decision is made anew every 50 ms."""
_KEPT: Final = 0.95
"""Of the energy of earlier blocks, from one block to the next: a memory of about a second."""
_CANCELS_BELOW: Final = 0.1
_ENOUGH_PER_S: Final = 12_000
"""Samples that energies are summed over, of those that there are."""


def mean_of(channels: FloatArray) -> FloatArray:
    """Samples [channels, n] as [n]."""
    mean: FloatArray = channels[0] if len(channels) == 1 else channels.mean(axis=0, dtype=np.float32)
    return mean


class Mixer:
    """Mixes one recording or stream, block after block, cut anywhere.

    Nothing waits: each 50 ms are mixed as the sound before them requires, so the first 50 ms are a mean.
    """

    def __init__(self) -> None:
        self._format = (0, 0)
        self._energies: list[float] = []
        """Of each channel and of their sum, over the blocks that are complete."""
        self._open: list[float] = []
        """The same of the block that is not."""
        self._num_open = 0
        self._chosen: int | None = None
        """The channel that stands for all."""

    def mix(self, channels: FloatArray, rate: int, *, mean: FloatArray | None = None) -> FloatArray:
        """Samples [channels, n] as [n]; their mean, if it is known, is overwritten. Another rate or number
        of channels begins afresh."""
        mixed = mean_of(channels) if mean is None else mean
        num_channels, num_samples = channels.shape
        if num_channels == 1 or not num_samples:
            return mixed
        if self._format != (num_channels, rate):
            self._format = num_channels, rate
            self._energies = self._open = [0.0] * (num_channels + 1)
            self._num_open, self._chosen = 0, None
        stride = max(1, rate // _ENOUGH_PER_S)
        length = max(1, rate // _BLOCKS_PER_S // stride * stride)
        head = min(length - self._num_open, num_samples) if self._num_open else 0
        body = head + (num_samples - head) // length * length
        for start, end, size in (
            (0, head, head),
            (head, body, length),
            (body, num_samples, num_samples - body),
        ):
            if start == end:
                continue
            blocks = self._measured(channels, mixed, slice(start, end), stride, (end - start) // size)
            for place, energies in zip(range(start, end, size), blocks, strict=True):
                if self._chosen is not None:
                    mixed[place : place + size] = channels[self._chosen, place : place + size]
                self._add(energies, size, length)
        return mixed

    def _measured(
        self, channels: FloatArray, mixed: FloatArray, piece: slice, stride: int, num_blocks: int
    ) -> list[list[float]]:
        """The energies of each block in a piece: one that is not whole, or some that are."""
        sampled = slice(piece.start + -self._num_open % stride, piece.stop, stride)
        with np.errstate(all="ignore"):  # samples that are no numbers are refused afterwards
            both = np.vstack((channels[:, sampled], mixed[sampled] * len(channels)))
            squares = np.square(both, dtype=np.float64).reshape(len(both), num_blocks, -1)
            blocks: list[list[float]] = squares.sum(axis=2).T.tolist()
        return blocks

    def _add(self, energies: list[float], num_samples: int, length: int) -> None:
        self._open = [before + more for before, more in zip(self._open, energies, strict=True)]
        self._num_open += num_samples
        if self._num_open < length:
            return
        self._energies = [_KEPT * old + new for old, new in zip(self._energies, self._open, strict=True)]
        self._open, self._num_open = [0.0] * len(self._open), 0
        *each, of_sum = self._energies
        if of_sum >= _CANCELS_BELOW * sum(each):
            self._chosen = None
        elif self._chosen is None:
            self._chosen = each.index(max(each))
