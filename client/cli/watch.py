"""`sensorium watch`: show a film, a camera or the screen to a model, and ask about it again and again.

One thread shows frames, one reads Enter; the questions are asked here. Read next: `client/cli/camera.py`.
"""

from __future__ import annotations

import itertools
import queue
import sys
import threading
import time
from collections.abc import Iterable
from typing import Final, Literal

from ..client import Client
from ..errors import PictureError, SessionClosedError
from ..pictures import PillowImage
from ..realtime.conversation import DialogueSession
from ..realtime.conversation_machine import DialogueOptions
from ..terminal import LiveText, timestamp
from .camera import frames

Command = Literal["ask", "end"]
_MOST_COMMANDS: Final = 16
_REMEMBERED: Final = {
    "type": "retention_ratio",
    "retention_ratio": 0.5,
    "token_limits": {"post_instructions": 8192},
}
"""Tokens of frames, questions and answers together: who watches for hours waits no longer in the last one
than in the first, and what was said an hour ago does not tell what is to be seen now."""


def watch_it(
    client: Client,
    source: str,
    question: str,
    model: str | None,
    every_s: float,
    options: DialogueOptions,
) -> int:
    """The exit code. Raises PictureError where nothing can be shown, and SDKError."""
    options = DialogueOptions(truncation=_REMEMBERED) | options
    with client.realtime(model, type="realtime", **options) as session:
        shown = iter(frames(source, max_fps=session.max_fps))
        first = next(shown, None)
        if first is None:
            raise PictureError(f"{source} has no pictures")
        commands: queue.Queue[Command] = queue.Queue(_MOST_COMMANDS)
        show = _Show(session, itertools.chain([first], shown), commands)
        show.start()
        if sys.stdin.isatty():
            threading.Thread(target=_read_enter, args=(commands,), daemon=True).start()
        try:
            _request_again(session, question, every_s, commands, show)
        except KeyboardInterrupt:
            pass
        finally:
            show.stop()
    return 0


def _request_again(
    session: DialogueSession, question: str, every_s: float, commands: queue.Queue[Command], show: _Show
) -> None:
    """Every so often, whenever Enter is pressed, and once more at the end."""
    live = LiveText()
    due = time.monotonic() + every_s
    command: Command = "ask"
    while command != "end":
        try:
            command = commands.get(timeout=max(0.0, due - time.monotonic()) if every_s else None)
        except queue.Empty:
            command = "ask"
        due = time.monotonic() + every_s
        if show.error is not None:
            raise show.error
        text = f"{timestamp(show.seconds)}  "
        for piece in session.ask(question):
            text += piece
            live.partial(text)
        live.line(text)


class _Show(threading.Thread):
    """Shows frames until there are no more, then wishes for the end."""

    def __init__(
        self,
        session: DialogueSession,
        pictures: Iterable[tuple[int, PillowImage]],
        commands: queue.Queue[Command],
    ) -> None:
        super().__init__(name="sensorium-camera", daemon=True)
        self._session = session
        self._pictures = pictures
        self._commands = commands
        self._stopped = threading.Event()
        self.seconds = 0.0
        """Where the film is."""
        self.error: Exception | None = None

    def run(self) -> None:
        """Show them."""
        try:
            for timestamp_ms, picture in self._pictures:
                if self._stopped.is_set():
                    return
                self.seconds = timestamp_ms / 1000
                self._session.send_frame(picture, timestamp_ms)
        except SessionClosedError:
            pass  # the asking thread meets it, too
        except Exception as error:  # (a camera that was pulled out: the asking thread raises it)
            self.error = error
        self._commands.put("end")

    def stop(self) -> None:
        """Show nothing more."""
        self._stopped.set()


def _read_enter(commands: queue.Queue[Command]) -> None:
    for _ in sys.stdin:
        if not commands.full():
            commands.put("ask")
