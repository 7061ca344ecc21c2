"""Nemotron ASR as a streaming speech model: its chunks, its delays and its languages.

Torch-free. What it does with a stream is `actors/speech/streaming/`; the model is in
`engine/models/nemotron_asr/`.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Self

import numpy as np

from ....engine.models.nemotron_asr.chunks import FRAMES_PER_ROW, chunk_frames
from ....engine.models.nemotron_asr.info import NemotronAsrInfo
from ....engine.models.nemotron_asr.text import TransducerText
from ....media.audio.nemo_features import ChunkCutter, NemoFeatureConfig, NemoLogMel
from ....media.transcript.range_answer import Samples
from ....protocols.engine.messages import Transduce
from ....protocols.transcription.streaming import ChunkDelay
from ...inference.client import EngineClient
from ..streaming.family import Frames, StreamingFamily


def open_family(engine: EngineClient, info: NemotronAsrInfo, text: TransducerText) -> StreamingFamily:
    """The speech side of a checkpoint. Raises ModelLoadError naming the file at fault."""
    config = NemoFeatureConfig.from_folder(info.folder, info.extractors, num_mel_bins=info.num_mel_bins)
    lookaheads = {delay_ms: lookahead for lookahead, delay_ms in info.delays_ms.items()}
    conditions = _by_code(info)

    def task(delay: ChunkDelay, language: str | None) -> Transduce:
        condition = info.default_condition if language is None else conditions.get(language, 0)
        return Transduce(lookaheads[delay.delay_ms], condition, logprobs=True)

    return StreamingFamily(
        engine=engine,
        text=text,
        languages=tuple(conditions) or ("en",),
        delays=tuple(_delay(config, lookahead, delay_ms) for delay_ms, lookahead in lookaheads.items()),
        row_samples=FRAMES_PER_ROW * config.hop_length,
        task=task,
        features=lambda delay: NemoChunks(config, lookaheads[delay.delay_ms]),
    )


class NemoChunks:
    """See `ChunkedFeatures`."""

    def __init__(self, config: NemoFeatureConfig, lookahead: int) -> None:
        self._frames = NemoLogMel(config)
        self._cutter = ChunkCutter(
            config.num_mel_bins,
            first=chunk_frames(lookahead, is_first=True),
            rest=chunk_frames(lookahead, is_first=False),
        )

    def append(self, samples: Samples) -> Sequence[Frames]:
        """See `ChunkedFeatures.append`."""
        return list(self._cutter.append(self._frames.append(samples)))

    def rest(self) -> Frames:
        """See `ChunkedFeatures.rest`."""
        return np.concatenate((self._cutter.remainder, copy(self._frames).finish()), axis=1)

    def copy(self) -> Self:
        """See `ChunkedFeatures.copy`. Both parts replace their arrays, and write to none."""
        made = copy(self)
        made._frames, made._cutter = copy(self._frames), copy(self._cutter)
        return made


def _delay(config: NemoFeatureConfig, lookahead: int, delay_ms: int) -> ChunkDelay:
    """A frame needs half a window behind its centre."""
    first, later = (chunk_frames(lookahead, is_first=is_first) for is_first in (True, False))
    hop = config.hop_length
    return ChunkDelay(delay_ms, (first - 1) * hop + config.win_length // 2, later * hop)


def _by_code(info: NemotronAsrInfo) -> dict[str, int]:
    """The condition of each language by its code: what the checkpoint has for that, or its first locale."""
    codes = dict.fromkeys(name.partition("-")[0] for name in info.languages)
    return {
        code: next(
            info.conditions[name]
            for name in (code, *info.languages)
            if name.partition("-")[0] == code and name in info.conditions
        )
        for code in codes
    }
