"""The items of a conversation in order, within its bounds.

An item may wait for something before it can be used: a turn for its transcript, a picture to be opened. Knows
no responses. What a client creates becomes one in `realtime/dialogue/editor.py`; how they become what a
model is asked is `realtime/dialogue/prompt.py`. A conversation may be long, and is looked through with every
pair of frames: what is asked of each item is cheap, and clips are found without looking at the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from ...protocols.chat.content import ChatMessage, MediaPart, Part, TextPart
from ...protocols.engine.messages import ItemId
from ...protocols.errors import BadRequestError
from ...protocols.realtime.conversation_events import ROOT
from ...protocols.realtime.items import (
    Call,
    CallOutput,
    ConversationItem,
    FunctionCallItem,
    FunctionCallOutputItem,
    InputAudioContent,
    InputContent,
    InputImageContent,
    InputTextContent,
    ItemRole,
    ItemStatus,
    Message,
    OutputTextContent,
    Picture,
)
from .config import DialogueConfig
from .parts import Clip, ItemPart, Sound

_FULL: Final = "conversation_full"


class Item:
    """A message, a call of a tool, or what that gave; live video, a call and what it gave are an item's only
    part. `waits`: something must come before it can be used."""

    def __init__(
        self,
        item_id: ItemId,
        role: ItemRole,
        parts: Sequence[ItemPart],
        *,
        status: ItemStatus = "completed",
        waits: bool = False,
    ) -> None:
        self.id = item_id
        self.role = role
        self.parts = parts
        self.status = status
        self.waits = waits
        self.is_hidden = False
        """The client has not been told of it yet."""
        self.is_leaving = False
        """It is forgotten as soon as what stays was read without it."""
        self.num_media_tokens = 0
        """Of its files, once they were opened."""
        self.opening = 0
        """The number of the wish that they be."""

    @property
    def parts(self) -> Sequence[ItemPart]:
        """What it consists of. Of it only a clip changes."""
        return self._parts

    @parts.setter
    def parts(self, parts: Sequence[ItemPart]) -> None:
        self._parts = tuple(parts)
        first = parts[0] if parts else None
        self.clip = first if isinstance(first, Clip) else None
        """The live video that it is."""
        self.call = first if isinstance(first, Call) else None
        """The call that it is."""
        self.output = first if isinstance(first, CallOutput) else None
        """What a call gave, if it is that."""
        self.num_chars = sum(map(_num_chars, parts))
        """Of its text, or of what is called and given."""
        self.num_file_bytes = sum(
            len(part.data or b"") for part in parts if isinstance(part, Picture | Sound)
        )
        """Of its pictures and sounds."""
        self._message: ChatMessage | None = None

    @property
    def num_media_bytes(self) -> int:
        """Of its files and frames."""
        return self.num_file_bytes if self.clip is None else self.clip.num_bytes

    @property
    def text(self) -> str:
        """All its text."""
        return "".join(each.text for each in self.parts if isinstance(each, TextPart))

    def media(self) -> tuple[MediaPart, ...]:
        """Its files, named by the item and their place in it."""
        return tuple(part for part in self._chat_parts() if isinstance(part, MediaPart))

    def message(self) -> ChatMessage | None:
        """As a chat has it; None if it holds nothing, or is about a call."""
        if self._message is not None and self.clip is None:
            return self._message
        content: str | tuple[Part, ...] = tuple(self._chat_parts())
        if not content:
            return None
        if self.role == "assistant":
            content = self.text
        self._message = ChatMessage(role=self.role, content=content, extra={}, param=self.id)
        return self._message

    def view(self) -> ConversationItem:
        """As clients see it."""
        match self.parts:
            case [Call(call_id, name, arguments)]:
                return FunctionCallItem(
                    id=self.id, status=self.status, call_id=call_id, name=name, arguments=arguments
                )
            case [CallOutput(call_id, output)]:
                return FunctionCallOutputItem(id=self.id, status=self.status, call_id=call_id, output=output)
        content: list[InputContent | OutputTextContent]
        match self.role:
            case "user":
                content = [shown for part in self.parts for shown in _views(part)]
            case "system":
                content = [InputTextContent(self.text)]
            case "assistant":
                content = [OutputTextContent(self.text)] if self.parts else []
        return Message(id=self.id, role=self.role, status=self.status, content=content)

    def _chat_parts(self) -> Iterator[Part]:
        for index, part in enumerate(self.parts):
            match part:
                case TextPart():
                    yield part
                case Picture(data, detail):
                    yield MediaPart("image", data, self._where(index), is_low=detail == "low")
                case Sound(bytes() as data):
                    yield MediaPart("audio", data, self._where(index))
                case Sound(None, str() as transcript) if transcript:
                    yield TextPart(transcript)
                case Clip(pairs) if any(pair.num_tokens for pair in pairs):
                    yield MediaPart("video", b"", self._where(index))

    def _where(self, index: int) -> str:
        return f"{self.id}.content[{index}]"


def _num_chars(part: ItemPart) -> int:
    match part:
        case TextPart(text) | Sound(None, str() as text):
            return len(text)
        case Call(_, name, arguments):
            return len(name) + len(arguments)
        case CallOutput(_, output):
            return len(output)
        case _:
            return 0


def _views(part: ItemPart) -> Iterator[InputContent]:
    match part:
        case Clip():
            yield InputImageContent(timestamps_ms=part.timestamps_ms)
        case TextPart(text):
            yield InputTextContent(text)
        case Picture(_, detail):
            yield InputImageContent(detail)
        case Sound(_, transcript):
            yield InputAudioContent(transcript)
        case _:
            pass


class Items:
    """All of a conversation. Refuses, as BadRequestError, what would pass a bound or names nothing."""

    def __init__(self, config: DialogueConfig) -> None:
        self._config = config
        self._items: list[Item] = []
        self._by_id: dict[str, Item] = {}
        self._clips: list[tuple[Item, Clip]] = []

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Item]:
        return iter(tuple(self._items))

    def __contains__(self, item: Item) -> bool:
        return self._by_id.get(item.id) is item

    @property
    def clips(self) -> Sequence[tuple[Item, Clip]]:
        """Live video, oldest first."""
        return tuple(self._clips)

    @property
    def num_media_bytes(self) -> int:
        """Of all files."""
        return sum([item.num_file_bytes for item in self._items]) + sum(
            clip.num_bytes for _, clip in self._clips
        )

    @property
    def last_id(self) -> ItemId | None:
        """The last item's."""
        return self._shown_before(len(self._items))

    def find(self, item_id: str) -> Item | None:
        """The item of that id."""
        return self._by_id.get(item_id)

    def find_call(self, call_id: str) -> Call | None:
        """The call of that id."""
        calls = (each.call for each in self._items)
        return next((call for call in calls if call is not None and call.call_id == call_id), None)

    def knows_call(self, call_id: str) -> bool:
        """There is a call of that id, or what one gave."""
        return self.find_call(call_id) is not None or self._has_output(call_id)

    def _has_output(self, call_id: str) -> bool:
        return any(each.output is not None and each.output.call_id == call_id for each in self._items)

    def get(self, item_id: str, param: str = "item_id") -> Item:
        """The item of that id. Raises BadRequestError."""
        if item_id not in self._by_id:
            raise BadRequestError(
                f"there is no item {item_id[:80]!r} in the conversation", code="item_not_found", param=param
            )
        return self._by_id[item_id]

    def check_room(self, *items: Item) -> None:
        """Raise BadRequestError if one of the items would be one too many, or too much."""
        config = self._config
        num_media_bytes, num_chars = self.num_media_bytes, sum([each.num_chars for each in self._items])
        for item in items:
            if item.num_chars > config.max_item_chars:
                raise BadRequestError(
                    f"an item has at most {config.max_item_chars} characters of text",
                    code="too_large",
                    param="item.content",
                )
            if len(self._items) >= config.max_items:
                raise _full(f"{config.max_items} items", "item")
            if item.num_media_bytes + num_media_bytes > config.max_media_bytes:
                raise _full(f"{config.max_media_bytes} bytes of pictures and sounds", "item.content")
            if item.num_chars + num_chars > config.max_chars:
                raise _full(f"{config.max_chars} characters", "item.content")

    def check_call(self, item: Item) -> None:
        """Raise BadRequestError for a call made twice, and for an output without its call or with another."""
        if item.call is not None and self.find_call(item.call.call_id) is not None:
            raise BadRequestError(
                f"there is a call {item.call.call_id[:80]!r} already",
                code="call_already_exists",
                param="item.call_id",
            )
        output = item.output
        if output is None:
            return
        if self._has_output(output.call_id):
            raise BadRequestError(
                f"the call {output.call_id[:80]!r} has its output already",
                code="call_already_answered",
                param="item.call_id",
            )
        if self.find_call(output.call_id) is None:
            raise BadRequestError(
                f"there is no call {output.call_id[:80]!r} in the conversation",
                code="call_not_found",
                param="item.call_id",
            )

    def check_place(self, item: Item, after: str | None) -> None:
        """Raise BadRequestError if there is an item of the same id, or none that it could come behind."""
        if item.id in self._by_id:
            raise already_exists(item.id)
        if after not in (None, ROOT):
            self.get(after, "previous_item_id")

    def insert(self, item: Item, after: str | None = None) -> ItemId | None:
        """Put an item behind another one (None: at the end); the id of the one before it. Raises as
        `check_place`."""
        self.check_place(item, after)
        place = len(self._items)
        if after == ROOT:
            place = 0
        elif after is not None:
            place = self._items.index(self._by_id[after]) + 1
        self._items.insert(place, item)
        self._by_id[item.id] = item
        if item.clip is not None:
            assert place == len(self._items) - 1, "what was seen last stands last"
            self._clips.append((item, item.clip))
        return self._shown_before(place)

    def before(self, item: Item) -> ItemId | None:
        """The id of the one before an item; None if it is the first, or not there."""
        return self._shown_before(self._items.index(item)) if item in self else None

    def _shown_before(self, place: int) -> ItemId | None:
        return next((each.id for each in reversed(self._items[:place]) if not each.is_hidden), None)

    def remove(self, item: Item) -> None:
        """Forget an item."""
        self._items.remove(item)
        del self._by_id[item.id]
        if item.clip is not None:
            self._clips.remove((item, item.clip))

    def check(self) -> None:
        """Assert that all ways of finding items agree."""
        assert self._by_id == {item.id: item for item in self._items}
        assert self._clips == [(item, item.clip) for item in self._items if item.clip is not None]
        # Answers and clips that are complete together, and turns, may be some too many.
        config, num_waiting = self._config, sum(item.waits for item in self._items)
        most = config.max_items + config.max_responses + config.video.max_waiting + 2 + num_waiting
        assert len(self._by_id) == len(self._items) <= most


def already_exists(item_id: str) -> BadRequestError:
    """For an id that is taken."""
    return BadRequestError(
        f"there is an item {item_id[:80]!r} already", code="item_already_exists", param="item.id"
    )


def _full(limit: str, param: str) -> BadRequestError:
    return BadRequestError(
        f"the conversation holds {limit}, which is the limit; delete items first", code=_FULL, param=param
    )
