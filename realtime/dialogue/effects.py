"""What a session that answers asks its actor to do, beside `realtime/effects.py`; events are the answers."""

from __future__ import annotations

import msgspec

from ...protocols.chat.content import MediaPart
from ...protocols.chat.request import Conversation
from ...protocols.engine.messages import ItemId
from ...protocols.errors import SensoriumError
from ...protocols.realtime.responses import ResponseUsage
from .settings import AnswerSettings


class OpenMedia(msgspec.Struct, frozen=True):
    """Open the files of a new item. Answered by one `MediaOpened` or `MediaRefused` of the same number, soon
    or late; another item may have the id by then."""

    number: int
    item_id: ItemId
    media: tuple[MediaPart, ...]


class ForgetMedia(msgspec.Struct, frozen=True):
    """The item's files will never be asked for again."""

    item_id: ItemId


class ClipParts(msgspec.Struct, frozen=True):
    """What the part `param` of a conversation stands for: pairs of live video, and when each was and
    began, in seconds."""

    param: str
    pairs: tuple[str, ...]
    times_s: tuple[float, ...]
    starts_s: tuple[float, ...]


class Respond(msgspec.Struct, frozen=True):
    """Answer a conversation, whose media were opened before (those of a response's own input were not).

    Answered by `AnswerBegan`, any number of `AnswerCounted`, `AnswerGrew`, `CallBegan` and `CallGrew`, and
    one `AnswerEnded`; or at any time by one `AnswerFailed`, which is the end then. `is_out_of_band`: the next
    one of the session does not go on from it. A prompt of more than `max_tokens` fails, as one that is longer
    than the context.
    """

    response_id: str
    conversation: Conversation
    settings: AnswerSettings
    is_out_of_band: bool
    clips: tuple[ClipParts, ...] = ()
    max_tokens: int | None = None


class StopResponding(msgspec.Struct, frozen=True):
    """Nobody wants the answer any more. What is on its way of it is ignored."""

    response_id: str


class Warm(msgspec.Struct, frozen=True):
    """Nobody asks: have what was seen read, so that a question costs its own tokens. The newest wish counts;
    a `Respond` ends it, and goes on from there. Not answered."""

    conversation: Conversation
    clips: tuple[ClipParts, ...]


class ReadAhead(msgspec.Struct, frozen=True):
    """Nobody asks: have the conversation read as it will be without what is leaving by a plan. The newest
    wish counts. Answered by a `HasReadAhead`, unless something comes between."""

    plan: int
    conversation: Conversation
    clips: tuple[ClipParts, ...]


class OpenFrame(msgspec.Struct, frozen=True):
    """Open a frame of live video. Answered by a `FrameOpened` or a `FrameRefused`, in order."""

    frame_id: int
    data: bytes


class ForgetFrames(msgspec.Struct, frozen=True):
    """These frames will be in no pair."""

    frame_ids: tuple[int, ...]


class EncodePair(msgspec.Struct, frozen=True):
    """Make one of frames that were looked at. Answered by a `PairEncoded` or a `PairRefused`.

    `data` are their files, to be opened again if need be."""

    pair_id: str
    frame_ids: tuple[int, ...]
    data: tuple[bytes, ...]


class ForgetPairs(msgspec.Struct, frozen=True):
    """These pairs will never be asked about again."""

    pair_ids: tuple[str, ...]


DialogueEffect = (
    OpenMedia
    | ForgetMedia
    | Respond
    | StopResponding
    | Warm
    | ReadAhead
    | OpenFrame
    | ForgetFrames
    | EncodePair
    | ForgetPairs
)


class MediaOpened(msgspec.Struct, frozen=True):
    """The item's files are what they claim to be, and ready to be looked at: so many tokens of a prompt."""

    number: int
    item_id: ItemId
    num_tokens: int = 0


class MediaRefused(msgspec.Struct, frozen=True):
    """A file of the item cannot be opened."""

    number: int
    item_id: ItemId
    error: SensoriumError


class AnswerBegan(msgspec.Struct, frozen=True):
    """The model reads a prompt of so many tokens."""

    response_id: str
    usage: ResponseUsage


class AnswerCounted(msgspec.Struct, frozen=True):
    """What was read and written so far, ahead of the newest tokens' text, which thoughts have none of."""

    response_id: str
    usage: ResponseUsage


class AnswerGrew(msgspec.Struct, frozen=True):
    """More text, never empty."""

    response_id: str
    text: str


class CallBegan(msgspec.Struct, frozen=True):
    """The answer calls a tool."""

    response_id: str
    call_id: str
    name: str


class CallGrew(msgspec.Struct, frozen=True):
    """More of the arguments of the call that began last, never empty."""

    response_id: str
    arguments: str


class AnswerEnded(msgspec.Struct, frozen=True):
    """The answer is complete; `is_cut`: at the longest length."""

    response_id: str
    is_cut: bool


class AnswerFailed(msgspec.Struct, frozen=True):
    """There is no (more of the) answer."""

    response_id: str
    error: SensoriumError


class FrameOpened(msgspec.Struct, frozen=True):
    """What a frame is: its size in pixels, and what it shows, in 32 x 32 shades of grey."""

    frame_id: int
    width: int
    height: int
    thumbnail: bytes


class FrameRefused(msgspec.Struct, frozen=True):
    """A frame cannot be opened."""

    frame_id: int
    error: SensoriumError


class PairEncoded(msgspec.Struct, frozen=True):
    """A pair can be asked about; it takes so many tokens of a prompt."""

    pair_id: str
    num_tokens: int


class PairRefused(msgspec.Struct, frozen=True):
    """A pair cannot be made."""

    pair_id: str
    error: SensoriumError


class HasReadAhead(msgspec.Struct, frozen=True):
    """A question finds the conversation read without the pairs that are leaving by that plan."""

    plan: int


AnswerFact = AnswerBegan | AnswerCounted | AnswerGrew | CallBegan | CallGrew | AnswerEnded | AnswerFailed
MediaFact = MediaOpened | MediaRefused | FrameOpened | FrameRefused | PairEncoded | PairRefused
DialogueFact = AnswerFact | MediaFact | HasReadAhead
"""What the actor reports."""
