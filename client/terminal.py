"""Live text on a terminal: the partial line grows in place, finals stay; elsewhere only finals are written.
And what a command says and returns when it fails.

Read next: `client/cli/commands.py`.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, TextIO

import msgspec

from .errors import AudioError, PictureError, SDKError

CLEAR_LINE = "\r\x1b[K"
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""What a text could do to a terminal other than to be shown on it; lines and tabs may stay."""
_RAW_IN_JSON: Final = re.compile(r"[\x7f-\x9f]")
"""Of them, those that JSON does not escape."""


def clean(text: str, out: TextIO) -> str:
    """What a server, a model or a file says, as it may be written to `out`: to a terminal without control
    characters, anywhere else as it is."""
    return _CONTROL.sub("", text) if out.isatty() else text


def one_line(text: object) -> str:
    """Text in one line, for terminals and logs: line breaks are spaces, control characters are escaped."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", " ".join(str(text).splitlines()))


def json_text(encoded: bytes) -> str:
    """The same JSON without raw control characters."""
    return _RAW_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", encoded.decode())


def write(text: str, *, end: str = "\n", out: TextIO | None = None) -> None:
    """Print a text from elsewhere, cleaned where it goes to a terminal."""
    out = out or sys.stdout
    print(clean(text, out), end=end, file=out, flush=True)


class LiveText:
    """Writes growing and final lines to one stream."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stdout
        self.is_terminal = self._out.isatty()

    def partial(self, text: str) -> None:
        """Show the text of the turn so far; its end, where it is wider than the terminal."""
        if self.is_terminal:
            text = clean(" ".join(text.splitlines()), self._out)
            width = shutil.get_terminal_size().columns - 3
            shown = text if len(text) <= width else f"…{text[1 - width :]}"
            self._out.write(f"{CLEAR_LINE}\x1b[2m{shown}\x1b[0m")
            self._out.flush()

    def line(self, text: str = "") -> None:
        """Write a line that stays, in place of the growing one."""
        self._out.write(f"{CLEAR_LINE if self.is_terminal else ''}{clean(text, self._out)}\n")
        self._out.flush()


class JsonLines:
    """In place of `LiveText`: what was heard as JSON objects, one a line, without what is for people."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stdout

    def event(self, event: msgspec.Struct) -> None:
        """Write an event as the server sent it."""
        self._out.write(f"{json_text(msgspec.json.encode(event))}\n")
        self._out.flush()

    def line(self, text: str = "") -> None:
        """Nothing."""


@contextmanager
def progress_bar(total: int) -> Iterator[Callable[[], None]]:
    """A function to call after each of `total` steps; draws a bar on standard error if it is a terminal.

    The bar is rich's, which comes with `sensorium[serve]`; without rich there is none.
    """
    try:
        from rich.console import Console
        from rich.progress import Progress
    except ImportError:
        yield lambda: None
        return
    console = Console(stderr=True)
    if total < 2 or not console.is_terminal:
        yield lambda: None
        return
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("transcribing", total=total)
        yield lambda: progress.advance(task)


def fail(message: object) -> None:
    """One line on standard error, without control characters of what it tells."""
    if isinstance(message, OSError) and message.filename is not None:
        message = f"{message.filename}: {message.strerror}"
    print(f"sensorium: {one_line(message)}", file=sys.stderr, flush=True)


def timestamp(seconds: float) -> str:
    """Position in a session as m:ss.t."""
    minutes, rest = divmod(seconds, 60)
    return f"{int(minutes)}:{rest:04.1f}"


def milliseconds(values: Iterable[float | None]) -> str:
    """Median and worst of some latencies in seconds, for people."""
    known = sorted(value for value in values if value is not None)
    if not known:
        return "–"
    return f"{1000 * known[len(known) // 2]:.0f} ms (worst {1000 * known[-1]:.0f} ms)"


def guarded(command: Callable[[], int]) -> int:
    """Run a command; what a person can act on becomes one line and an exit code."""
    try:
        return command()
    except (AudioError, PictureError) as error:
        fail(error)
        return 2
    except BrokenPipeError:
        raise  # nobody reads what we print
    except FileNotFoundError as error:
        return usage(error)
    except (SDKError, OSError) as error:
        fail(error)
        return 1
    except ValueError as error:
        return usage(error)


def usage(message: object) -> int:
    """What a command answers that was called wrongly."""
    fail(message)
    return 2
