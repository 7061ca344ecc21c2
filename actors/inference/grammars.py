"""Compiles grammars in threads before their requests are queued, so that neither loop nor device waits.

One that takes too long is its client's fault and fails alone; its thread is left to finish and keeps its
place meanwhile, so that however many are sent only a few are compiled at once, and not all of them for one
caller. These threads leave processors to those that run steps (`runtime/thread_priority.py`). Read
`engine/execution/grammar.py` for what a grammar is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final, Protocol

import trio

from ...protocols.engine.messages import Grammar
from ...protocols.errors import BadRequestError, OverloadedError
from ..runtime.thread_priority import nicely
from ..runtime.threads import in_thread, outlasting

COMPILE_TIMEOUT_S: Final = 10.0
"""Longest a grammar may take; real ones take milliseconds."""
_MAX_AT_ONCE: Final = 3
_MAX_OF_CALLER: Final = 2
_NICENESS: Final = 5
"""A third of the time where the engine's threads want all of it: a step that somebody waits for goes first,
and a grammar of a second is still ready within its timeout."""


class Grammars(Protocol):
    """What compiles: `engine/execution/grammar_store.py`'s store, or a fake in tests. Thread-safe."""

    def compile(self, grammar: Grammar, caller: str = "") -> None:
        """Make `grammar` ready for the runner. Raises BadRequestError that says what is wrong with it,
        OverloadedError if there is no room to keep it."""

    def is_ready(self, grammar: Grammar) -> bool:
        """Whether it was made ready, and is. Does not wait."""

    def hold(self, grammar: Grammar, caller: str = "") -> None:
        """Keep it ready, once it is, until `release`. Does not wait. Raises OverloadedError as `compile`."""

    def release(self, grammar: Grammar, caller: str = "") -> None:
        """Take back one `hold`."""


class GrammarCompiler:
    """Compiles for one engine. Without `grammars` every grammar is refused."""

    def __init__(self, grammars: Grammars | None, *, timeout_s: float = COMPILE_TIMEOUT_S) -> None:
        self._grammars = grammars
        self._timeout_s = timeout_s
        self._limiter = trio.CapacityLimiter(_MAX_AT_ONCE)
        self._limiters: dict[str, trio.CapacityLimiter] = {}
        """By caller, of those that have something compiled."""

    @contextmanager
    def holding(self, grammar: Grammar | None, *, caller: str = "") -> Iterator[None]:
        """Keep it ready for the duration, however many others are compiled meanwhile.

        Raises OverloadedError if that leaves too little room for those of others.
        """
        if grammar is None or self._grammars is None:
            yield
            return
        self._grammars.hold(grammar, caller)
        try:
            yield
        finally:
            self._grammars.release(grammar, caller)

    async def compile(self, grammar: Grammar | None, *, caller: str = "") -> None:
        """Return when `grammar` is ready.

        Raises BadRequestError if it is wrong or takes too long, OverloadedError if others take so long that
        it was not begun, or so much memory that it cannot be kept.
        """
        if grammar is None:
            return
        grammars = self._grammars
        if grammars is None:
            raise BadRequestError("this model's answers cannot be given a grammar", param="response_format")
        if grammars.is_ready(grammar):
            return
        place, loop = object(), trio.lowlevel.current_trio_token()
        has_begun = has_left = False

        def leave() -> None:
            nonlocal has_left
            if has_left:  # given up while its thread began
                return
            has_left = True
            limiter.release_on_behalf_of(place)
            forget()

        def forget() -> None:
            if not limiter.borrowed_tokens and self._limiters.get(caller) is limiter:
                del self._limiters[caller]

        def compile_it() -> None:
            with outlasting():
                grammars.compile(grammar, caller)

        def work() -> None:
            nonlocal has_begun
            has_begun = True
            try:
                nicely(compile_it, _NICENESS)
            finally:
                with suppress(trio.RunFinishedError):
                    loop.run_sync_soon(leave)

        limiter = self._limiters.setdefault(caller, trio.CapacityLimiter(_MAX_OF_CALLER))
        with trio.move_on_after(self._timeout_s):
            try:
                await limiter.acquire_on_behalf_of(place)
            finally:
                forget()
            try:
                await in_thread(work, abandon_on_cancel=True, limiter=self._limiter)
            finally:
                if not has_begun:
                    leave()
            return
        if not has_begun:
            raise OverloadedError("too many grammars are being compiled")
        raise BadRequestError(
            f"the grammar takes longer than {self._timeout_s:g} s to compile; simplify it",
            param="response_format",
        )
