"""What a family of models that see or hear says of itself: how media become rows of its prompts.

A family is one file in `families/` with an `open_family(checkpoint)`, and a line in
`engine/models/media_families.py`. Torch-free: what is run on a device (`encode`) is handed tensors and
knows no more of them than the model's own functions do. Read `side.py` for what makes prompts with it,
`model.py` for what runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Protocol, cast

from ....protocols.engine.messages import EncoderItem, Features, MediaItems, MediaKind
from ....protocols.errors import ModelLoadError
from ....protocols.shared.json_file import read_json
from ...planning.positions import PositionRule, plain_positions
from ...text.tokenizer import TextTokenizer
from ..media_families import entry_of, own_config
from ..prompts import IMAGES, MediaRules

_FILES: Final = ("processor_config.json", "preprocessor_config.json")


class EncodeBatch(Protocol):
    """Items of one shape, as tensors on the model's device: floats in its number format."""

    @property
    def stacked(self) -> Any:  # noqa: ANN401 (a tensor)
        """Features of all items, [items, …]."""

    @property
    def joined(self) -> Any:  # noqa: ANN401
        """Features of all items, one behind the other in their first dimension."""

    @property
    def grid(self) -> tuple[int, int, int] | None:
        """What the first item's `grid` says; of all of them unless the family batches any."""

    @property
    def grids(self) -> Any:  # noqa: ANN401
        """int64 [items, 3]: what the items' `grid` says."""

    def ids(self, token_ids: Sequence[int]) -> Any:  # noqa: ANN401
        """int64 [ids]."""

    def below(self, lengths: Sequence[int], size: int) -> Any:  # noqa: ANN401
        """Bool [items, size]: whether a place is below the item's length."""

    @property
    def num_frames(self) -> Sequence[int]:
        """Frames of each item that are audio."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a medium of one kind lies in a prompt."""

    written: str
    """What the chat template writes for it."""
    text_of: Callable[[MediaItems], str]
    """What stands there instead: text with one `token` for each item, in order."""
    token: str
    """Becomes a placeholder for each row of its item. Several kinds may share one."""
    in_front: Callable[[int], str] | None = None
    """What stands in front of that, by how many media of the kind come before. None: nothing."""
    closing: EncoderItem | None = None
    """One more item behind those of each medium."""
    later: Callable[[Sequence[float]], Sequence[int]] | None = None
    """For items of a video that lie on the axes of one place: from when they begin, in seconds, to positions
    in time since the first. None: each begins where the text in front of it ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AudioEncoding:
    """How a family that sees as well encodes sound. Items of one shape come in one batch."""

    is_audio: Callable[[Features], bool]
    """Whether features are those of sound."""
    encode: Callable[[Any, EncodeBatch], Iterable[Any]]
    """See `MediaFamily.encode`."""
    feature_shape: tuple[int | None, ...]
    """Of an item's features; None: any size."""
    id_beside_pictures: int | None = None
    """The placeholder of sound in a prompt that has pictures, too: its rows are then the second of two
    tensors that `encode` gives for each item. None: sound is the same in every prompt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Padding:
    """Tokens that a model reads as padding: its placeholders."""

    token_ids: tuple[int, ...]
    pad_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptionRule:
    """How a family's models transcribe, as their cards have it."""

    languages: tuple[str, ...]
    """ISO codes."""
    instruction: str = ""
    """What a user writes behind the recording."""
    is_instruction_first: bool = False
    """It is written in front of the recording."""
    written: Callable[[str, str | None], str] | None = None
    """The whole prompt, of the recording's text and a language's code or None, where that is not one of the
    chat template."""


