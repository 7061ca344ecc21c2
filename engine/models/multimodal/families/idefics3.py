"""Idefics 3 and SmolVLM: a picture is rows of squares, each behind its place, and the whole of it. SmolVLM
takes videos: each frame is one square behind its time."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any, Final

from .....protocols.engine.messages import MediaItems, MediaKind
from ...prompts import MediaRules
from ..family import Checkpoint, EncodeBatch, MediaFamily, Place

_VIDEO: Final = "<video>"
_SMALL: Final = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven"),
    *("twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
_TENS: Final = ("", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")


def open_family(checkpoint: Checkpoint) -> MediaFamily:
    """See `family.py`."""
    token, around = checkpoint.token("image_token_id"), checkpoint.known("<fake_token_around_image>")
    whole = checkpoint.known("<global-img>")
    side = checkpoint.size("vision_config.image_size")
    rows = (side // checkpoint.size("vision_config.patch_size")) ** 2 // checkpoint.size(
        "scale_factor", 2
    ) ** 2

    def text_of(media: MediaItems) -> str:
        text, row = "", 0
        for item in media.items:
            assert item.features.grid is not None, "that is how the rule makes them"
            _, new_row, column = item.features.grid
            text += "\n" if row and new_row != row else ""
            row = new_row
            text += f"{around}<row_{row}_col_{column}>{token}" if row else ""
        return f"{text}\n{around}{whole}{token}{around}" if text else f"{around}{whole}{token}{around}"

    def film_of(media: MediaItems) -> str:
        text = f"You are provided the following series of {in_words(len(media.items))} frames from a "
        length_s = media.starts_s[-1] if media.duration_s is None else media.duration_s
        text += f"{timedelta(seconds=int(length_s))} [H:MM:SS] video.\n"
        for start_s in media.starts_s:
            minutes, seconds = divmod(int(start_s), 60)
            text += f"\nFrame from {minutes:02d}:{seconds:02d}:{around}{whole}{token}{around}"
        return text + "\n\n"

    places: dict[MediaKind, Place] = {"image": Place(written=token, text_of=text_of, token=token)}
    if checkpoint.value("model_type") == "smolvlm":
        places["video"] = Place(written=_VIDEO, text_of=film_of, token=token)
    return MediaFamily(
        purpose="chat · text, images" + (", video" if "video" in places else ""),
        media=MediaRules(pixels=".rules.split_squares", pixel_kinds=frozenset(places), is_live=False),
        places=places,
        num_rows=lambda _: rows,
        encode=encode,
        row_width=checkpoint.size("text_config.hidden_size"),
        feature_shape=(3, side, side),
    )


def encode(model: Any, batch: EncodeBatch) -> Iterable[Any]:  # noqa: ANN401 (of transformers)
    """Each square as the one picture of a prompt."""
    return list(model.get_image_features(batch.stacked[:, None]).pooler_output)


def in_words(number: int) -> str:
    """A number below a million, in English words as `num2words` has them."""
    if number < len(_SMALL):
        return _SMALL[number]
    if number < 100:
        tens, ones = divmod(number, 10)
        return _TENS[tens] + (f"-{_SMALL[ones]}" if ones else "")
    unit, name, between = (100, "hundred", " and ") if number < 1000 else (1000, "thousand", ", ")
    many, rest = divmod(number, unit)
    between = " and " if rest < 100 else between
    return f"{in_words(many)} {name}" + (f"{between}{in_words(rest)}" if rest else "")
