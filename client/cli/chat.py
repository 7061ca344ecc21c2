"""`sensorium chat`: one question, or a conversation on a terminal, with what was said before in mind.

Read next: `client/chat/requests.py`.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TextIO

from ..chat.answer import ChatAnswer, ChatDelta
from ..chat.machine import ChatOptions
from ..chat.messages import MediaKind, Message, conversation
from ..client import Client
from ..errors import SDKError
from ..terminal import clean, fail
from ..upload import is_address

HELP: Final = """\
/image FILE, /video FILE, /audio FILE   show it with your next question
/new                                    forget the conversation
/exit                                   leave (or Ctrl-D); Ctrl-C ends an answer"""
_DIM: Final = "\x1b[2m"
_PLAIN: Final = "\x1b[0m"
_FILES: Final[dict[str, MediaKind]] = {"/image": "image", "/video": "video", "/audio": "audio"}


@dataclass(slots=True)
class Files:
    """What is shown with the next question: paths and addresses."""

    image: list[str] = field(default_factory=list)
    video: list[str] = field(default_factory=list)
    audio: list[str] = field(default_factory=list)

    def check(self) -> None:
        """Raise OSError for a path that cannot be read."""
        for path in (*self.image, *self.video, *self.audio):
            if not is_address(path):
                Path(path).open("rb").close()

    def messages(self, text: str) -> list[Message]:
        """The question with its files. Raises OSError for a path that cannot be read."""
        return conversation(text, images=self.image, videos=self.video, audio=self.audio)


def answer_once(client: Client, question: str, files: Files, options: ChatOptions) -> int:
    """Print the answer to one question; the exit code."""
    writer = AnswerWriter(sys.stdout)
    try:
        for event in client.chat.stream(files.messages(question), **options):
            if isinstance(event, ChatDelta):
                writer.add(event)
    finally:
        writer.end()
    return 0


def converse(client: Client, files: Files, options: ChatOptions) -> int:
    """Questions from a terminal until it ends; what fails is one line, and the conversation goes on."""
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 (line editing and history for `input`)
    print(f"{_DIM}{HELP}{_PLAIN}")
    history: list[Message] = []
    while True:
        try:
            line = input("> ").strip()
        except EOFError:
            print()
            return 0
        except KeyboardInterrupt:  # often meant for an answer that has just ended by itself
            print("\n(/exit or Ctrl-D leaves)")
            continue
        if line.startswith("/"):
            if line == "/exit":
                return 0
            if line == "/new":
                history, files = [], Files()
            else:
                _obey(line, files)
        elif line:
            try:
                history, files = _turn(client, history, line, files, options), Files()
            except (SDKError, OSError, ValueError) as error:
                fail(error)


def _obey(line: str, files: Files) -> None:
    """A command of the conversation: a file for the next question, or help."""
    command, _, path = line.partition(" ")
    kind, path = _FILES.get(command), path.strip()
    if kind is None or not path:
        print(HELP)
        return
    try:
        Files(**{kind: [path]}).check()
    except OSError as error:
        fail(error)
    else:
        getattr(files, kind).append(path)


def _turn(
    client: Client, history: Sequence[Message], line: str, files: Files, options: ChatOptions
) -> list[Message]:
    """Ask, print, and give the conversation with its answer; one that Ctrl-C ends stays as far as it came."""
    chat_messages = [*history, *files.messages(line)]
    system = options.get("system")
    more: ChatOptions = {**options, "system": None if history else system}
    writer = AnswerWriter(sys.stdout)
    events = client.chat.stream(chat_messages, **more)
    try:
        for event in events:
            if isinstance(event, ChatDelta):
                writer.add(event)
            elif isinstance(event, ChatAnswer):
                chat_messages = event.messages
    except KeyboardInterrupt:
        if system is not None and not history:
            chat_messages.insert(0, {"role": "system", "content": system})
        chat_messages.append({"role": "assistant", "content": writer.text or "…"})
    finally:
        events.close()  # the server stops, too
        writer.end()
    return chat_messages


class AnswerWriter:
    """Writes an answer as it grows; what is thought is dim, and on terminals only."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._is_terminal = out.isatty()
        self._is_dim = False
        self._has_line = True
        """Nothing stands behind the last line end."""
        self._text: list[str] = []

    @property
    def text(self) -> str:
        """The answer so far."""
        return "".join(self._text)

    def add(self, delta: ChatDelta) -> None:
        """Write what is new."""
        if delta.reasoning and self._is_terminal:
            self._write(delta.reasoning, is_dim=True)
        if delta.text:
            self._text.append(delta.text)
            self._write(delta.text, is_dim=False)

    def end(self) -> None:
        """End the last line."""
        if self._is_dim:
            self._out.write(_PLAIN)
            self._is_dim = False
        if not self._has_line:
            self._out.write("\n")
            self._has_line = True
        self._out.flush()

    def _write(self, text: str, *, is_dim: bool) -> None:
        shown = clean(text, self._out)
        if is_dim != self._is_dim:
            gap = "" if is_dim or self._has_line else "\n"
            self._out.write(f"{gap}{_DIM if is_dim else _PLAIN}")
            self._is_dim = is_dim
        if shown:
            self._has_line = shown.endswith("\n")
        self._out.write(shown)
        self._out.flush()


def read_question(words: Sequence[str], stdin: Any) -> str | None:  # noqa: ANN401 (sys.stdin, or a test's)
    """The question in the words of a command line, where - is standard input; without words it is all of
    that, unless it is a terminal: None, then questions are to be typed."""
    if not words and stdin.isatty():
        return None
    return "\n".join(
        stdin.buffer.read().decode(errors="replace").strip() if word == "-" else word
        for word in words or ["-"]
    )
