"""Checkpoints of `media_families.py` that take videos, and films for them as `generate` takes them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
import torch
from sensorium.media.vision.pixel_rule import open_rule
from sensorium.protocols.chat.content import ChatMessage, MediaPart, Part, TextPart
from sensorium.protocols.chat.request import Conversation
from sensorium.protocols.engine.messages import EncoderItem, MediaItems, MediaSpan
from support.exactness import Case, reference_case
from support.media_checkpoints import Checkpoint
from support.media_families import BY_NAME
from support.media_families.gemma import padded
from support.media_family import Family, make_media_folder, values
from support.vision_files import picture
from torch import Tensor


@dataclass(frozen=True)
class Film:
    """Pictures of one size, one each `interval_s`."""

    num_frames: int
    height: int = 24
    width: int = 32
    seed: int = 0
    interval_s: float = 0.5


Given = Mapping[str, Any]
VideoInputs = Callable[[Sequence[Sequence[EncoderItem]], Sequence[Film]], Given]


def _patches(videos: Sequence[Sequence[EncoderItem]], films: Sequence[Film]) -> Given:
    """Patches of all items, and the grid of each video."""
    grids = [(len(items), *(items[0].features.grid or (1, 1, 1))[1:]) for items in videos]
    return {
        "pixel_values_videos": torch.cat([values(item) for items in videos for item in items]),
        "video_grid_thw": torch.tensor(grids),
    }


def _timed_patches(videos: Sequence[Sequence[EncoderItem]], films: Sequence[Film]) -> Given:
    return {**_patches(videos, films), "second_per_grid_ts": [2 * film.interval_s for film in films]}


def _tiles(videos: Sequence[Sequence[EncoderItem]], films: Sequence[Film]) -> Given:
    """Frames of all, as if they were pictures."""
    return {"pixel_values": torch.stack([values(item) for items in videos for item in items])}


def _frames(videos: Sequence[Sequence[EncoderItem]], films: Sequence[Film]) -> Given:
    """Frames of films that have the same number of them."""
    return {"pixel_values_videos": torch.stack([torch.cat(list(map(values, items))) for items in videos])}


def _squares(videos: Sequence[Sequence[EncoderItem]], films: Sequence[Film]) -> Given:
    """Frames of all, as if they were the pictures of one prompt."""
    return {"pixel_values": torch.stack([values(item) for items in videos for item in items])[None]}


def _pooled(videos: Sequence[Sequence[EncoderItem]], films: Sequence[Film]) -> Given:
    """Patches of the frames of all, with zeros behind them, and where each lies."""
    frames = padded([item for items in videos for item in items])
    return {
        "pixel_values_videos": frames["pixel_values"],
        "video_position_ids": frames["image_position_ids"],
        "num_frames_per_video": torch.tensor(list(map(len, videos))),
    }


@dataclass(frozen=True)
class VideoFamily:
    """A family of `media_families.py`, and what it takes of videos."""

    name: str
    place: str
    """What the chat template writes for a video."""
    processor: Mapping[str, Any]
    inputs: VideoInputs
    tokens: tuple[str, ...] = ()
    """Further ones of the tokenizer."""
    tower: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the vision config."""
    mixes: bool = True
    """Its `generate` takes pictures and films in one prompt."""
    has_intro: bool = False
    """A text stands in front of films, which is found cached for the next one."""

    @property
    def family(self) -> Family:
        """With the further tokens and fields."""
        found = BY_NAME[self.name]
        tokens = (*found.tokens, *(each for each in self.tokens if each not in found.tokens))
        vision = {**found.config["vision_config"], **self.tower}
        return replace(found, tokens=tokens, config={**found.config, "vision_config": vision})


_QWEN = "<|vision_start|><|video_pad|><|vision_end|>"
_OF_FRAME = {"size": {"shortest_edge": 64 * 4, "longest_edge": 64 * 12}, "patch_size": 4}
_OF_ALL = {"size": {"shortest_edge": 64 * 4, "longest_edge": 64 * 96}, "patch_size": 4}
VIDEO_FAMILIES = (
    VideoFamily("qwen2_vl", _QWEN, _OF_FRAME, _patches),
    VideoFamily("qwen2_5_vl", _QWEN, _OF_FRAME, _timed_patches, tower={"tokens_per_second": 2}),
    VideoFamily("qwen3_vl_moe", _QWEN, _OF_ALL, _patches),
    VideoFamily("qwen3_5", _QWEN, _OF_ALL, _patches),
    VideoFamily("internvl", "<video>", {}, _tiles, tokens=("<video>",), mixes=False),
    VideoFamily("smolvlm", "<video>", {"size": {"longest_edge": 48}}, _squares, mixes=False, has_intro=True),
    VideoFamily("llava_onevision", "<video>", {"do_normalize": False}, _frames),
    VideoFamily("gemma4", "<|video|>", {"patch_size": 4, "max_soft_tokens": 9}, _pooled),
    VideoFamily("glm4v", "<|video|>", _OF_ALL, _patches, mixes=False),
)


