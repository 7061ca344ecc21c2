"""Gemma 3n: pictures are one square, seen by a network of timm; recordings of up to half a minute are encoded
as a whole, and always have the same number of rows.

The tokens that end pictures and recordings have embeddings of the encoders' own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib.util import find_spec
from typing import Any, Final, cast

from ......protocols.engine.messages import Features, MediaItems
from ......protocols.errors import ModelLoadError
from ....prompts import IMAGES, AudioClips, MediaRules
from ...family import AudioEncoding, Checkpoint, EncodeBatch, MediaFamily, Place

_MAX_SECONDS: Final = 30.0
"""Of one recording: the processor cuts off what is behind."""
_SIDE: Final = 768
_NEEDED: Final = ("timm", "torchvision")


def open_family(checkpoint: Checkpoint) -> MediaFamily:
    """See `family.py`. Raises ModelLoadError where timm is not installed."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise ModelLoadError(
            f"{checkpoint.folder}: its vision tower is one of timm, which is not installed "
            f"({' and '.join(missing)} missing); install timm and torchvision, or give a folder of its "
            "language model alone (gemma3n_text)"
        )
    num_rows = {
        "image": checkpoint.size("vision_soft_tokens_per_image", 256),
        "audio": checkpoint.size("audio_soft_tokens_per_image", 188),
    }
    image, audio = checkpoint.token("image_token_id"), checkpoint.token("audio_token_id")
    num_bins = checkpoint.size("audio_config.input_feat_size", 128)
    size = checkpoint.processor.get("size") or {}
    height, width = size.get("height", _SIDE), size.get("width", _SIDE)
    return MediaFamily(
        purpose="chat · text, images, audio",
        media=MediaRules(
            pixels=".rules.squares",
            pixel_kinds=IMAGES,
            audio=AudioClips(".rules.universal_speech", lambda _: num_rows["audio"], _MAX_SECONDS),
        ),
        places={
            "image": _place(checkpoint, image, "boi_token_id", "eoi_token_id"),
            "audio": _place(checkpoint, audio, "boa_token_id", "eoa_token_id"),
        },
        num_rows=lambda features: num_rows["audio" if _is_audio(features) else "image"],
        encode=_see,
        row_width=checkpoint.size("text_config.hidden_size"),
        feature_shape=(3, height, width),
        embed=_embed,
        layer_inputs=_layer_inputs,
        audio=AudioEncoding(
            is_audio=_is_audio, encode=_hear(num_rows["audio"]), feature_shape=(None, num_bins)
        ),
    )


def _place(checkpoint: Checkpoint, token: str, start: str, end: str) -> Place:
    text = f"\n\n{checkpoint.token(start)}{token}{checkpoint.token(end)}\n\n"

    def text_of(media: MediaItems) -> str:
        return text * len(media.items)

    return Place(written=token, text_of=text_of, token=token)


def _is_audio(features: Features) -> bool:
    """Pictures have colours."""
    return len(features.shape) == 2


def _see(model: Any, batch: EncodeBatch) -> Iterable[Any]:  # noqa: ANN401 (of transformers)
    return cast(Iterable[Any], model.get_image_features(batch.stacked).pooler_output)


def _hear(num_rows: int) -> Callable[[Any, EncodeBatch], Iterable[Any]]:
    def encode(model: Any, batch: EncodeBatch) -> Iterable[Any]:  # noqa: ANN401 (of transformers)
        """Recordings of one length, of which no frame is hidden. Rows of padding are behind them."""
        features = batch.stacked
        num_items, num_frames, _ = features.shape
        found = model.get_audio_features(features, batch.below([0] * num_items, num_frames))
        padding = model.embed_audio(input_ids=batch.ids([model.vocab_size - 1])[None])
        rows = padding.repeat(num_items, num_rows, 1)
        heard = found.pooler_output[:, :num_rows]
        rows[:, : heard.shape[1]] = heard.where(~found.audio_mel_mask[:, :num_rows, None], padding)
        return list(rows)

    return encode


def _embed(model: Any, token_ids: Any) -> Any:  # noqa: ANN401
    """Tokens of the encoders lie behind those of text, first those of pictures."""
    found = model.get_input_embeddings()(token_ids)
    seen, heard = model.embed_vision, model.embed_audio
    for encoder, is_own in (
        (seen, (token_ids >= seen.vocab_offset) & (token_ids < heard.vocab_offset)),
        (heard, token_ids >= heard.vocab_offset),
    ):
        own = encoder(input_ids=token_ids.where(is_own, encoder.vocab_offset)[None])[0]
        found = own.to(found.dtype).where(is_own[:, None], found)
    return found


def _layer_inputs(decoder: Any, token_ids: Any) -> dict[str, Any]:  # noqa: ANN401
    """What each layer is given of a token."""
    return {"per_layer_inputs": decoder.get_per_layer_inputs(token_ids)}
