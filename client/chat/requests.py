"""`client.chat`: asks a model, runs the functions it calls, and gives its answer, whole or as it grows.

The sockets' side of `client/chat/machine.py`, once for each client. Read next: that file.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterator, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any, TypeAlias, TypeVar, Unpack, overload

from anyio import to_thread

from ..requests import Call
from .answer import ChatAnswer, ChatEvent, ToolCall, ToolResult
from .machine import ChatDialog, ChatOptions
from .messages import Prompt

T = TypeVar("T")

Schema: TypeAlias = Mapping[str, Any]


class Chat:
    """Call it for an answer: `client.chat("Why is the sky blue?").text`; `stream` gives it as it grows.

    The prompt is a question or a conversation, `output` a type or a JSON schema that the answer has the form
    of (`ChatAnswer.parsed`); the options are those of `ChatOptions`. Raises ValueError and TypeError for what
    cannot be asked, OSError for a file that cannot be read, and what all methods of the client raise. A
    function that raises does not end the chat, KeyboardInterrupt and its like do.
    """

    def __init__(self, lines: Callable[[Call[None]], Iterator[str]]) -> None:
        """`lines` sends a request, and gives the lines of its answer."""
        self._lines = lines

    @overload
    def __call__(
        self, prompt: Prompt, *, output: type[T], **options: Unpack[ChatOptions]
    ) -> ChatAnswer[T]: ...

    @overload
    def __call__(
        self, prompt: Prompt, *, output: Schema | None = None, **options: Unpack[ChatOptions]
    ) -> ChatAnswer[Any]: ...

    def __call__(
        self,
        prompt: Prompt,
        *,
        output: type[T] | Schema | None = None,
        **options: Unpack[ChatOptions],
    ) -> ChatAnswer[T]:
        """The answer to a question or a conversation, when all functions it calls have been run."""
        dialog = ChatDialog(prompt, output, options)
        for _ in self._run(dialog):
            pass
        return dialog.answer

    @overload
    def stream(
        self, prompt: Prompt, *, output: type[T], **options: Unpack[ChatOptions]
    ) -> Generator[ChatEvent | ChatAnswer[T]]: ...

    @overload
    def stream(
        self, prompt: Prompt, *, output: Schema | None = None, **options: Unpack[ChatOptions]
    ) -> Generator[ChatEvent | ChatAnswer[Any]]: ...

    def stream(
        self,
        prompt: Prompt,
        *,
        output: type[T] | Schema | None = None,
        **options: Unpack[ChatOptions],
    ) -> Generator[ChatEvent | ChatAnswer[T]]:
        """The answer as it grows: deltas, calls and their results, and last the whole `ChatAnswer`.

        What is wrong with the arguments is raised when the first event is asked for. Closing the iterator
        ends the answer on the server, too.
        """
        dialog = ChatDialog(prompt, output, options)
        yield from self._run(dialog)
        yield dialog.answer

    def _run(self, dialog: ChatDialog[T]) -> Iterator[ChatEvent]:
        for tool in dialog.functions.values():
            if inspect.iscoroutinefunction(tool.function):
                raise TypeError(f"the tool {tool.name!r} is async: use AsyncClient")
        calls: tuple[ToolCall, ...] | None = None
        while calls is None or calls:
            for line in self._lines(dialog.request()):
                delta = dialog.feed(line)
                if delta is not None:
                    yield delta
            calls = dialog.end_round()
            for call in calls:
                yield call
                yield self._answered(dialog, call)

    def _answered(self, dialog: ChatDialog[T], call: ToolCall) -> ToolResult:
        tool = dialog.functions[call.name]
        try:
            value = tool.function(**tool.bind(call.arguments))
        except Exception as error:  # whatever it is, the model is told
            return dialog.add_error(call, error)
        return dialog.add_result(call, value)


class AsyncChat:
    """As `Chat`: `(await client.chat("Why?")).text`, and `async for event in client.chat.stream("Why?")`.

    Functions may be async; others are run in a thread. Files are read in a thread, too.
    """

    def __init__(self, lines: Callable[[Call[None]], AsyncGenerator[str]]) -> None:
        """`lines` sends a request, and gives the lines of its answer."""
        self._lines = lines

    @overload
    async def __call__(
        self, prompt: Prompt, *, output: type[T], **options: Unpack[ChatOptions]
    ) -> ChatAnswer[T]: ...

    @overload
    async def __call__(
        self, prompt: Prompt, *, output: Schema | None = None, **options: Unpack[ChatOptions]
    ) -> ChatAnswer[Any]: ...

    async def __call__(
        self,
        prompt: Prompt,
        *,
        output: type[T] | Schema | None = None,
        **options: Unpack[ChatOptions],
    ) -> ChatAnswer[T]:
        """The answer to a question or a conversation; cancellation ends it on the server, too."""
        dialog = await to_thread.run_sync(partial(ChatDialog[T], prompt, output, options))
        async with aclosing(self._run(dialog)) as events:
            async for _ in events:
                pass
        return dialog.answer

    @overload
    def stream(
        self, prompt: Prompt, *, output: type[T], **options: Unpack[ChatOptions]
    ) -> AsyncGenerator[ChatEvent | ChatAnswer[T]]: ...

    @overload
    def stream(
        self, prompt: Prompt, *, output: Schema | None = None, **options: Unpack[ChatOptions]
    ) -> AsyncGenerator[ChatEvent | ChatAnswer[Any]]: ...

    async def stream(
        self,
        prompt: Prompt,
        *,
        output: type[T] | Schema | None = None,
        **options: Unpack[ChatOptions],
    ) -> AsyncGenerator[ChatEvent | ChatAnswer[T]]:
        """The answer as it grows, as `Chat.stream`.

        Wrap it in `contextlib.aclosing` if you may leave the loop before its end.
        """
        dialog = await to_thread.run_sync(partial(ChatDialog[T], prompt, output, options))
        async with aclosing(self._run(dialog)) as events:
            async for event in events:
                yield event
        yield dialog.answer

    async def _run(self, dialog: ChatDialog[T]) -> AsyncGenerator[ChatEvent]:
        calls: tuple[ToolCall, ...] | None = None
        while calls is None or calls:
            async with aclosing(self._lines(dialog.request())) as lines:
                async for line in lines:
                    delta = dialog.feed(line)
                    if delta is not None:
                        yield delta
            calls = dialog.end_round()
            for call in calls:
                yield call
                yield await self._answered(dialog, call)

    async def _answered(self, dialog: ChatDialog[T], call: ToolCall) -> ToolResult:
        tool = dialog.functions[call.name]
        try:
            work = partial(tool.function, **tool.bind(call.arguments))
            value = work() if inspect.iscoroutinefunction(tool.function) else await to_thread.run_sync(work)
            if isinstance(value, Awaitable):
                value = await value
        except Exception as error:  # whatever it is, the model is told
            return dialog.add_error(call, error)
        return dialog.add_result(call, value)
