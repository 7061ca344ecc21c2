"""Where images and videos lie in a prompt: placeholders of a rendered chat template → tokens and spans.

A template writes one placeholder for each image or video. What becomes of it is Qwen3VLProcessor's rule: an
image's is repeated for each of its tokens; a video's becomes, for each temporal patch, the patch's time as
text and a placeholder run of its own between vision markers. Torch-free; pixels are `media/`'s business.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import zip_longest
from pathlib import Path
from typing import Final

from ....protocols.chat.request import Conversation
from ....protocols.engine.messages import EncoderItem, MediaItems, MediaKind, MediaSpan
from ....protocols.errors import BadRequestError, ModelLoadError
from ....protocols.shared.json_file import read_json
from ...text.tokenizer import TextTokenizer
from ..prompts import EmbedsRule, MediaRules, Prompt, TextPrompts, unique

_ID_FIELDS: Final = ("vision_start_token_id", "vision_end_token_id", "image_token_id", "video_token_id")
_MERGE_FIELD: Final = "vision_config.spatial_merge_size"
_WIDTH_FIELD: Final = "vision_config.out_hidden_size"
_WIDTH: Final = 3584
_LEVELS: Final = (8, 16, 24)
"""Transformers' own defaults."""
_MAX_TIMES: Final = 4096
"""Whose ids are remembered: a talk about a video says the same ones again with each question."""


@dataclass(frozen=True, slots=True)
class VisionTokens:
    """Ids of a model's vision tokens, and patches on a side of what becomes one token. `width` is of a
    token's encoding, with the deepstack's."""

    start: int
    end: int
    image: int
    video: int
    merge_size: int
    width: int


def read_vision_tokens(folder: Path) -> VisionTokens:
    """From `config.json`. Raises ModelLoadError naming the field that is missing."""
    config = read_json(folder / "config.json")
    vision = config.get("vision_config")
    vision = vision if isinstance(vision, dict) else {"spatial_merge_size": None}
    found: list[int] = []
    for name, value in (
        *((name, config.get(name)) for name in _ID_FIELDS),
        (_MERGE_FIELD, vision.get("spatial_merge_size", 2)),
        (_WIDTH_FIELD, vision.get("out_hidden_size", _WIDTH)),
    ):
        if not isinstance(value, int):
            raise ModelLoadError(f"{folder / 'config.json'}: no {name}")
        found.append(value)
    start, end, image, video, merge, width = found
    levels = vision.get("deepstack_visual_indexes", _LEVELS)
    num_levels = 1 + (len(levels) if isinstance(levels, list | tuple) else 0)
    return VisionTokens(start, end, image, video, merge, width * num_levels)


def expand_vision(
    token_ids: Iterable[int],
    tokens: VisionTokens,
    encode: Callable[[str], Sequence[int]],
    media: Sequence[MediaItems] = (),
) -> Prompt:
    """Expand each placeholder of `token_ids` by the next image or video; `encode` gives ids of plain text.

    Equal to what the reference processor makes of the text if a control token stands in front of each video's
    placeholder, as templates write it. Raises BadRequestError (param `messages`) if placeholders and media
    do not match in number.
    """
    builder = _Builder(tokens, encode)
    for token_id, kind in ((tokens.image, "image"), (tokens.video, "video")):
        builder.left[token_id] = deque(each for each in media if each.kind == kind)
    given = {token_id: len(each) for token_id, each in builder.left.items()}
    places = dict.fromkeys(given, 0)
    ids, end = tuple(token_ids), 0
    for index, token_id in [(index, each) for index, each in enumerate(ids) if each in places]:
        builder.ids += ids[end:index]
        places[token_id] += 1
        builder.add_media(token_id)
        end = index + 1
    builder.ids += ids[end:]
    for token_id, word in ((tokens.image, "image"), (tokens.video, "video")):
        if places[token_id] != given[token_id]:
            raise BadRequestError(
                f"The prompt has {places[token_id]} places for {word}s, but {given[token_id]} {word}s were "
                "given.",
                param="messages",
            )
    return Prompt(tuple(builder.ids), unique(builder.items), tuple(builder.spans))


class VisionPrompts(TextPrompts):
    """Conversations with images and videos among their text (a `ChatPrompts`)."""

    def __init__(self, text: TextTokenizer, tokens: VisionTokens) -> None:
        rule = EmbedsRule(tokens.width, tokens.merge_size)
        super().__init__(text, MediaRules(pixels=".merged_patches", embeds=rule))
        self._tokens = tokens
        self._encode_time = lru_cache(_MAX_TIMES)(partial(text.encode, allow_special=False))

    def chat(self, conversation: Conversation, media: Sequence[MediaItems]) -> Prompt:
        """See `ChatPrompts`."""
        ids = self.template.encode(conversation)
        return expand_vision(ids, self._tokens, self._encode_time, media) if media else Prompt(ids)


class _Builder:
    def __init__(self, tokens: VisionTokens, encode: Callable[[str], Sequence[int]]) -> None:
        self.ids: list[int] = []
        self.spans: list[MediaSpan] = []
        self.items: list[EncoderItem] = []
        self.left: dict[int, deque[MediaItems]] = {}
        """By their placeholders: what has no place yet."""
        self._tokens = tokens
        self._encode = encode

    def add_media(self, placeholder: int) -> None:
        """The next of those that its placeholder stands for, if there is one: each item, in front of it its
        time if it has one."""
        if not self.left[placeholder]:
            return
        media = self.left[placeholder].popleft()
        for item, time_s in zip_longest(media.items, media.times_s):
            if time_s is None:
                self._place(item, placeholder, media.kind)
                continue
            self.ids += self._encode(f"<{time_s:.1f} seconds>")
            self.ids.append(self._tokens.start)
            self._place(item, placeholder, media.kind)
            self.ids.append(self._tokens.end)

    def _place(self, item: EncoderItem, placeholder: int, kind: MediaKind) -> None:
        grid = item.features.grid
        assert grid is not None, "an item without a grid is no picture"
        merge = self._tokens.merge_size
        merged = (grid[0], grid[1] // merge, grid[2] // merge)
        num_tokens = merged[0] * merged[1] * merged[2]
        self.spans.append(MediaSpan(item.content_hash, len(self.ids), num_tokens, merged, kind))
        self.items.append(item)
        self.ids += [placeholder] * num_tokens
