"""Qwen3-ASR's encoder windows of an utterance while its audio arrives, each addressed by its features' hash.

The features equal `transformers`' extractor on everything so far. A whole window can still change: by the
frames at the moving edge, and when a louder sound lifts the floor (maximum - 8) that covers the utterance.
Only windows that did are built and hashed again, so the engine encodes no unchanged window twice. Built on
`media/audio/features.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from ...protocols.engine.messages import EncoderItem
from ..hashing import encoder_item
from .features import DYNAMIC_RANGE, FeatureConfig, FloatArray, IncrementalLogMel, RawLogMel, normalise


@dataclass(frozen=True, slots=True)
class _Known:
    """A window as it was last built. `is_final`: all its frames are, so that only the floor can change it."""

    item: EncoderItem
    is_final: bool
    peak: np.float32


class WindowedLogMel:
    """Cuts growing audio into windows of `window_frames` mel frames; the last may be any shorter.

    `num_tokens` says what a window of so many frames becomes in the prompt. Whatever the chunking of
    `append`, `items` are exactly the windows of the whole. Holds raw energies and features, 4 bytes each per
    mel bin and frame (102 kB a second at 128 bins).
    """

    def __init__(
        self, config: FeatureConfig, *, window_frames: int, num_tokens: Callable[[int], int]
    ) -> None:
        self.config = config
        self.window_frames = window_frames
        self._num_tokens = num_tokens
        self._source = RawLogMel(config)
        self._raw: list[FloatArray] = []
        self._lowest: list[np.float32] = []
        """Of the final frames of each window."""
        self._peak = np.float32(-np.inf)
        self._known: list[_Known] = []

    @property
    def num_samples(self) -> int:
        """Samples appended."""
        return self._source.num_samples

    @property
    def num_frames(self) -> int:
        """Mel frames of everything appended; the extractor pads very short audio."""
        return self._end() // self.config.hop_length

    @property
    def num_windows(self) -> int:
        """Windows of everything appended."""
        return -(-self.num_frames // self.window_frames)

    @property
    def num_rewind_samples(self) -> int:
        """How many samples `rewind` needs to see."""
        return self._source.num_rewind_samples

    def append(self, samples: FloatArray) -> None:
        """Add samples [n], mono at the config's rate."""
        step = self.window_frames * self.config.hop_length
        for start in range(0, len(samples), step):
            first = self._source.num_final
            final = self._source.append(samples[start : start + step])
            if final.size:
                self._peak = max(self._peak, final.max())
                self._store(first, final)

    def rewind(self, num_samples: int, last: FloatArray) -> None:
        """Go back to the first `num_samples`, of which `last` are the last (all, or `num_rewind_samples`).

        It is then as if no more had been appended.
        """
        self._source.rewind(num_samples, last)
        num_final = self._source.num_final
        num_kept = -(-num_final // self.window_frames)
        del self._raw[num_kept:], self._lowest[num_kept:], self._known[self.num_windows :]
        self._peak = np.float32(-np.inf)
        for index, raw in enumerate(self._raw):
            kept = raw[:, : num_final - self._start(index)]
            self._lowest[index] = kept.min()
            self._peak = max(self._peak, kept.max())
        for index, known in enumerate(self._known):
            is_final = known.is_final and self._start(index) + known.item.features.shape[1] <= num_final
            self._known[index] = replace(known, is_final=is_final)

    def items(self) -> tuple[EncoderItem, ...]:
        """The windows of everything appended; those that did not change are not built again."""
        edge = self._source.edge(self.num_frames, self._end())
        peak = max(self._peak, edge.max()) if edge.size else self._peak
        for index, num_frames in enumerate(self._lengths()):
            known = self._known[index] if index < len(self._known) else None
            if known is None or not self._is_unchanged(index, known, num_frames, peak):
                item = self._build(index, num_frames, edge, peak)
                is_final = self._start(index) + num_frames <= self._source.num_final
                self._known[index : index + 1] = [_Known(item, is_final, peak)]
        return tuple(known.item for known in self._known)

    def _end(self) -> int:
        return max(self.num_samples, self.config.min_samples) if self.num_samples else 0

    def _start(self, index: int) -> int:
        return index * self.window_frames

    def _lengths(self) -> Iterator[int]:
        for start in range(0, self.num_frames, self.window_frames):
            yield min(self.window_frames, self.num_frames - start)

    def _store(self, first: int, final: FloatArray) -> None:
        """Put frames `first`, … [mels, k] where their windows are."""
        for start in range(first - first % self.window_frames, first + final.shape[1], self.window_frames):
            index = start // self.window_frames
            if index == len(self._raw):
                self._raw.append(np.empty((self.config.num_mel_bins, self.window_frames), np.float32))
                self._lowest.append(np.float32(np.inf))
            part = final[:, max(0, start - first) : start + self.window_frames - first]
            column = max(0, first - start)
            self._raw[index][:, column : column + part.shape[1]] = part
            self._lowest[index] = min(self._lowest[index], part.min())

    def _is_unchanged(self, index: int, known: _Known, num_frames: int, peak: np.float32) -> bool:
        if not known.is_final or known.item.features.shape[1] != num_frames:
            return False
        floor = max(known.peak, peak) - DYNAMIC_RANGE
        return bool(known.peak == peak or self._lowest[index] >= floor)

    def _build(self, index: int, num_frames: int, edge: FloatArray, peak: np.float32) -> EncoderItem:
        start, num_final = self._start(index), self._source.num_final
        kept = min(num_frames, max(0, num_final - start))
        parts = [self._raw[index][:, :kept]] if kept else []
        if kept < num_frames:
            parts.append(edge[:, start + kept - num_final : start + num_frames - num_final])
        features = normalise(np.concatenate(parts, axis=1), peak)
        return encoder_item(features, num_tokens=self._num_tokens(num_frames))


def windows_of(
    samples: FloatArray,
    config: FeatureConfig,
    *,
    window_frames: int,
    num_tokens: Callable[[int], int],
    cut: Literal["shorter", "padded", "trimmed", "apart"] = "shorter",
) -> tuple[EncoderItem, ...]:
    """The windows of a whole recording. `shorter`: the last one has the frames that are left. `padded`:
    silence fills it up. `trimmed`: frames are those of the extractor's own window, which silence fills up,
    and the last one has those that are audio. `apart`: each one is computed as if there were no other,
    silence fills it up, and its grid is (1, 1, frames that are audio)."""
    window = window_frames * config.hop_length
    if cut == "apart":
        return tuple(
            _window_apart(samples[start : start + window], config, num_tokens)
            for start in range(0, max(len(samples), 1), window)
        )
    if cut == "trimmed":
        return tuple(_trimmed(samples, config, window_frames, num_tokens))
    windows = WindowedLogMel(config, window_frames=window_frames, num_tokens=num_tokens)
    windows.append(samples)
    if cut == "padded":
        windows.append(np.zeros(-len(samples) % window, np.float32))
    return windows.items()


def _trimmed(
    samples: FloatArray, config: FeatureConfig, window_frames: int, num_tokens: Callable[[int], int]
) -> Iterator[EncoderItem]:
    """Windows of at most the extractor's own, but those too short for a token."""
    source = RawLogMel(config)
    final = source.append(samples)
    touched = -(-(len(samples) + config.n_fft // 2) // config.hop_length)
    edge = source.edge(min(touched, config.window_frames), config.window_samples)
    raw = np.concatenate((final, edge), axis=1)
    features = normalise(raw, raw.max())[:, : -(-len(samples) // config.hop_length)]
    for start in range(0, features.shape[1], window_frames):
        window = features[:, start : start + window_frames]
        if num_tokens(window.shape[1]):
            yield encoder_item(window, num_tokens=num_tokens(window.shape[1]))


def _window_apart(
    samples: FloatArray, config: FeatureConfig, num_tokens: Callable[[int], int]
) -> EncoderItem:
    window = IncrementalLogMel(config)
    window.append(samples)
    num_frames = max(-(-len(samples) // config.hop_length), 1)
    return encoder_item(window.features(), grid=(1, 1, num_frames), num_tokens=num_tokens(num_frames))
