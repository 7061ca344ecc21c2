"""Events about the conversation of a session that answers: its items, from the client and from the server.

The session object is `protocols/realtime/conversation_session.py`, items are `protocols/realtime/items.py`,
responses `protocols/realtime/responses.py`. What happens is `realtime/dialogue/dialogue.py`.
"""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import UNSET, Meta, Struct, UnsetType

from .items import ClientItemId, ConversationItem, NewItem
from .lifecycle import NumberedEvent, SentEvent

# --- from the client -----------------------------------------------------------------------------------

ROOT: Final = "root"
"""`previous_item_id` of an item that is to be the first."""


class ConversationItemCreate(Struct, frozen=True):
    """Put an item behind `previous_item_id`: at the end for null, in front for "root"."""

    item: NewItem
    previous_item_id: str | None = None
    event_id: str | UnsetType | None = UNSET


class ConversationItemRetrieve(SentEvent, frozen=True, tag="conversation.item.retrieve"):
    """Show an item."""

    item_id: ClientItemId


class ConversationItemDelete(SentEvent, frozen=True, tag="conversation.item.delete"):
    """Forget an item."""

    item_id: ClientItemId


class ConversationItemTruncate(SentEvent, frozen=True, tag="conversation.item.truncate"):
    """Forget the part of an answer that the user has not had.

    `audio_end_ms` is OpenAI's, where answers are speech: 0 means that nothing was had. `text_end` (extension)
    is how many characters were.
    """

    item_id: ClientItemId
    content_index: Annotated[int, Meta(ge=0)]
    audio_end_ms: Annotated[int, Meta(ge=0)] = 0
    text_end: Annotated[int, Meta(ge=0)] | UnsetType = UNSET


# --- from the server -----------------------------------------------------------------------------------


class ConversationItemRetrieved(NumberedEvent, frozen=True, kw_only=True, tag="conversation.item.retrieved"):
    """An item as it is."""

    item: ConversationItem


class ConversationItemDeleted(NumberedEvent, frozen=True, kw_only=True, tag="conversation.item.deleted"):
    """An item is no part of the conversation any more, at the client's wish."""

    item_id: str


class ConversationItemTruncated(NumberedEvent, frozen=True, kw_only=True, tag="conversation.item.truncated"):
    """An answer was shortened to its first `text_end` characters (extension)."""

    item_id: str
    content_index: int
    audio_end_ms: int
    text_end: int


class ConversationTruncated(NumberedEvent, frozen=True, kw_only=True, tag="conversation.truncated"):
    """Extension: the oldest items were dropped, for the conversation had become too long."""

    item_ids: list[str]


DialogueClientEvent = (
    ConversationItemCreate | ConversationItemRetrieve | ConversationItemDelete | ConversationItemTruncate
)
DialogueEvent = (
    ConversationItemRetrieved | ConversationItemDeleted | ConversationItemTruncated | ConversationTruncated
)
