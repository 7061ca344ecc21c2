"""From audio to what the engine is asked and to what `transformers` is: for tests of Qwen3-ASR."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from sensorium.engine.models.prompts import Prompt
from sensorium.engine.models.qwen3_asr.info import Qwen3AsrInfo
from sensorium.engine.models.qwen3_asr.text import Qwen3AsrText
from sensorium.engine.models.source import ModelSource
from sensorium.media.audio.encoder_windows import WindowedLogMel
from sensorium.media.audio.features import FeatureConfig
from sensorium.protocols.engine.messages import EncoderItem
from support.asr_folder import FloatArray
from torch import Tensor


@dataclass(frozen=True)
class Transcription:
    """One utterance to transcribe."""

    prompt: Prompt
    items: list[EncoderItem]

    def reference_inputs(self) -> dict[str, Tensor]:
        """The same for `Qwen3ASRForConditionalGeneration`: ids, padded features, mask."""
        windows = [np.frombuffer(i.features.data, "<f4").reshape(i.features.shape) for i in self.items]
        features = torch.from_numpy(np.concatenate(windows, axis=1))
        num_frames = features.shape[1]
        padding = -num_frames % 100
        mask = torch.cat([torch.ones(num_frames), torch.zeros(padding)]).long()
        return {
            "input_ids": torch.tensor([self.prompt.token_ids]),
            "input_features": torch.nn.functional.pad(features, (0, padding))[None],
            "input_features_mask": mask[None],
        }


def asr_text(source: ModelSource) -> Qwen3AsrText:
    """The text side of an opened model."""
    assert source.side.speech is not None
    assert isinstance(source.side.speech.text, Qwen3AsrText)
    return source.side.speech.text


def new_windows(source: ModelSource) -> WindowedLogMel:
    """What cuts growing audio for an opened model."""
    info = source.info
    assert isinstance(info, Qwen3AsrInfo)
    return WindowedLogMel(
        FeatureConfig.from_folder(source.folder, info.extractors),
        window_frames=info.window_frames,
        num_tokens=info.num_tokens,
    )


def transcription(
    source: ModelSource, samples: FloatArray, *, context: str = "", language: str | None = None
) -> Transcription:
    """What to ask for a whole utterance."""
    windows = new_windows(source)
    windows.append(samples)
    items = list(windows.items())
    return Transcription(asr_text(source).prompt(items, context=context, language=language), items)
