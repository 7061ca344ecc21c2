"""The client's half of a session that answers, as a pure machine: frames out, events in, answers as they
grow.

Ours are answers that carry the mark of their question in their metadata; the server begins others itself, for
spoken turns. What it shares with sessions that transcribe is `client/realtime/machine.py`; its shells are
`client/realtime/conversation.py` and `client/realtime/async_conversation.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypedDict, Unpack
from uuid import uuid4

import msgspec

from ...protocols.realtime.codec import encode_event
from ...protocols.realtime.conversation_session import DialogueView
from ...protocols.realtime.events import InputAudioBufferClear
from ...protocols.realtime.responses import ResponseCancel
from ...protocols.realtime.video import InputImageBufferAppend
from ..errors import APIError, PictureError
from ..pictures import data_uri
from ..requests import given
from .answer import AnswerLog
from .events import AnswerBegan, AnswerDone, ErrorEvent, Event
from .frame_pace import FramePace
from .machine import LiveCore, LiveOptions

_MARK: Final = "question"
"""Key in the metadata of our answers."""
_OF_SESSION: Final = (
    "instructions",
    "max_output_tokens",
    "temperature",
    "top_p",
    "seed",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "reasoning",
    "truncation",
    "video",
)
_CANCEL_TOO_LATE: Final = "response_cancel_not_active"
_LAG_CODES: Final = frozenset({"input_image_buffer_overflow", "frame_rate_exceeded"})
_MAX_MARKS: Final = 1024
"""Questions and frames whose refusals are still told apart; older ones were not refused."""


class AnswerOptions(TypedDict, total=False):
    """How answers are made. What is not given is as the session, and then the server, has it.

    Parameters
    ----------
    instructions
        What the model is told before the conversation.
    max_output_tokens
        Longest answer; "inf" for what the context holds.
    temperature, top_p, seed
        How freely words are chosen.
    tools
        Functions that the model may call: `type`, `name`, `description`, `parameters` (a JSON schema).
    tool_choice
        auto, none, required, or one of them: `{"type": "function", "name": …}`.
    parallel_tool_calls
        False: at most one call an answer.
    reasoning
        `{"effort": "none"}` has a model that thinks answer at once.
    """

    instructions: str | None
    max_output_tokens: int | Literal["inf"] | None
    temperature: float | None
    top_p: float | None
    seed: int | None
    tools: Sequence[Mapping[str, Any]]
    tool_choice: str | Mapping[str, Any] | None
    parallel_tool_calls: bool | None
    reasoning: Mapping[str, str] | None


class DialogueOptions(AnswerOptions, LiveOptions, total=False):
    """What a session that answers can be asked for beside its model.

    Parameters
    ----------
    truncation
        disabled: a conversation that is too long fails, instead of losing its oldest half. How much is
        left, and what is too long, as OpenAI has it: `{"type": "retention_ratio", "retention_ratio": 0.8,
        "token_limits": {"post_instructions": 4096}}`.
    video
        How long frames are remembered, and which are worth it: `retention_s`, `retention_tokens`,
        `min_change`.
    transcription
        How speech is transcribed: `model`, `language`, `prompt`, …
    """

    truncation: Literal["auto", "disabled"] | Mapping[str, Any] | None
    video: Mapping[str, float] | None
    transcription: Mapping[str, Any] | None


class ResponseOptions(AnswerOptions, total=False):
    """How one answer is made. With `conversation="none"` it leaves no trace; its question stays."""

    conversation: Literal["auto", "none"] | None
    metadata: Mapping[str, str] | None


class DialogueCore(LiveCore):
    """One live session that answers. Not thread-safe: the sync shell holds a lock around it.

    Raises ValueError naming the option at fault, TypeError for one that does not exist.
    """

    def __init__(self, **options: Unpack[DialogueOptions]) -> None:
        requested = given(options, DialogueOptions)
        super().__init__(options)
        self._session: dict[str, Any] = {name: requested[name] for name in _OF_SESSION if name in requested}
        self._transcription = options.get("transcription")
        self._sets_turns = "turn_detection" in options
        self._requested: dict[str, AnswerLog] = {}
        """Questions whose answers have not begun, by the ids of what was sent for them."""
        self._running: dict[str, AnswerLog] = {}
        self._cancels: dict[str, None] = {}
        self._pace: FramePace | None = None
        self._began: float | None = None

    @property
    def num_unfinished(self) -> int:
        """Answers that have not ended."""
        waiting = {id(log) for log in self._requested.values() if not log.is_over and log.response_id is None}
        return len(self._running) + len(waiting)

    @property
    def max_fps(self) -> float:
        """Live frames of a second that the server takes. Raises PictureError if it takes none."""
        return self._view().limits.max_fps

    def opening(self) -> list[str]:
        """Frames that configure the session."""
        audio: dict[str, Any] = {"format": self.format_params()}
        if self._transcription is not None:
            audio["transcription"] = dict(self._transcription)
        if self._sets_turns:
            audio["turn_detection"] = self.turns_params()
        session = {"type": "realtime", **self._session, "audio": {"input": audio}}
        return [_json({"type": "session.update", "session": session})]

    # --- out -------------------------------------------------------------------------------------------

    def clear(self) -> list[str]:
        """Frames that discard the audio of the current turn."""
        self._partial_sample = b""
        return [encode_event(InputAudioBufferClear())]

    def seconds_ahead(self, timestamp_ms: int | None, *, now: float) -> float:
        """How long to wait before `frame`, for a film that is shown faster than it was filmed."""
        return 0.0 if timestamp_ms is None else self._pacer().wait_s(timestamp_ms, now=now)

    def frame(self, data: bytes, timestamp_ms: int | None, *, now: float) -> list[str | bytes]:
        """Frames that carry a camera's frame, a picture file; none where it is left out.

        `timestamp_ms` is on any clock that the caller keeps to; None: since the first frame.
        """
        limits = self._view().limits
        if len(data) > limits.max_frame_bytes:
            raise PictureError(f"the frame is {len(data)} bytes; the limit is {limits.max_frame_bytes}")
        if self._began is None:
            self._began = now
        if timestamp_ms is None:
            timestamp_ms = round((now - self._began) * 1000)
        if not self._pacer().admits(timestamp_ms):
            return []
        if self._is_binary:
            return [encode_event(InputImageBufferAppend(timestamp_ms=timestamp_ms)), data]
        return [encode_event(InputImageBufferAppend(data, timestamp_ms))]

    def add(self, item_id: str, text: str, pictures: Sequence[bytes] = (), role: str = "user") -> list[str]:
        """Frames that create an item; `item_id` is a `new_id`."""
        event_id = new_id("event")
        kind = "output_text" if role == "assistant" else "input_text"
        content: list[Any] = [{"type": "input_image", "image_url": data_uri(data)} for data in pictures]
        if text:
            content.append({"type": kind, "text": text})
        item = {"id": item_id, "type": "message", "role": role, "content": content}
        event = {"type": "conversation.item.create", "event_id": event_id, "item": item}
        return [_json(event)]

    def give(self, call_id: str, output: str) -> list[str]:
        """Frames that tell what a call gave."""
        item = {"type": "function_call_output", "call_id": call_id, "output": output}
        event = {"type": "conversation.item.create", "event_id": new_id("event"), "item": item}
        return [_json(event)]

    def ask(
        self,
        log: AnswerLog,
        text: str | None,
        pictures: Sequence[bytes] = (),
        **response: Unpack[ResponseOptions],
    ) -> list[str]:
        """Frames that ask for what `log`, a `new_answer`, will be; of what is there without text."""
        requested = given(response, ResponseOptions)
        frames, event_id = list[str](), log.event_id
        self._note(self._requested, event_id, log)
        if text or pictures:
            frames = self.add(log.item_id, text or "", pictures)
            self._note(self._requested, msgspec.json.decode(frames[0])["event_id"], log)
            self._note(self._requested, log.item_id, log)
        metadata: dict[str, str] = dict(response.get("metadata") or ())
        requested["metadata"] = metadata | {_MARK: event_id}
        frames.append(_json({"type": "response.create", "event_id": event_id, "response": requested}))
        return frames

    def interrupt(self, only: AnswerLog | None = None) -> list[str]:
        """Frames that end every answer in progress, or that one; none if there is none."""
        logs = {id(log): log for log in (*self._requested.values(), *self._running.values())}
        frames = []
        for log in logs.values():
            if (log.is_over and log.response_id is None) or only not in (None, log):
                continue
            # One that has not begun yet is the conversation's when the server comes to read this.
            response_id = msgspec.UNSET if log.response_id is None else log.response_id
            event_id = new_id("event")
            self._note(self._cancels, event_id, None)
            frames.append(encode_event(ResponseCancel(response_id, event_id=event_id)))
        return frames

    # --- in --------------------------------------------------------------------------------------------

    def shown(self, event: Event) -> list[Event]:
        """Everything but the complaint that an answer had ended before it was interrupted."""
        match event:
            case AnswerBegan(response=response):
                mark = (response.metadata or {}).get(_MARK, "")
                log = self._requested.get(mark) or AnswerLog()
                for name in [
                    name for name, each in self._requested.items() if each is log and name != log.item_id
                ]:
                    del self._requested[name]  # the item's pictures may still turn out to be none
                log.response_id = response.id
                self._running[response.id] = log
            case AnswerDone(response=response):
                log = self._running.pop(response.id, AnswerLog())
                log.take(event)
                self._requested.pop(log.item_id, None)
            case ErrorEvent():
                return self._refused(event)
            case _:
                running = self._running.get(getattr(event, "response_id", ""))
                if running is not None:
                    running.take(event)
        return [event]

    def running(self, response_id: str) -> AnswerLog | None:
        """An answer in progress."""
        return self._running.get(response_id)

    def _refused(self, event: ErrorEvent) -> list[Event]:
        problem, event_id = event.error, event.error.event_id or ""
        if event_id in self._cancels and problem.code == _CANCEL_TOO_LATE:
            return []
        if problem.code in _LAG_CODES and self._pace is not None:
            self._pace.slow_down()
        log = self._requested.get(event_id) or self._requested.get((problem.param or "").partition(".")[0])
        if log is not None:
            error = APIError(400, problem.code, problem.param, problem.message or problem.code or "refused")
            log.refuse(error, event_id)
        return [event]

    def _view(self) -> DialogueView:
        view = None if self.created is None else self.created.session
        if not isinstance(view, DialogueView) or not view.limits.max_fps:
            name = view.model if isinstance(view, DialogueView) else "the model of this session"
            raise PictureError(f"{name} takes no live frames; models of pictures and clips do, as Qwen3-VL")
        return view

    def _pacer(self) -> FramePace:
        if self._pace is None:
            self._pace = FramePace(self.max_fps)
        return self._pace

    @staticmethod
    def _note(noted: dict[str, Any], name: str, value: AnswerLog | None) -> None:
        """Remember, and forget the oldest beyond a bound."""
        noted[name] = value
        if len(noted) > _MAX_MARKS:
            del noted[next(iter(noted))]


def _json(event: Mapping[str, Any]) -> str:
    return msgspec.json.encode(event).decode()


def new_answer() -> AnswerLog:
    """One that is to be asked for."""
    return AnswerLog(new_id("event"), new_id("item"))


def new_id(prefix: str) -> str:
    """A name that nothing else has."""
    return f"{prefix}_{uuid4().hex[:24]}"
