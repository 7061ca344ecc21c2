"""Placeholders become the token ids of the reference processor, and spans say where each item lies."""

from __future__ import annotations

import json
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sensorium.engine.models.qwen3_vl.text import VisionTokens, expand_vision, read_vision_tokens
from sensorium.engine.text.tokenizer import TextTokenizer
from sensorium.protocols.engine.messages import ContentHash, EncoderItem, Features, MediaItems
from sensorium.protocols.errors import BadRequestError, ModelLoadError
from support.text_folder import SENTENCES, byte_level_tokenizer
from support.vl_folder import (
    IMAGE_PAD,
    IMAGE_PLACE,
    VIDEO_PAD,
    VIDEO_PLACE,
    VISION_END,
    VISION_START,
    VISION_TOKENS,
)
from transformers import PreTrainedTokenizerFast
from transformers.models.qwen3_vl.processing_qwen3_vl import Qwen3VLProcessor

BACKEND = byte_level_tokenizer(320, VISION_TOKENS)
TEXT = TextTokenizer(byte_level_tokenizer(320, VISION_TOKENS))
MERGE = 2


def id_of(name: str) -> int:
    found = TEXT.id_of(name)
    assert found is not None
    return found


TOKENS = VisionTokens(id_of(VISION_START), id_of(VISION_END), id_of(IMAGE_PAD), id_of(VIDEO_PAD), MERGE, 32)


def plain(text: str) -> tuple[int, ...]:
    return TEXT.encode(text, allow_special=False)


def item(height: int, width: int, name: str) -> EncoderItem:
    """An item of so many patches; its pixels are of no interest here."""
    return EncoderItem(
        ContentHash(name), Features((height * width, 0), b"", (1, height, width)), height * width // MERGE**2
    )


def reference_processor() -> Any:  # noqa: ANN401 (an untyped class's)
    """As much of Qwen3VLProcessor as can be built without torchvision."""
    processor = cast(Any, Qwen3VLProcessor.__new__(Qwen3VLProcessor))
    processor.image_token, processor.video_token = IMAGE_PAD, VIDEO_PAD
    processor.vision_start_token, processor.vision_end_token = VISION_START, VISION_END
    processor.image_processor = SimpleNamespace(merge_size=MERGE)
    processor.video_processor = SimpleNamespace(merge_size=MERGE, temporal_patch_size=2)
    return processor


