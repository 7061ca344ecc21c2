"""Phi-4 multimodal: a picture is the tiles of it and a small whole, a recording is heard as a whole. Sound in
a prompt with pictures goes through another projection than sound alone.

The published adapters for speech and for pictures (`speech-lora`, `vision-lora`) are adapters like any other,
and none is applied by itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from ......protocols.engine.messages import Features
from ....prompts import IMAGES, AudioClips, MediaRules
from ...family import (
    AudioEncoding,
    Checkpoint,
    EncodeBatch,
    MediaFamily,
    Place,
    TranscriptionRule,
    one_each,
)

_MAX_SECONDS: Final = 300.0
"""Of one recording: its first convolution has 1024 channels of 40 numbers for each 20 ms."""
_LANGUAGES: Final = ("en", "zh", "de", "fr", "it", "ja", "es", "pt")
_INSTRUCTION: Final = "Transcribe the audio clip into text."
_IMAGE, _AUDIO = "vision_config.image_token_id", "audio_config.audio_token_id"
_IMAGE_ID, _AUDIO_ID = 200_010, 200_011


def open_family(checkpoint: Checkpoint) -> MediaFamily:
    """See `family.py`."""
    image = checkpoint.token(_IMAGE, default=_IMAGE_ID)
    audio = checkpoint.token(_AUDIO, default=_AUDIO_ID)
    side = checkpoint.size("vision_config.crop_size", 448)
    encoders = _Encoders(
        image_id=checkpoint.value(_IMAGE, _IMAGE_ID),
        audio_id=checkpoint.value(_AUDIO, _AUDIO_ID),
        width=checkpoint.size("hidden_size"),
        side=side,
        num_patches=side // checkpoint.size("vision_config.patch_size", 14),
        reduction=checkpoint.size("audio_config.time_reduction", 8),
    )
    return MediaFamily(
        purpose="chat · text, images, audio",
        media=MediaRules(
            pixels=".rules.padded_tiles",
            pixel_kinds=IMAGES,
            audio=AudioClips(".rules.phi4_multimodal", encoders.num_audio_rows, _MAX_SECONDS),
        ),
        places={
            "image": Place(written=image, text_of=one_each(image), token=image),
            "audio": Place(written=audio, text_of=one_each(audio), token=audio),
        },
        num_rows=encoders.num_rows,
        encode=encoders.see,
        row_width=2 * encoders.width,
        feature_shape=(None, 3, side, side),
        audio=AudioEncoding(
            is_audio=_is_audio,
            encode=encoders.hear,
            feature_shape=(None, checkpoint.size("audio_config.input_size", 80)),
            id_beside_pictures=encoders.image_id,
        ),
        transcription=TranscriptionRule(languages=_LANGUAGES, instruction=_INSTRUCTION),
    )


def _is_audio(features: Features) -> bool:
    """Pictures have channels."""
    return len(features.shape) == 2


@dataclass(frozen=True, slots=True, kw_only=True)
class _Encoders:
    """What `embed_tokens_extend` has, by its numbers."""

    image_id: int
    audio_id: int
    width: int
    side: int
    """Pixels of a tile."""
    num_patches: int
    """On a side of a tile."""
    reduction: int
    """Frames that become a row."""

    def num_audio_rows(self, num_frames: int) -> int:
        """Of a recording."""
        return -(-num_frames // self.reduction)

    def num_rows(self, features: Features) -> int:
        """Of an item."""
        if _is_audio(features):
            return self.num_audio_rows(features.shape[0])
        assert features.grid is not None, "that is how the rule makes them"
        return self._num_picture_rows(features.grid, features.shape[0] - 1)

    def _num_picture_rows(self, grid: tuple[int, int, int], num_tiles: int) -> int:
        """Of the shown part of the tiles and of the small whole, each with one at the end of a line, and one
        in between. Two patches on a side become one."""
        lines, down, across = grid
        half = -(-self.num_patches // 2)
        tall, wide = (
            (tiles - 1) * half + -(-(shown - (tiles - 1) * self.num_patches) // 2)
            for tiles, shown in ((lines, down), (num_tiles // lines, across))
        )
        return tall * (wide + 1) + 1 + half * (half + 1)

    def see(self, model: Any, batch: EncodeBatch) -> Iterable[Any]:  # noqa: ANN401 (of transformers)
        """Pictures of one size."""
        pixels, grid, patches = batch.stacked, batch.grid, self.num_patches
        assert grid is not None, "that is how the rule makes them"
        number, num_tiles = len(pixels), pixels.shape[1] - 1
        lines, columns = grid[0], num_tiles // grid[0]
        shown = pixels.new_zeros(lines * patches, columns * patches)
        shown[: grid[1], : grid[2]] = 1
        mask = pixels.new_ones(number, 1 + num_tiles, patches, patches)
        mask[:, 1:] = (
            shown.view(lines, patches, columns, patches).transpose(1, 2).reshape(-1, patches, patches)
        )
        sizes = batch.ids([lines * self.side, columns * self.side] * number).view(number, 2)
        num_rows = self._num_picture_rows(grid, num_tiles)
        ids = batch.ids([self.image_id] * (number * num_rows))[None]
        embeds = pixels.new_zeros(1, number * num_rows, self.width)
        rows = model.image_embed(ids, embeds, pixels, sizes, mask)
        return list(rows.view(number, num_rows, self.width))

    def hear(self, model: Any, batch: EncodeBatch) -> Iterable[Any]:  # noqa: ANN401 (of transformers)
        """Recordings of one length: the reference lets others hear the silence behind them. Of each the rows
        where it is alone, and those beside pictures."""
        from torch.nn.functional import gelu

        audio = model.audio_embed
        encoded = audio.encoder(batch.stacked, None)
        alone = audio.down_proj_for_speech(gelu(audio.up_proj_for_speech(encoded)))
        beside = audio.down_proj_for_vision_speech(gelu(audio.up_proj_for_vision_speech(encoded)))
        return list(zip(alone, beside, strict=True))
