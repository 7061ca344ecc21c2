"""Signals that ask a command to end, while it has something to finish."""

from __future__ import annotations

import signal

import trio

from ..signals import leave


async def watch_signals(
    ready: trio.Event,
    stop: trio.Event,
    scope: trio.CancelScope,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """The first signal asks the server to finish, the second one ends it at once; so does the first one
    while models are loaded. A terminal that closes sends SIGHUP more than once, which hurries nobody; under
    `nohup` it stays ignored.
    """
    hangup = [] if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN else [signal.SIGHUP]
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, *hangup) as signals:
        task_status.started()
        async for number in signals:
            if not ready.is_set():
                leave(number)
            if stop.is_set() and number != signal.SIGHUP:
                scope.cancel()
            stop.set()
