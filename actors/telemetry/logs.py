"""What the log says and how: lines for people or JSON for machines, each with the request it belongs to.

The id of a request and that of its trace are context variables, which tasks and threads inherit from their
starter: so no function passes them on, and none can forget them. An actor's task serves many requests: it
takes the `LogContext` of one where it writes about it, and the models' process has it with each call.
`actors/http/access_log.py` sets them; `log_writer.py` writes.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal, TextIO

import msgspec

from .log_writer import LogWriter

Level = Literal["debug", "info", "warning", "error"]
Format = Literal["text", "json"]

REQUEST_ID: Final[ContextVar[str | None]] = ContextVar("request_id", default=None)
"""Of the request that is being worked on, None outside of any."""
TRACE_ID: Final[ContextVar[str | None]] = ContextVar("trace_id", default=None)
"""Of the trace (https://www.w3.org/TR/trace-context/) that the client's request is a part of."""
FIELDS: Final = "fields"
"""Attribute of a log record: a mapping of what machines read beside the message."""

_FIT: Final = re.compile(r"[A-Za-z0-9._:;=@/+~-]{1,128}")
_TRACEPARENT: Final = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?"
)
_ESCAPES: Final = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))}
"""What a client sends must not begin a line of its own, nor speak to a terminal."""
_ESCAPES_OF_LINES: Final = {code: text for code, text in _ESCAPES.items() if code != ord("\n")}
_CHATTY: Final = ("httpcore", "httpx", "huggingface_hub", "filelock", "urllib3")


def request_id_of(given: str | None) -> str:
    """The id of a request: what its client calls it, if that is short and plain, or else a new one."""
    return given if given and _FIT.fullmatch(given) else f"req_{secrets.token_hex(12)}"


def trace_id_of(traceparent: str | None) -> str | None:
    """The id of the trace that a `traceparent` header names, if it is well-formed."""
    found = _TRACEPARENT.fullmatch(traceparent or "")
    return None if found is None else found[1]


class LogContext(msgspec.Struct, frozen=True, array_like=True):
    """What the lines about one request name it by, on any task and in any process."""

    request_id: str | None = None
    trace_id: str | None = None

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Lines written meanwhile are about that request."""
        tokens = REQUEST_ID.set(self.request_id), TRACE_ID.set(self.trace_id)
        try:
            yield
        finally:
            REQUEST_ID.reset(tokens[0])
            TRACE_ID.reset(tokens[1])


def log_context() -> LogContext:
    """Of the request that is being worked on."""
    return LogContext(REQUEST_ID.get(), TRACE_ID.get())


@dataclass(frozen=True, slots=True)
class LogConfig:
    """What is written to standard error.

    Attributes
    ----------
    log_level
        Lowest level that is written: debug, info, warning or error.
    log_format
        text, or json (one object per line).
    access_log
        Whether each request has a line in the log, on or off.
    access_log_skip
        Path whose requests have no such line; repeat it for several. none: every path has.
    """

    log_level: Level = "info"
    log_format: Format = "text"
    access_log: Literal["on", "off"] = "on"
    access_log_skip: tuple[str, ...] = ("/health", "/live", "/ping", "/metrics", "/load")


def id_headers(request_id: str) -> list[tuple[bytes, bytes]]:
    """What tells a client the id of its request: OpenAI's header, and Anthropic's."""
    return [(name, request_id.encode()) for name in (b"request-id", b"x-request-id")]


def configure(config: LogConfig, stream: TextIO = sys.stderr) -> None:
    """Set up the root logger of this process, and quieten libraries: call it before they are imported."""
    if config.log_format == "json" or not stream.isatty():
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")  # transformers' bars heed it as well
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    handler = LogWriter(stream)
    handler.setFormatter(JsonFormatter() if config.log_format == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(config.log_level.upper())
    logging.captureWarnings(capture=True)
    for name in _CHATTY:
        logging.getLogger(name).setLevel(logging.WARNING)


def flush() -> None:
    """Have written what was logged, before something that ends the process; waits for no reader for long."""
    for handler in logging.getLogger().handlers:
        handler.flush()


def print_line(line: str) -> None:
    """Print it; where standard output is on a full disk, the log says it. Raises BrokenPipeError."""
    try:
        print(line, flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        logging.getLogger(__name__).error("standard output takes nothing (%s): %s", error.strerror, line)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is flushed at the exit


class TextFormatter(logging.Formatter):
    """`2026-11-22 11:09:29.123 INFO [req_…] message`, in local time; the id where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, and the traceback of an exception behind it."""
        record.asctime = _time(record).astimezone().isoformat(" ", "milliseconds")[:23]
        return super().format(record)

    def formatException(self, ei: Any) -> str:  # noqa: N802, ANN401 (logging's)
        """A traceback, whose messages may come from clients and files."""
        return super().formatException(ei).translate(_ESCAPES_OF_LINES)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (logging's name)
        """The line itself."""
        request_id = REQUEST_ID.get()
        about = f"[{request_id}] " if request_id else ""
        return f"{record.asctime} {record.levelname} {about}{record.message.translate(_ESCAPES)}"


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time (UTC), level, logger, message, the ids of request and trace, exception,
    and fields."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line: dict[str, object] = {
            "time": _time(record).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if request_id := REQUEST_ID.get():
            line["request_id"] = request_id
        if trace_id := TRACE_ID.get():
            line["trace_id"] = trace_id
        line |= getattr(record, FIELDS, {})
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line).decode()


def _time(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)
