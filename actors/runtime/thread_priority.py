"""Threads that leave processors to others: for long work beside that for which somebody waits.

On Linux every thread has a niceness of its own. Only a privileged one may take it back, so such a thread is
made for one piece of work; the one that asks, which does other work later, waits meanwhile.
"""

from __future__ import annotations

import _thread
import os
import sys
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import ContextVar, copy_context
from functools import partial
from queue import SimpleQueue
from typing import Final, TypeVar

_T = TypeVar("_T")

NICENESS: Final = 10
"""More than the process': a ninth of the time where others want all of it."""
_runner: Final[ContextVar[Callable[[Callable[[], object]], object] | None]] = ContextVar(
    "asked", default=None
)


def nicely(work: Callable[[], _T], niceness: int = NICENESS) -> _T:
    """Do `work` in a thread that is nicer by `niceness`, or else in this one. Raises what it raises."""
    if sys.platform != "linux":
        return work()
    result: Future[_T] = Future()
    questions: SimpleQueue[Callable[[], object]] = SimpleQueue()
    has_begun = False

    def call(question: Callable[[], object]) -> object:
        answer: Future[object] = Future()
        questions.put(partial(_settle, answer, question))
        return answer.result()

    def run() -> None:
        nonlocal has_begun
        has_begun = True
        os.setpriority(os.PRIO_PROCESS, 0, min(19, os.getpriority(os.PRIO_PROCESS, 0) + niceness))
        _runner.set(call)
        _settle(result, work)

    # The thread alone holds `begin`: with it, however it ends, goes the wait for its questions. All of it is
    # in C, for there may be no memory for a frame. `threading.Thread.start` would wait for ever then.
    begin = partial(copy_context().run, run)
    ended = weakref.ref(begin, questions.put)
    try:
        _thread.start_new_thread(begin, ())
    except RuntimeError:  # the system gives no more
        return work()
    del begin
    while (answer := questions.get()) is not ended:
        answer()
    if not has_begun:
        return work()
    if not result.done():
        raise MemoryError("a thread ended before its work did")
    return result.result()


def from_caller(question: Callable[[], _T]) -> _T:
    """The answer of `question`, called in the thread that asked for the work: it is known to its loop."""
    call = _runner.get()
    return question() if call is None else call(question)  # type: ignore[return-value]  # of any work


def _settle(future: Future[_T], work: Callable[[], _T]) -> None:
    try:
        future.set_result(work())
    except BaseException as error:
        future.set_exception(error)
