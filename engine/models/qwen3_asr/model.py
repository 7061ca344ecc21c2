"""Qwen3-ASR: the audio tower in front of a Qwen3 decoder, whose placeholder rows it fills.

One encoder item is one attention window of an utterance (`engine/models/qwen3_asr/windows.py`); its encoding
are rows of the prompt. The parts are `tower.py` and `engine/models/dense/model.py`; the prompt is
`engine/models/qwen3_asr/text.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from transformers import PreTrainedConfig, Qwen3ASRConfig

from ....protocols.engine.messages import Features
from ....protocols.errors import ModelLoadError
from ...text.tokenizer import TextTokenizer
from ..base import is_whole, values_of
from ..dense.config import DecoderConfig, check_size, decoder_config, parse_config
from ..dense.model import Decoder, DecoderModel, EmbeddedRows
from ..dense.source import DECODER, decoder_facts, decoder_source
from ..layer import activation_of
from ..source import ModelSource, Opening
from ..weights import TensorReader
from .info import Qwen3AsrInfo, flat_config
from .side import side_of
from .text import languages_of
from .tower import AudioTower, AudioTowerConfig

_RENAMES: Final = (
    ("thinker.audio_tower.proj1.", "multi_modal_projector.linear_1."),
    ("thinker.audio_tower.proj2.", "multi_modal_projector.linear_2."),
    ("thinker.model.", DECODER),
    ("thinker.lm_head.", f"{DECODER}lm_head."),
    ("thinker.", ""),
)
"""Prefixes of tensors in the layout that was there first, and ours."""


class Qwen3AsrModel(DecoderModel):
    """The tower and the decoder of one checkpoint."""

    def __init__(
        self, info: Qwen3AsrInfo, tower: AudioTowerConfig, decoder: DecoderConfig, tensors: TensorReader
    ) -> None:
        self._num_mel_bins, self._window_frames = info.num_mel_bins, info.window_frames
        self._tower = AudioTower(tower, tensors)
        super().__init__(info, Decoder(decoder, tensors, prefix=DECODER), tensors)

    def check_input(self, features: Features) -> None:
        """See `DecoderModel`: one window of log-mel frames, [mels, 1 to a whole window]."""
        num_mel_bins, longest = self._num_mel_bins, self._window_frames
        shape = features.shape
        if len(shape) != 2 or shape[0] != num_mel_bins:
            raise ValueError(f"audio features must be [{num_mel_bins} mel bins, frames], not {list(shape)}")
        if not 1 <= shape[1] <= longest:
            raise ValueError(f"an audio window must have 1 to {longest} frames, not {shape[1]}")
        if not is_whole(features):
            raise ValueError(f"audio features {list(shape)} do not fit into {len(features.data)} bytes")
        if not bool(values_of(features).isfinite().all()):
            raise ValueError("audio features must be finite numbers")

    def encode_inputs(self, items: Sequence[Features]) -> list[EmbeddedRows]:
        """See `DecoderModel`; windows of any lengths in one batch."""
        return list(map(EmbeddedRows, self._tower.encode(list(map(values_of, items)))))


def open_source(opening: Opening) -> ModelSource:
    """Check a Qwen3-ASR folder of either layout: config, tokenizer, names and shapes of its tensors."""
    path = opening.folder / "config.json"
    config = flat_config(opening.config, path)
    parsed = parse_config(config, Qwen3ASRConfig.from_dict, path)
    decoder = decoder_config(parsed.text_config, path, tied=bool(parsed.tie_word_embeddings))
    tower = _tower_config(parsed.audio_config, decoder, path)
    text = TextTokenizer.from_folder(opening.folder)
    info = Qwen3AsrInfo(
        family="qwen3_asr",
        num_mel_bins=tower.num_mel_bins,
        n_window=tower.chunk_frames // 2,
        window_frames=tower.window_frames,
        output_size=tower.output_size,
        audio_token_id=check_size(parsed, "audio_token_id", path),
        languages=languages_of(config.get("support_languages")),
        **decoder_facts(opening, decoder, text, parsed.eos_token_id),
    )
    return decoder_source(
        opening,
        decoder,
        info,
        side_of(text, info),
        lambda tensors: Qwen3AsrModel(info, tower, decoder, tensors),
        others=tower.tensor_shapes(),
        renames=_RENAMES,
    )


def _tower_config(config: PreTrainedConfig, decoder: DecoderConfig, path: Path) -> AudioTowerConfig:
    """Check the audio part of a config against itself and the decoder."""
    tower = AudioTowerConfig(
        num_mel_bins=check_size(config, "num_mel_bins", path),
        num_layers=check_size(config, "encoder_layers", path),
        num_heads=check_size(config, "encoder_attention_heads", path),
        hidden_size=check_size(config, "d_model", path, minimum=4),
        ffn_size=check_size(config, "encoder_ffn_dim", path),
        conv_channels=check_size(config, "downsample_hidden_size", path),
        output_size=check_size(config, "output_dim", path),
        chunk_frames=2 * check_size(config, "n_window", path),
        window_frames=check_size(config, "n_window_infer", path),
        activation=activation_of(config, path),
    )
    positions = check_size(config, "max_position_embeddings", path)
    faults = {
        f"d_model {tower.hidden_size} is odd": tower.hidden_size % 2,
        f"d_model {tower.hidden_size} is not a multiple of encoder_attention_heads {tower.num_heads}": (
            tower.hidden_size % tower.num_heads
        ),
        f"n_window_infer {tower.window_frames} is not a multiple of 2 * n_window {tower.chunk_frames}": (
            tower.window_frames % tower.chunk_frames
        ),
        f"max_position_embeddings {positions} is less than the {tower.chunk_tokens} positions of a chunk": (
            positions < tower.chunk_tokens
        ),
        f"output_dim {tower.output_size} is not the decoder's hidden_size {decoder.hidden_size}": (
            tower.output_size != decoder.hidden_size
        ),
    }
    for fault, is_there in faults.items():
        if is_there:
            raise ModelLoadError(f"{path}: audio_config: {fault}")
    return tower