def deepstack(is_media: Any, levels: Sequence[Any]) -> Mapping[str, Any]:  # noqa: ANN401 (a tensor)
    """A `MediaFamily.level_inputs`: by the names that decoders after Qwen3-VL have for them."""
    return {"visual_pos_masks": is_media, "deepstack_visual_embeds": levels}


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaFamily:
    """How one checkpoint's media become rows of its prompts."""

    purpose: str
    media: MediaRules
    places: Mapping[MediaKind, Place]
    num_rows: Callable[[Features], int]
    """Of an item's encoding, by the shape and grid of its features."""
    encode: Callable[[Any, EncodeBatch], Iterable[Any]]
    """From a model of `transformers` (without its head) and items to a tensor [rows, width] for each, or
    to several: those behind the first are added behind the decoder's first layers."""
    row_width: int
    """Numbers of each row of an item's encoding, all levels together."""
    feature_shape: tuple[int | None, ...]
    """Of an item's features; None: any size."""
    positions: PositionRule = plain_positions
    rotary_axes: int = 1
    merge_size: int | None = None
    """Features are patches of a grid, of which squares of so many on a side become a row; None: they are
    not."""
    row_tokens: Callable[[Features], Sequence[str]] | None = None
    """Which token each row stands for, where they differ."""
    batches_any_grid: bool = False
    """Items of different grids go into one batch."""
    media_mask: str | None = None
    """By which name the decoder is given which rows of a step are of media; None: it does not ask."""
    sees_whole_items: bool = False
    """Rows of an item attend to all of it, and so are fed in one step."""
    sees_whole_in_windows: bool = False
    """They do so only in layers with a window."""
    sees_whole_prompts: bool = False
    """Tokens of a prompt attend to all of it, and so it is fed in one step; those of an answer to what
    precedes them."""
    padding: Padding | None = None
    """Which tokens the decoder reads as padding; None: none."""
    level_inputs: Callable[[Any, Sequence[Any]], Mapping[str, Any]] = deepstack
    """From which rows of a step are of media, bool [1, rows], and the levels of those rows behind the first,
    each [media rows, width], to what the decoder is called with."""
    embed: Callable[[Any, Any], Any] | None = None
    """From a model of `transformers` (without its head) and the tokens of a step, [rows], to their embeddings
    [rows, width], where they are not the decoder's own. It goes with `layer_inputs`."""
    layer_inputs: Callable[[Any, Any], Mapping[str, Any]] | None = None
    """From the decoder and the tokens of a step with media, [1, rows], to what else it is called with: what
    it would make of them itself if it were not given embeddings. None: nothing."""
    template: str | None = None
    """The chat template of checkpoints without one."""
    transcription: TranscriptionRule | None = None
    """How it transcribes, if it was made for that."""
    audio: AudioEncoding | None = None
    """How sound beside pictures is encoded; the fields above are about pictures then. None: there is one kind
    of features."""


def one_square(checkpoint: Checkpoint, num_rows: int, pixels: str = ".rules.squares") -> MediaFamily:
    """Pictures become squares of the tower's size, of `num_rows` rows each, by the module `pixels` of
    `media/vision/`. Raises ModelLoadError."""
    token = checkpoint.token("image_token_id", "image_token_index")
    return MediaFamily(
        purpose="chat · text, images",
        media=MediaRules(pixels=pixels, pixel_kinds=IMAGES),
        places={"image": Place(written=token, text_of=one_each(token), token=token)},
        num_rows=lambda _: num_rows,
        encode=pooled,
        row_width=checkpoint.size("text_config.hidden_size"),
        feature_shape=(3, *checkpoint.sides("vision_config.image_size")),
    )


def is_of_shape(features: Features, wanted: Sequence[int | None]) -> bool:
    """Whether features are of a shape, in which None is any size."""
    return len(features.shape) == len(wanted) and all(
        size > 0 and least in (None, size) for size, least in zip(features.shape, wanted, strict=True)
    )


def one_each(token: str) -> Callable[[MediaItems], str]:
    """A `Place.text_of`: the items' tokens, and nothing around them."""
    return lambda media: token * len(media.items)


