"""A conversation with a model as a machine without sockets: requests out, lines of streamed answers in.

One round is a request and its answer. Where the answer calls functions, their results are told to the model
and another round follows, up to a bound. Knows no sockets and calls no function itself. Read next:
`client/chat/requests.py`, which does both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Generic, TypeAlias, TypedDict, TypeVar

import msgspec

from ..errors import SensoriumConnectionError
from ..requests import Call
from ..server_events import event_data
from ..upload import AudioFile
from .answer import ChatAnswer, ChatDelta, ChatUsage, Round, ToolCall, ToolResult
from .messages import ImageFile, MediaFile, Prompt, conversation
from .structured_output import OutputForm, output_form
from .tools import FunctionTool, Tool, error_text, function_tool, result_text

T = TypeVar("T")

MAX_ROUNDS: Final = 8
_SENT: Final = frozenset({"model", "temperature", "top_p", "max_tokens", "stop", "seed", "reasoning_effort"})
_CHAT: Final = "/v1/chat/completions"

ToolChoice: TypeAlias = str | Callable[..., Any]


class ChatOptions(TypedDict, total=False):
    """What can be asked of a chat. What is not given is left to the server.

    `model` is one of the server's models. `system` is in front of all messages. `images`, `videos` and
    `audio` are shown with the last message: paths, bytes, binary file objects, or addresses; images also of
    Pillow or as arrays, audio also as (samples, rate) or an array at 16 kHz.

    `tools` are functions with types: what they do and take is told from signature and docstring, calls are
    run, and what they return or raise is told to the model, for `max_rounds` rounds (8) at most. Calls of
    tools in OpenAI's shape are left to you. `tool_choice` is auto, none, required, or one of the tools (it,
    or its name); it holds for the first round.

    `choices` are texts of which the answer is one. `extra` are further fields of the request, as the server
    documents them.
    """

    model: str | None
    system: str | None
    images: Sequence[ImageFile]
    videos: Sequence[MediaFile]
    audio: Sequence[AudioFile]
    tools: Sequence[Tool]
    tool_choice: ToolChoice | None
    max_rounds: int
    choices: Sequence[str] | None
    temperature: float | None
    top_p: float | None
    max_tokens: int | None
    stop: str | Sequence[str] | None
    seed: int | None
    reasoning_effort: str | None
    extra: Mapping[str, Any] | None


class ChatDialog(Generic[T]):
    """One question and all rounds until its answer.

    `request` is the next round's; `feed` it the answer's lines; `end_round` gives the calls to run, each of
    which is answered by `add_result` or `add_error`; without any, `answer` is whole.
    """

    def __init__(
        self, prompt: Prompt, output: type[T] | Mapping[str, Any] | None, options: ChatOptions
    ) -> None:
        """Raises ValueError and TypeError for what cannot be asked, OSError for a file it cannot read."""
        unknown = sorted(options.keys() - ChatOptions.__annotations__.keys())
        if unknown:
            known = ", ".join(ChatOptions.__annotations__)
            raise TypeError(f"{unknown[0]!r} is not an option; allowed: {known}")
        self._form: OutputForm[T] | None = None if output is None else output_form(output)
        self._functions: dict[str, FunctionTool] = {}
        self._rounds_left = options.get("max_rounds", MAX_ROUNDS)
        if self._rounds_left < 0:
            raise ValueError(f"max_rounds is {self._rounds_left}: expected 0 or more")
        self._fields = self._request_fields(options)
        self._messages = conversation(
            prompt,
            system=options.get("system"),
            images=options.get("images", ()),
            videos=options.get("videos", ()),
            audio=options.get("audio", ()),
        )
        self._usage = ChatUsage()
        self._round = Round()

    @property
    def functions(self) -> Mapping[str, FunctionTool]:
        """The functions that may be called, by name."""
        return self._functions

    def request(self) -> Call[None]:
        """The request of the next round."""
        self._round = Round()
        body = msgspec.json.encode({**self._fields, "messages": self._messages})
        self._fields.pop("tool_choice", None)  # what is forced is forced once
        return Call(_CHAT, lambda _: None, json=body)

    def feed(self, line: str) -> ChatDelta | None:
        """What a line of the answer adds."""
        data = event_data(line)
        return None if data is None else self._round.add(data)

    def end_round(self) -> tuple[ToolCall, ...]:
        """The calls to run; none: `answer` is whole.

        Raises APIError where the server streamed an error, SensoriumConnectionError where it broke off.
        """
        this = self._round
        if this.error is not None:
            raise this.error
        if not this.finish_reason:
            raise SensoriumConnectionError("the answer broke off before its end")
        calls = this.calls()
        self._messages.append(this.message(calls))
        self._usage += this.usage
        is_ours = all(call.name in self._functions for call in calls)
        if not calls or not is_ours or this.finish_reason == "length" or not self._rounds_left:
            return ()
        self._rounds_left -= 1
        return calls

    def add_result(self, call: ToolCall, value: object) -> ToolResult:
        """Note what a call returned, for the next round."""
        try:
            return self._append_result(ToolResult(call, result_text(value)))
        except (TypeError, ValueError, RecursionError) as error:  # nothing that JSON could say
            return self.add_error(call, error)

    def add_error(self, call: ToolCall, error: Exception) -> ToolResult:
        """Note how a call failed, for the next round."""
        return self._append_result(ToolResult(call, error_text(error), is_error=True))

    def _append_result(self, result: ToolResult) -> ToolResult:
        self._messages.append({"role": "tool", "tool_call_id": result.call.id, "content": result.text})
        return result

    @property
    def answer(self) -> ChatAnswer[T]:
        """The answer, when no call is left to run."""
        this = self._round
        return ChatAnswer(
            "".join(this.text),
            "".join(this.reasoning),
            this.finish_reason,
            this.calls(),
            self._messages,
            self._usage,
            this.model,
            self._form,
        )

    def _request_fields(self, options: ChatOptions) -> dict[str, Any]:
        fields = {name: value for name, value in options.items() if name in _SENT and value is not None}
        tools = [tool if isinstance(tool, Mapping) else self._add(tool) for tool in options.get("tools", ())]
        if tools:
            fields["tools"] = tools
        choices, choice = options.get("choices"), options.get("tool_choice")
        if sum(map(bool, (tools, choices, self._form))) > 1:
            raise ValueError("tools, choices and output exclude each other: ask one after the other")
        if choice is not None:
            fields["tool_choice"] = _tool_choice(choice)
        if choices:
            fields["structured_outputs"] = {"choice": list(choices)}
        if self._form is not None:
            fields["response_format"] = self._form.wire
        streamed = {"stream": True, "stream_options": {"include_usage": True}}
        extra = options.get("extra") or {}
        if extra.get("n", 1) not in (1, None):
            raise ValueError(f"extra has n={extra['n']!r}: a chat gives one answer, ask several times")
        return {**fields, **extra, **streamed}

    def _add(self, function: Callable[..., Any]) -> dict[str, Any]:
        tool = function_tool(function)
        if tool.name in self._functions:
            raise ValueError(f"two tools are named {tool.name!r}")
        self._functions[tool.name] = tool
        return tool.wire


def _tool_choice(choice: ToolChoice) -> object:
    name = choice if isinstance(choice, str) else getattr(choice, "__name__", "")
    if name in ("auto", "none", "required"):
        return name
    return {"type": "function", "function": {"name": name}}