def make_video_folder(path: Path, family: VideoFamily) -> Path:
    """Write a random checkpoint to `path`; return it."""
    make_media_folder(path, family.family)
    (path / "video_preprocessor_config.json").write_text(json.dumps(dict(family.processor)))
    image, video = family.family.place, family.place
    (path / "chat_template.jinja").write_text(
        "{% for message in messages %}<|im_start|>{{ message.role }}\n"
        "{% if message.content is string %}{{ message.content }}{% else %}{% for part in message.content %}"
        "{% if part.type in ('image', 'image_url') %}"
        + image
        + "{% elif part.type == 'video' %}"
        + video
        + ""
        "{% elif part.type == 'text' %}{{ part.text }}{% endif %}"
        "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    return path


Shown = str | tuple[int, int, int] | Film
"""Text, a picture (height, width, seed), or a film."""


class VideoCheckpoint(Checkpoint):
    """One, ours and the reference's."""

    def __init__(self, folder: Path, family: VideoFamily) -> None:
        super().__init__(folder, family.family)
        self._videos = family
        assert self.prompts.media.pixels is not None
        self._rule = open_rule(self.prompts.media.pixels, folder)

    def shown(self, content: Film | tuple[int, int, int]) -> MediaItems:
        """What becomes of a picture or a film."""
        if isinstance(content, tuple):
            return self._rule.prepare_picture(picture(*content))
        frames = [
            picture(content.height, content.width, content.seed + index)
            for index in range(content.num_frames)
        ]
        return self._rule.prepare_frames(frames, [index * content.interval_s for index in range(len(frames))])

    def film_case(self, *content: Shown, place_as_published: bool = False) -> Case:
        """A question of texts, pictures and films, with the reference's answer; `place_as_published`: text
        behind a film goes on after its largest position, as Qwen2-VL was published (`transformers` goes on
        after the frames' sides, however long the film is)."""
        media = [self.shown(each) for each in content if not isinstance(each, str)]
        prompt = self.prompts.chat(conversation(content), media)
        ids = torch.tensor([prompt.token_ids])
        by_hash = {item.content_hash: item for item in prompt.items}
        images = [by_hash[span.content_hash] for span in prompt.spans if span.kind == "image"]
        films = [each for each in content if isinstance(each, Film)]
        inputs: dict[str, Any] = {}
        if images:
            inputs |= self.family.inputs(images, ids)
        if films:
            inputs |= self._videos.inputs([each.items for each in media if each.kind == "video"], films)
        if inputs.keys() & {"video_grid_thw", "image_grid_thw", "video_position_ids"}:
            inputs["mm_token_type_ids"] = kinds_of(prompt.spans, len(prompt.token_ids))
        with pytest.MonkeyPatch.context() as patched:
            if place_as_published:
                patched.setattr(type(self.reference.model), "get_rope_index", _published_index)
            return reference_case(
                self.reference, prompt.token_ids, items=prompt.items, spans=prompt.spans, **inputs
            )


def _published_index(
    model: Any,  # noqa: ANN401 (of transformers)
    input_ids: Tensor,
    mm_token_type_ids: Tensor,
    image_grid_thw: Tensor | None = None,
    video_grid_thw: Tensor | None = None,
    second_per_grid_ts: Sequence[float] | None = None,
    **_: object,
) -> tuple[Tensor, Tensor]:
    """`get_rope_index` of one prompt by the published rule."""
    vision = model.config.vision_config
    given = {1: image_grid_thw, 2: video_grid_thw}
    grids = {kind: iter([] if each is None else each.tolist()) for kind, each in given.items()}
    seconds = iter(second_per_grid_ts or [])
    found: list[Tensor] = []
    for kind, group in groupby(mm_token_type_ids[0].tolist()):
        base = 0 if not found else int(torch.cat(found, 1).max()) + 1
        if kind == 0:
            found.append(base + torch.arange(len(list(group))).expand(3, -1))
            continue
        time, height, width = next(grids[kind])
        sides = (height // vision.spatial_merge_size, width // vision.spatial_merge_size)
        axes = torch.meshgrid(*map(torch.arange, (time, *sides)), indexing="ij")
        where = torch.stack(axes).flatten(1)
        if kind == 2 and second_per_grid_ts is not None:
            where[0] = (where[0] * (vision.tokens_per_second * next(seconds))).long()
        found.append(base + where)
    positions = torch.cat(found, 1)
    return positions[:, None], positions.max().view(1, 1) + 1 - input_ids.shape[1]


def kinds_of(spans: Sequence[MediaSpan], num_tokens: int) -> Tensor:
    """int [1, tokens]: 0 text, 1 of a picture, 2 of a film."""
    kinds = torch.zeros(1, num_tokens, dtype=torch.int32)
    for span in spans:
        kinds[0, span.start : span.start + span.num_tokens] = 2 if span.kind == "video" else 1
    return kinds


def conversation(content: Sequence[Shown]) -> Conversation:
    """One message of them."""
    parts: list[Part] = [
        TextPart(each)
        if isinstance(each, str)
        else MediaPart("video" if isinstance(each, Film) else "image", b"", param="messages")
        for each in content
    ]
    message = ChatMessage(role="user", content=tuple(parts), extra={}, param="messages[0]")
    return Conversation(messages=(message,), template_kwargs={})