def pooled(model: Any, batch: EncodeBatch) -> Iterable[Any]:  # noqa: ANN401 (of transformers)
    """A `MediaFamily.encode`: pictures of one size, each a row of a batch."""
    return cast(Iterable[Any], model.get_image_features(batch.stacked).pooler_output)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A folder's JSON files, and its tokenizer. Raises ModelLoadError naming the file and the field."""

    folder: Path
    config: dict[str, Any]
    text: TextTokenizer
    processor: dict[str, Any]
    """How its media are prepared: fields of the image processor or feature extractor, and of what joins
    them."""

    @classmethod
    def of(cls, folder: Path, text: TextTokenizer) -> Checkpoint:
        """Read what is there of the files."""
        processor: dict[str, Any] = {}
        for name in reversed(_FILES):
            path = folder / name
            processor |= read_json(path) if path.is_file() else {}
        path = folder / "config.json"
        try:
            return cls(folder, own_config(read_json(path)), text, processor)
        except ValueError as error:
            raise ModelLoadError(f"{path}: {error}") from error

    def size(self, path: str, default: int | None = None) -> int:
        """A positive number of `config.json`, by its path: `vision_config.patch_size`."""
        value = self.value(path, default)
        if type(value) is not int or value < 1:
            raise self.fault(path, value, "a positive number")
        return value

    def value(self, path: str, default: Any = None) -> Any:  # noqa: ANN401 (of JSON)
        """A field of `config.json`, by its path."""
        found: Any = self.config
        for name in path.split("."):
            found = found.get(name) if isinstance(found, dict) else None
        return default if found is None else found

    def fault(self, path: str, value: object, wanted: str) -> ModelLoadError:
        """What to raise for a field that is not what is wanted."""
        return ModelLoadError(f"{self.folder / 'config.json'}: {path} is {value!r}; allowed: {wanted}")

    def sides(self, path: str) -> tuple[int, int]:
        """Height and width, two positive numbers or one for both."""
        value = self.value(path)
        found = value if isinstance(value, list | tuple) else (value, value)
        if len(found) != 2 or not all(type(each) is int and each > 0 for each in found):
            raise self.fault(path, value, "a positive number, or two")
        return found[0], found[1]

    def pairs(self, path: str) -> tuple[tuple[int, int], ...]:
        """Pairs of positive numbers, at least one."""
        value = self.value(path)
        if not isinstance(value, list) or not value or not all(_is_pair(each) for each in value):
            raise self.fault(path, value, "a list of pairs of positive numbers")
        return tuple((each[0], each[1]) for each in value)

    def token(self, *paths: str, default: int | None = None) -> str:
        """The token whose id the first of these fields that is there has."""
        token_id = next((found for path in paths if (found := self.value(path)) is not None), default)
        name = None
        if type(token_id) is int:
            name = self.text.backend.id_to_token(token_id)
        if name is None:
            raise self.fault(" or ".join(paths), token_id, "the id of one of the tokenizer's tokens")
        return self.known(name)

    def has_control(self, name: str) -> bool:
        """Whether its tokenizer has this control token."""
        token_id = self.text.id_of(name)
        return token_id is not None and self.text.is_control(token_id)

    def known(self, name: str) -> str:
        """A control token: text of clients can never become one."""
        if not self.has_control(name):
            raise ModelLoadError(
                f"{self.folder}: its tokenizer has no control token {name!r}, by which prompts have media"
            )
        return name


class _Family(Protocol):
    def open_family(self, checkpoint: Checkpoint) -> MediaFamily: ...


def open_family(checkpoint: Checkpoint) -> MediaFamily:
    """What a checkpoint's family says of it. Raises ModelLoadError naming the file and the field at fault."""
    entry = entry_of(checkpoint.config)
    assert entry is not None, "that is how it came here"
    module = import_module(f".families{entry.module}", __package__)
    return cast(_Family, module).open_family(checkpoint)


def _is_pair(value: object) -> bool:
    return isinstance(value, list) and [type(each) is int and each > 0 for each in value] == [True] * 2