def reference_ids(
    text: str, images: list[tuple[int, int]], videos: list[tuple[int, int, list[int], float]]
) -> list[int]:
    """The processor's ids with images (height, width) and videos (height, width, frames looked at, fps)."""
    processor = reference_processor()
    image_inputs = {"image_grid_thw": [np.array((1, *size)) for size in images]}
    video_inputs = {
        "video_grid_thw": [np.array(((len(frames) + 1) // 2, h, w)) for h, w, frames, _ in videos],
        "video_metadata": [SimpleNamespace(fps=fps, frames_indices=list(f)) for _, _, f, fps in videos],
    }
    (expanded,), _ = processor.get_text_with_replacements(
        [text],
        [processor.replace_image_token(image_inputs, index) for index in range(len(images))],
        [processor.replace_video_token(video_inputs, index) for index in range(len(videos))],
    )
    ids: list[int] = PreTrainedTokenizerFast(tokenizer_object=BACKEND)(expanded)["input_ids"]
    return ids


def still(each: EncoderItem) -> MediaItems:
    return MediaItems("image", (each,))


sides = st.integers(1, 6).map(lambda side: side * MERGE)


@given(
    st.lists(st.sampled_from("iv"), max_size=4),
    st.randoms(use_true_random=False),
    st.data(),
)
def test_ids_are_the_reference(places: list[str], rng: random.Random, data: st.DataObject) -> None:
    sizes: list[tuple[int, int]] = []
    clips: list[tuple[int, int, list[int], float]] = []
    text = rng.choice(SENTENCES)
    for place in places:
        height, width = data.draw(sides), data.draw(sides)
        if place == "i":
            sizes.append((height, width))
            text += IMAGE_PLACE
        else:
            frames = sorted(data.draw(st.sets(st.integers(0, 3000), min_size=1, max_size=7)))
            clips.append((height, width, frames, data.draw(st.floats(0.5, 120))))
            text += VIDEO_PLACE
        text += rng.choice(("", "\n", " and ", rng.choice(SENTENCES)))
    images = [still(item(*size, f"image {index}")) for index, size in enumerate(sizes)]
    videos = [
        MediaItems(
            "video",
            tuple(item(height, width, f"video {index} {part}") for part in range((len(frames) + 1) // 2)),
            tuple(Qwen3VLProcessor._calculate_timestamps(None, list(frames), fps)),
        )
        for index, (height, width, frames, fps) in enumerate(clips)
    ]
    prompt = expand_vision(TEXT.encode(text, allow_special=True), TOKENS, plain, [*images, *videos])
    assert list(prompt.token_ids) == reference_ids(text, sizes, clips)
    pads = [index for index, token in enumerate(prompt.token_ids) if token in {TOKENS.image, TOKENS.video}]
    covered = [p for span in prompt.spans for p in range(span.start, span.start + span.num_tokens)]
    assert covered == pads
    assert [span.content_hash for span in prompt.spans] == [each.content_hash for each in prompt.items]
    for span, each in zip(prompt.spans, prompt.items, strict=True):
        assert span.num_tokens == each.num_tokens
        assert span.grid is not None
        assert span.grid[0] * span.grid[1] * span.grid[2] == span.num_tokens
        assert prompt.token_ids[span.start - 1] == TOKENS.start
        assert prompt.token_ids[span.start + span.num_tokens] == TOKENS.end


def test_times_are_written_with_one_digit() -> None:
    video = MediaItems("video", (item(2, 2, "a"), item(2, 2, "b")), (0.25, 12.0))
    ids = TEXT.encode(VIDEO_PLACE, allow_special=True)
    prompt = expand_vision(ids, TOKENS, plain, [video])
    text = BACKEND.decode(list(prompt.token_ids), skip_special_tokens=False)
    one = f"{VISION_START}{VIDEO_PAD}{VISION_END}"
    assert text == f"{VISION_START}<0.2 seconds>{one}<12.0 seconds>{one}{VISION_END}"


def test_an_image_shown_twice_has_two_spans() -> None:
    image = still(item(4, 2, "same"))
    ids = TEXT.encode(IMAGE_PLACE * 2, allow_special=True)
    prompt = expand_vision(ids, TOKENS, plain, [image, image])
    assert [(span.start, span.num_tokens, span.grid) for span in prompt.spans] == [
        (1, 2, (1, 2, 1)),
        (5, 2, (1, 2, 1)),
    ]


def test_without_media_nothing_changes() -> None:
    ids = TEXT.encode("Hello there", allow_special=True)
    assert expand_vision(ids, TOKENS, plain).token_ids == ids


@pytest.mark.parametrize(
    ("text", "num_images", "num_videos", "message"),
    [
        (IMAGE_PLACE, 0, 0, "1 places for images, but 0 images"),
        ("", 1, 0, "0 places for images, but 1 images"),
        (IMAGE_PLACE * 3, 2, 0, "3 places for images, but 2 images"),
        (VIDEO_PLACE, 1, 0, "0 places for images, but 1 images"),
        (VIDEO_PLACE, 0, 2, "1 places for videos, but 2 videos"),
    ],
)
def test_places_and_media_must_match(text: str, num_images: int, num_videos: int, message: str) -> None:
    images = [still(item(2, 2, "i"))] * num_images
    videos = [MediaItems("video", (item(2, 2, "v"),), (0.0,))] * num_videos
    with pytest.raises(BadRequestError, match=message):
        expand_vision(TEXT.encode(text, allow_special=True), TOKENS, plain, [*images, *videos])


def test_tokens_of_a_config(tmp_path: Path) -> None:
    config: dict[str, Any] = {
        "vision_start_token_id": 1,
        "vision_end_token_id": 2,
        "image_token_id": 3,
        "video_token_id": 4,
        "vision_config": {"spatial_merge_size": 2},
    }
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    assert read_vision_tokens(tmp_path) == VisionTokens(1, 2, 3, 4, 2, 3584 * 4)
    path.write_text(json.dumps(config | {"image_token_id": "<|image_pad|>"}))
    with pytest.raises(ModelLoadError, match=r"config\.json: no image_token_id"):
        read_vision_tokens(tmp_path)
    path.write_text(json.dumps(config | {"vision_config": None}))
    with pytest.raises(ModelLoadError, match=r"no vision_config\.spatial_merge_size"):
        read_vision_tokens(tmp_path)
