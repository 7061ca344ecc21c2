"""What happens to the items of a conversation, and what the client is told of it.

Items come from the client (created, deleted, truncated), from the microphone (turns) and from the model
(answers). The client's are refused beyond a bound; for turns and answers, which cannot be, the oldest quarter
gives way. Read next: `realtime/dialogue/items.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...protocols.chat.content import TextPart
from ...protocols.engine.messages import ItemId
from ...protocols.errors import BadRequestError, wrong
from ...protocols.realtime.conversation_events import (
    ConversationItemCreate,
    ConversationItemDelete,
    ConversationItemDeleted,
    ConversationItemRetrieve,
    ConversationItemRetrieved,
    ConversationItemTruncate,
    ConversationItemTruncated,
    ConversationTruncated,
    DialogueClientEvent,
)
from ...protocols.realtime.events import ConversationItemAdded, ConversationItemDone
from ...protocols.realtime.items import AudioGiven, ItemReference, NewItem, PartGiven, Picture
from ...protocols.shared.audio_format import wave_file
from ...protocols.shared.container_format import ContainerFormat, InputFormat
from ..outgoing import Outgoing
from .config import DialogueConfig
from .effects import ForgetMedia, ForgetPairs, MediaOpened, MediaRefused, OpenMedia
from .items import Item, Items, already_exists
from .parts import ItemPart, Sound


class Editor:
    """The one who changes `items`."""

    def __init__(self, config: DialogueConfig, outgoing: Outgoing, new_id: Callable[[str], str]) -> None:
        self.items = Items(config)
        self._config = config
        self._outgoing = outgoing
        self._new_id = new_id
        self._num_opened = 0
        self._open_turn: str | None = None  # the id, as it was sent, of the turn that is being spoken
        self._turns: dict[str, Item] = {}  # those whose words are still to come

    def receive(
        self, event: DialogueClientEvent, audio_format: InputFormat, *, at_end: Callable[[], object]
    ) -> None:
        """What the client asked for; `at_end` is called before an item comes behind all others. Raises
        BadRequestError and changes nothing."""
        match event:
            case ConversationItemCreate():
                self._create(event, audio_format, at_end)
            case ConversationItemRetrieve():
                self._outgoing.send(ConversationItemRetrieved(item=self.items.get(event.item_id).view()))
            case ConversationItemDelete():
                self._delete(event.item_id)
            case ConversationItemTruncate():
                self._truncate(event)

    def given(self, given: Sequence[NewItem | ItemReference], audio_format: InputFormat) -> tuple[Item, ...]:
        """The items of a response's own input: they are opened when it is answered to. Raises
        BadRequestError."""
        # Media are known by their item's id, and a client may give one that is taken.
        name = self._new_id("item")
        found = [
            self.items.get(each.id, f"{each.param}.id")
            if isinstance(each, ItemReference)
            else _new_item(each, ItemId(f"{name}_{index}"), self._config, audio_format)
            for index, each in enumerate(given)
        ]
        new = [item for item in found if item not in self.items]
        self.items.check_room(*new)
        for item in new:
            item.waits = False
        return tuple(found)

    def follow_turn(self, item_id: str | None) -> None:
        """A turn is spoken that will have this id, or none is."""
        if item_id is None or item_id not in self._turns:
            self._open_turn = item_id

    def add_turn(self, item_id: str) -> Item:
        """A turn was committed, at the place that was made for it; its words come later."""
        self._open_turn = None
        item = self._turns[item_id] = Item(ItemId(item_id), "user", [Sound(None, None)], waits=True)
        self.items.insert(item)
        return item

    def transcribed(self, item_id: str, transcript: str) -> None:
        """The words of a turn."""
        item = self._turns.pop(item_id)
        item.parts = [Sound(None, transcript)]
        item.waits = False

    def add_answer(self, item: Item, context: Sequence[Item]) -> ItemId | None:
        """Put an answer behind the last item that it answers to (or else last): the item before it."""
        self.make_room()
        after = next((each.id for each in reversed(context) if each in self.items), None)
        return self.items.insert(item, after)

    def media_opened(self, fact: MediaOpened | MediaRefused) -> None:
        """What became of an item's files: it is gone where they cannot be opened."""
        item = self.items.find(fact.item_id)
        if item is None or item.opening != fact.number:
            return
        item.waits = False
        if isinstance(fact, MediaOpened):
            item.num_media_tokens = fact.num_tokens
        else:
            self._forget(item)
            self._outgoing.refuse(fact.error)
            self._outgoing.send(ConversationItemDeleted(item_id=item.id))

    def _create(
        self, event: ConversationItemCreate, audio_format: InputFormat, at_end: Callable[[], object]
    ) -> None:
        item_id = ItemId(event.item.id or self._new_id("item"))
        item = _new_item(event.item, item_id, self._config, audio_format)
        self.items.check_room(item)
        self.items.check_call(item)
        self.items.check_place(item, event.previous_item_id)
        if item_id == self._open_turn or item_id in self._turns:
            raise already_exists(item_id)
        if event.previous_item_id is None:
            at_end()
        previous = self.items.insert(item, event.previous_item_id)
        self._outgoing.send(ConversationItemAdded(item=item.view(), previous_item_id=previous))
        self._outgoing.send(ConversationItemDone(item=item.view(), previous_item_id=previous))
        if item.waits:
            self._num_opened += 1
            item.opening = self._num_opened
            self._outgoing.do(OpenMedia(item.opening, item.id, item.media()))

    def _delete(self, item_id: str) -> None:
        item = self.items.get(item_id)
        if item.status == "in_progress":
            how = "cancel its response first"
            if item.clip is not None:
                how = "commit or clear the image buffer, and wait for its `conversation.item.done`"
            raise BadRequestError(
                f"the item is still in progress: {how}",
                code="item_in_progress",
                param="item_id",
            )
        self._forget(item)
        self._outgoing.send(ConversationItemDeleted(item_id=item.id))

    def _truncate(self, event: ConversationItemTruncate) -> None:
        item = self.items.get(event.item_id)
        if item.role != "assistant" or item.call is not None or item.status == "in_progress":
            raise BadRequestError(
                "only an answer that is over can be truncated", code="item_not_truncatable", param="item_id"
            )
        if event.content_index:
            raise BadRequestError("`content_index`: an answer has one part", param="content_index")
        text_end = event.text_end or 0
        if text_end > len(item.text):
            raise wrong("text_end", f"is {text_end}; the answer has {len(item.text)} characters")
        if event.audio_end_ms and not isinstance(event.text_end, int):
            raise BadRequestError(
                "answers are text; send `text_end`, the number of characters that were received",
                code="unsupported_parameter",
                param="audio_end_ms",
            )
        item.parts = [TextPart(item.text[:text_end])] if text_end else []
        item.status = "incomplete"
        self._outgoing.send(
            ConversationItemTruncated(
                item_id=item.id, content_index=0, audio_end_ms=event.audio_end_ms, text_end=text_end
            )
        )

    def _forget(self, item: Item) -> None:
        self.items.remove(item)
        item.waits = False
        if item.clip is not None:
            self._outgoing.do(ForgetPairs(item.clip.emptied()))
        elif item.media():
            self._outgoing.do(ForgetMedia(item.id))

    def make_room(self) -> None:
        """An item comes that cannot be refused: where there are too many, the oldest quarter goes."""
        if len(self.items) >= self._config.max_items:
            old = [item for item in self.items if item.status != "in_progress" and not item.waits]
            leaving = [item for item in old if item.is_leaving]
            self.drop(leaving or old[: max(1, len(old) // 4)])

    def drop(self, items: Sequence[Item]) -> None:
        """Forget items for want of room."""
        for item in items:
            self._forget(item)
        if items:
            self._outgoing.send(ConversationTruncated(item_ids=[item.id for item in items]))


def _new_item(given: NewItem, item_id: ItemId, config: DialogueConfig, audio_format: InputFormat) -> Item:
    """What a client gave. Raises BadRequestError for media that the model does not take."""
    parts = [
        _part(part, f"{given.param}.content[{index}]", config, audio_format)
        for index, part in enumerate(given.parts)
    ]
    item = Item(item_id, given.role, parts)
    item.waits = bool(item.media())
    return item


def _part(part: PartGiven, where: str, config: DialogueConfig, audio_format: InputFormat) -> ItemPart:
    match part:
        case Picture() if "image" not in config.kinds:
            raise _unsupported(where, "an image", config)
        case AudioGiven(data, transcript):
            if "audio" in config.kinds:
                if isinstance(audio_format, ContainerFormat):
                    return Sound(data, transcript)
                if not data or len(data) % audio_format.bytes_per_frame:
                    raise wrong(
                        f"{where}.audio",
                        f"has {len(data)} bytes; allowed: whole samples of "
                        f"{audio_format.bytes_per_frame} bytes",
                        code="invalid_audio",
                    )
                return Sound(wave_file(data, audio_format), transcript)
            if transcript:
                return Sound(None, transcript)
            raise _unsupported(where, "audio without a transcript", config)
        case _:
            return part


def _unsupported(where: str, what: str, config: DialogueConfig) -> BadRequestError:
    takes = ", ".join(sorted(config.kinds | {"text"}))
    return wrong(where, f"is {what}; the model {config.model} takes {takes}", code="unsupported_media")
