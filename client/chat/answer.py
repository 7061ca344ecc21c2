"""A chat's answer: what happens while it grows, what it is in the end, and how both are read from a stream.

Knows no sockets. Read next: `client/chat/machine.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Generic, TypeAlias, TypeVar

import msgspec

from ...protocols.realtime.invalid_frames import MALFORMED
from ..errors import AnswerError, APIError
from ..server_events import stream_error
from .messages import Message
from .structured_output import OutputForm

T = TypeVar("T")


class ChatDelta(msgspec.Struct, frozen=True):
    """More of an answer: append `text` to it, and `reasoning` to what the model thinks first."""

    text: str = ""
    reasoning: str = ""


class ToolCall(msgspec.Struct, frozen=True):
    """The model calls a tool; `arguments` is a JSON object."""

    id: str
    name: str
    arguments: str


class ToolResult(msgspec.Struct, frozen=True):
    """What the model is told of a call: what the function returned, or how it failed."""

    call: ToolCall
    text: str
    is_error: bool = False


class ChatUsage(msgspec.Struct, frozen=True):
    """Tokens of all rounds together; `cached_tokens` of the prompts' were there already."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0

    def __add__(self, other: ChatUsage) -> ChatUsage:
        return ChatUsage(
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.cached_tokens + other.cached_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
        )


class ChatAnswer(msgspec.Struct, Generic[T], frozen=True):
    """A whole answer.

    `text` is what the model says last, `reasoning` what it thought before. `finish_reason` is stop, length
    (at `max_tokens` or the end of its context) or tool_calls, where `tool_calls` are yours to answer: those
    of tools that are no functions, or of one round too many. `messages` is the conversation with this
    answer in it: go on with `client.chat([*answer.messages, "And then?"])`.
    """

    text: str
    reasoning: str
    finish_reason: str
    tool_calls: tuple[ToolCall, ...]
    messages: list[Message]
    usage: ChatUsage
    model: str
    form: OutputForm[T] | None = None

    @property
    def parsed(self) -> T:
        """The answer as the type asked for by `output`. Raises AnswerError where it is not of that form."""
        if self.form is None:
            raise AnswerError("the answer is plain text: pass `output` to get a typed one")
        try:
            return self.form.read(self.text)
        except (*MALFORMED, ValueError) as error:
            cut = ": it was cut at its limit of tokens" if self.finish_reason == "length" else ""
            raise AnswerError(f"the answer is not a whole {self.form.name}{cut} ({error})") from error


ChatEvent: TypeAlias = ChatDelta | ToolCall | ToolResult
"""What happens before an answer is whole."""


class _Function(msgspec.Struct, frozen=True):
    name: str | None = None
    arguments: str | None = None


class _CallPiece(msgspec.Struct):
    index: int = 0
    id: str | None = None
    function: _Function = _Function()


class _Delta(msgspec.Struct, frozen=True):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[_CallPiece] | None = None


class _Choice(msgspec.Struct):
    delta: _Delta = _Delta()
    finish_reason: str | None = None


class _Details(msgspec.Struct):
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: _Details | None = None
    completion_tokens_details: _Details | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice]
    model: str = ""
    usage: _Usage | None = None


_chunks: Final = msgspec.json.Decoder(_Chunk)


class Round:
    """The answer to one request, as it grows."""

    def __init__(self) -> None:
        self.text: list[str] = []
        self.reasoning: list[str] = []
        self.finish_reason = ""
        self.usage = ChatUsage()
        self.model = ""
        self.error: APIError | None = None
        """What the server streamed instead of an end."""
        self._calls: dict[int, tuple[list[str], list[str], list[str]]] = {}
        """By index: the pieces of id, name and arguments."""

    def add(self, data: str) -> ChatDelta | None:
        """What an event adds."""
        try:
            chunk = _chunks.decode(data)
        except MALFORMED:
            self.error = stream_error(data) or self.error
            return None  # an error, or an event this version does not know
        self.model = chunk.model or self.model
        if chunk.usage is not None:
            self.usage = _read_usage(chunk.usage)
        if not chunk.choices:
            return None
        (choice, *_), delta = chunk.choices, chunk.choices[0].delta
        self.finish_reason = choice.finish_reason or self.finish_reason
        for piece in delta.tool_calls or ():
            pieces = self._calls.setdefault(piece.index, ([], [], []))
            for held, new in zip(
                pieces, (piece.id, piece.function.name, piece.function.arguments), strict=True
            ):
                held.append(new or "")
        found = ChatDelta(delta.content or "", delta.reasoning_content or delta.reasoning or "")
        self.text.append(found.text)
        self.reasoning.append(found.reasoning)
        return found if found.text or found.reasoning else None

    def calls(self) -> tuple[ToolCall, ...]:
        """The calls, in order."""
        return tuple(
            ToolCall("".join(ids) or f"call_{index}", "".join(names), "".join(arguments))
            for index, (ids, names, arguments) in sorted(self._calls.items())
        )

    def message(self, calls: Sequence[ToolCall]) -> Message:
        """The answer as the next request has it."""
        message: Message = {"role": "assistant", "content": "".join(self.text) or (None if calls else "")}
        if reasoning := "".join(self.reasoning):
            message["reasoning_content"] = reasoning
        if calls:
            message["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": _object(call.arguments)},
                }
                for call in calls
            ]
        return message


def _object(arguments: str) -> str:
    """The arguments where they are a JSON object; servers take nothing else back."""
    try:
        return arguments if isinstance(msgspec.json.decode(arguments), dict) else "{}"
    except MALFORMED:
        return "{}"


def _read_usage(reported: _Usage) -> ChatUsage:
    cached = reported.prompt_tokens_details and reported.prompt_tokens_details.cached_tokens
    reasoning = reported.completion_tokens_details and reported.completion_tokens_details.reasoning_tokens
    return ChatUsage(reported.prompt_tokens, reported.completion_tokens, cached or 0, reasoning or 0)
