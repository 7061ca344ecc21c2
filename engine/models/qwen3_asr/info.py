"""What others may know of a Qwen3-ASR model, and the two layouts its checkpoints are published in.

`Qwen/Qwen3-ASR-0.6B-hf` is written as transformers reads it, and so are our configs and tensor names.
`Qwen/Qwen3-ASR-0.6B` was there first: its config lies in a `thinker_config`, its tensors behind `thinker.`,
and the projector counts to the tower.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

from ....protocols.errors import ModelLoadError
from ..info import ModelInfo
from .windows import num_audio_tokens

_THINKER: Final = "thinker_config"
_OF_THINKER: Final = ("audio_config", "text_config", "audio_token_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class Qwen3AsrInfo(ModelInfo):
    """What others may know of a Qwen3-ASR model; its folder holds the feature extractor's config."""

    num_mel_bins: int
    n_window: int
    """Half a convolution chunk, in mel frames."""
    window_frames: int
    """Mel frames of a whole encoder window."""
    output_size: int
    """Numbers in a row of an encoding."""
    audio_token_id: int
    """The placeholder of a row of an encoding."""
    languages: tuple[str, ...]
    """ISO codes the model can be told."""
    extractors: ClassVar = {"Qwen3ASRFeatureExtractor": 128, "WhisperFeatureExtractor": 80}
    """The second where it was first published."""

    def num_tokens(self, num_frames: int) -> int:
        """Rows of the encoding of a window of so many frames."""
        return num_audio_tokens(num_frames, self.n_window)

    def describe(self) -> str:
        """What it can do, for people."""
        return f"transcribe · {', '.join(self.languages)} · {self.max_context} tokens of context"


def flat_config(config: dict[str, Any], path: Path) -> dict[str, Any]:
    """A config of either layout as transformers writes it. Raises ModelLoadError naming the field."""
    if _THINKER not in config:
        return config
    thinker = config[_THINKER]
    for field in _OF_THINKER:
        if not isinstance(thinker, dict) or field not in thinker:
            raise ModelLoadError(f"{path}: {_THINKER} has no {field}")
    parts = [thinker["audio_config"], thinker["text_config"]]
    if not all(isinstance(part, dict) for part in parts):
        raise ModelLoadError(f"{path}: {_THINKER}: audio_config and text_config are not objects")
    # Their own names of the parts are those of code that came with them; positions are sinusoids, of which
    # a chunk takes the first few.
    audio, text = ({key: part[key] for key in part if key != "model_type"} for part in parts)
    audio["max_position_embeddings"] = audio.pop("max_source_positions", 1500)
    tied = text.get("tie_word_embeddings", True)
    kept = {key: value for key, value in config.items() if key not in (_THINKER, "tie_word_embeddings")}
    return kept | {
        "audio_config": audio,
        "text_config": text,
        "audio_token_id": thinker["audio_token_id"],
        "tie_word_embeddings": tied,
    }
