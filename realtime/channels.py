"""The channels of a session's sound: the turns and the items of each, on one timeline.

A session hears one channel (what comes in several is mixed), or several apart, as both sides of a telephone
call: then each has turns, items and transcripts of its own, and all that is told of one says which, counted
from 0. Commits, flushes and clears are for all of them. Used by `realtime/session.py`; what one
channel does is in `realtime/turns/listener.py` and `realtime/conversation.py`.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ..protocols.errors import BadRequestError, SensoriumError
from ..protocols.realtime.events import InputAudioBufferFlushed, ServerEvent
from ..protocols.transcription.transcript import TranscriptionOptions
from .config import SessionConfig
from .conversation import Conversation
from .effects import Effect
from .events import (
    AudioAppended,
    CutFound,
    HypothesisFailed,
    HypothesisReady,
    SegmentsReady,
    SpeechScored,
    StreamFailed,
)
from .outgoing import EventSink, Outgoing
from .settings import SessionSettings
from .transcript.release import policy_maker
from .turns.captions import CaptionListener
from .turns.listener import Listener
from .turns.partial_interval import Pace

ChannelEvent = (
    AudioAppended
    | SpeechScored
    | CutFound
    | HypothesisReady
    | HypothesisFailed
    | SegmentsReady
    | StreamFailed
)


class _OfChannel(EventSink):
    """Says of everything which channel it is of, where there are several."""

    def __init__(self, outgoing: Outgoing, channel: int) -> None:
        self._outgoing = outgoing
        self._channel = channel

    def send(self, event: ServerEvent) -> None:
        if hasattr(event, "channel"):
            event = msgspec.structs.replace(event, channel=self._channel)
        self._outgoing.send(event)

    def do(self, effect: Effect) -> None:
        if hasattr(effect, "channel"):
            effect = msgspec.structs.replace(effect, channel=self._channel)
        self._outgoing.do(effect)


class _Channel:
    """One of them."""

    def __init__(
        self, config: SessionConfig, settings: SessionSettings, sink: EventSink, new_id: Callable[[str], str]
    ) -> None:
        self.sink = sink
        self.conversation = Conversation(
            sink,
            new_id,
            make_policy=policy_maker(settings.delay or config.delay, settings.delays),
            max_finals_in_flight=config.max_finals_in_flight,
        )
        self.conversation.options = settings.options
        self.listener: Listener | CaptionListener
        if settings.segmentation is None:
            self.listener = Listener(config, settings, self.conversation, sink)
        else:
            self.listener = CaptionListener(config, settings, self.conversation, sink, new_id)

    def learn(self, event: ChannelEvent, *, now: float) -> None:
        """Take a fact about the channel's sound, or an answer, maybe to another channel's question."""
        listener = self.listener
        match event:
            case AudioAppended():
                listener.append(event.num_samples, now=now)
            case SpeechScored():
                listener.score(event.end_sample, event.probability)
            case CutFound() if isinstance(listener, Listener):
                listener.cut(event.sample, now=now)
            case HypothesisReady():
                if not event.final:
                    listener.pace.answered(event.item_id, now=now)
                self.conversation.on_ready(event)
            case HypothesisFailed():
                self.conversation.on_failed(event)
            case SegmentsReady() if isinstance(listener, CaptionListener):
                listener.take(event)
            case StreamFailed() if isinstance(listener, CaptionListener):
                listener.fail(event)
            case _:
                pass


class Channels:
    """All channels of a session, at least one."""

    def __init__(
        self,
        config: SessionConfig,
        settings: SessionSettings,
        outgoing: Outgoing,
        new_id: Callable[[str], str],
    ) -> None:
        many = settings.num_channels > 1
        sinks = [_OfChannel(outgoing, n) if many else outgoing for n in range(settings.num_channels)]
        self._channels = [_Channel(config, settings, sink, new_id) for sink in sinks]

    def __len__(self) -> int:
        return len(self._channels)

    @property
    def first(self) -> Conversation:
        """Items and counters of the first channel, which may be the only one."""
        return self._channels[0].conversation

    @property
    def backlog(self) -> int:
        """Of the channel that is furthest behind, see `Listener.backlog`."""
        return max(channel.listener.backlog for channel in self._channels)

    @property
    def unended(self) -> int:
        """Of the longest turn, see `Listener.unended`."""
        return max(channel.listener.unended for channel in self._channels)

    @property
    def is_in_turn(self) -> bool:
        """Whether a turn is open."""
        return any(channel.conversation.open is not None for channel in self._channels)

    @property
    def num_tracked(self) -> int:
        """Items with any state."""
        return sum(channel.conversation.num_tracked for channel in self._channels)

    @property
    def num_withheld(self) -> int:
        """See `Conversation.num_withheld`."""
        return sum(channel.conversation.num_withheld for channel in self._channels)

    @property
    def pace(self) -> Pace:
        """The slowest, to look at."""
        return max((channel.listener.pace for channel in self._channels), key=lambda pace: pace.factor)

    @property
    def deadline(self) -> float:
        """The earliest `Listener.deadline`."""
        return min(channel.listener.deadline for channel in self._channels)

    def has_room(self, num_samples: int) -> bool:
        """Whether every turn may grow by `num_samples`."""
        return all(channel.listener.has_room(num_samples) for channel in self._channels)

    def learn(self, event: ChannelEvent, *, now: float) -> None:
        """Take a fact about sound, or an answer: of the channel whose item it is."""
        match event:
            case AudioAppended() | SpeechScored() | CutFound():
                self._channels[event.channel].learn(event, now=now)
            case _:
                for channel in self._channels:
                    channel.learn(event, now=now)

    def commit(self) -> None:
        """End every turn. Raises BadRequestError, changing nothing, where no channel has one that can end."""
        refusals: list[BadRequestError] = []
        for channel in self._channels:
            try:
                channel.listener.commit()
            except BadRequestError as error:
                refusals.append(error)
        if len(refusals) == len(self._channels):
            raise refusals[0]

    def flush(self) -> None:
        """End every turn there is; each channel is told of."""
        for channel in self._channels:
            channel.sink.send(InputAudioBufferFlushed(item_id=channel.listener.flush()))

    def clear(self) -> None:
        """Drop what was not committed."""
        for channel in self._channels:
            channel.listener.clear()

    def finish(self) -> None:
        """Commit the turns in progress; no more audio will come."""
        for channel in self._channels:
            channel.listener.finish()

    def configure(self, settings: SessionSettings) -> None:
        """Use other settings, for as many channels."""
        for channel in self._channels:
            channel.listener.configure(settings)

    def transcribe_with(self, options: TranscriptionOptions) -> None:
        """Items first asked about later are transcribed so."""
        for channel in self._channels:
            channel.conversation.options = options

    def advance(self, *, now: float) -> None:
        """Ask about open items, answer what is due, give audio back."""
        for channel in self._channels:
            channel.listener.advance(now=now)

    def end(self, error: SensoriumError) -> None:
        """Answer what is pending with `error`, and drop the rest."""
        for channel in self._channels:
            channel.conversation.fail_pending(error)
            channel.conversation.discard()

    def check(self, *, is_closed: bool) -> None:
        """Assert the invariants between inputs."""
        for channel in self._channels:
            channel.conversation.check()
            if is_closed:
                assert channel.conversation.num_tracked == 0
            else:
                channel.listener.check()
