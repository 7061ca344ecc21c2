"""The log's two formats: one line for each record whatever a client sends, with the id of its request."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator

import pytest
import trio
from sensorium.actors.telemetry import log_writer
from sensorium.actors.telemetry.logs import (
    FIELDS,
    REQUEST_ID,
    LogConfig,
    LogContext,
    configure,
    flush,
    log_context,
    trace_id_of,
)

LOG = logging.getLogger("sensorium.test")


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(capture=False)


def said(out: io.StringIO) -> str:
    flush()
    return out.getvalue()


def test_text_lines_have_a_date_and_the_id() -> None:
    out = io.StringIO()
    configure(LogConfig(), out)
    LOG.info("outside")
    token = REQUEST_ID.set("req_1")
    LOG.warning("of a request")
    REQUEST_ID.reset(token)
    LOG.debug("too small")
    first, second = said(out).splitlines()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} INFO outside", first)
    assert second.endswith(" WARNING [req_1] of a request")


def test_what_a_client_sends_begins_no_line_and_speaks_to_no_terminal() -> None:
    out = io.StringIO()
    configure(LogConfig(), out)
    LOG.info("GET %s", "/\r\n2026-01-01 ERROR forged \x1b[31m\x9b")
    (line,) = said(out).split("\n")[:-1]
    assert r"/\x0d\x0a2026-01-01 ERROR forged \x1b[31m\x9b" in line


def test_json_lines_are_objects_with_fields_and_exceptions() -> None:
    out = io.StringIO()
    configure(LogConfig(log_level="debug", log_format="json"), out)
    LOG.debug("asked\nfor", extra={FIELDS: {"status": 200}})
    try:
        raise ZeroDivisionError
    except ZeroDivisionError:
        LOG.exception("failed")
    asked, failed = map(json.loads, said(out).splitlines())
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", asked.pop("time"))
    assert asked == {"level": "debug", "logger": "sensorium.test", "message": "asked\nfor", "status": 200}
    assert "ZeroDivisionError" in failed["exception"]


TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


def test_json_lines_name_the_trace_of_their_request_and_no_other() -> None:
    out = io.StringIO()
    configure(LogConfig(log_format="json"), out)
    with LogContext("req_3", TRACE).applied():
        LOG.info("of a request")
        with log_context().applied():
            LOG.info("of the same")
    LOG.info("of none")
    lines = [json.loads(line) for line in said(out).splitlines()]
    assert [line.get("trace_id") for line in lines] == [TRACE, TRACE, None]
    assert [line.get("request_id") for line in lines] == ["req_3", "req_3", None]


@pytest.mark.parametrize(
    ("traceparent", "trace_id"),
    [
        (f"00-{TRACE}-00f067aa0ba902b7-01", TRACE),
        (f"cc-{TRACE}-00f067aa0ba902b7-01-what-a-later-version-adds", TRACE),
        (f"ff-{TRACE}-00f067aa0ba902b7-01", None),
        (f"00-{TRACE.upper()}-00f067aa0ba902b7-01", None),
        (f"00-{'0' * 32}-00f067aa0ba902b7-01", None),
        (f"00-{TRACE}-{'0' * 16}-01", None),
        (f"00-{TRACE}-00f067aa0ba902b7", None),
        ("\r\nforged", None),
        (None, None),
    ],
)
def test_a_trace_is_what_a_well_formed_header_names(traceparent: str | None, trace_id: str | None) -> None:
    assert trace_id_of(traceparent) == trace_id


def test_libraries_speak_through_the_log_or_not_at_all() -> None:
    out = io.StringIO()
    configure(LogConfig(), out)
    logging.getLogger("httpx").info("HTTP Request")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("a library's worry", UserWarning, stacklevel=1)
    (line,) = said(out).splitlines()
    assert "WARNING" in line
    assert "a library's worry" in line


async def test_tasks_and_threads_of_a_request_have_its_id() -> None:
    out = io.StringIO()
    configure(LogConfig(log_format="json"), out)
    REQUEST_ID.set("req_2")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.to_thread.run_sync, LOG.info, "in a thread of a task")
    assert json.loads(said(out))["request_id"] == "req_2"


def test_where_nobody_reads_lines_are_left_out_and_nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_writer, "MAX_LINES", 100)
    monkeypatch.setattr(log_writer, "_FLUSH_S", 0.01)
    reading, writing = os.pipe()
    with open(reading, encoding="utf-8") as reader, open(writing, "w", encoding="utf-8") as stream:
        configure(LogConfig(), stream)
        for number in range(1000):
            LOG.info("%d %s", number, "x" * 1000)  # more than a pipe and the queue hold
        flush()
        monkeypatch.setattr(log_writer, "_FLUSH_S", 60.0)
        lines: list[str] = []
        while not lines or "read again" not in lines[-1]:
            lines.append(reader.readline())
            if len(lines) == 50:
                LOG.info("read again")
    kept = [int(line.split()[3]) for line in lines if line.split()[2] == "INFO" and "read again" not in line]
    left_out = [int(line.split()[3]) for line in lines if "lines of the log were left out" in line]
    assert kept == sorted(kept)
    assert len(kept) + sum(left_out) == 1000
    assert sum(left_out) > 500


def test_what_is_said_last_is_written_before_the_end() -> None:
    """Also where the interpreter is not asked."""
    expected = "import logging, os; from sensorium.actors.telemetry.logs import *; configure(LogConfig())"
    for end in ("", "flush(); os._exit(0)"):
        done = subprocess.run(
            [sys.executable, "-c", f"{expected}; logging.error('the last word'); {end}"],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        assert done.stderr.endswith("ERROR the last word\n")


def test_who_reads_nothing_holds_up_no_end() -> None:
    expected = "import logging, sys; from sensorium.actors.telemetry.logs import *; configure(LogConfig())"
    fills = "[logging.error('x' * 1000) for _ in range(2000)]"
    with subprocess.Popen([sys.executable, "-c", f"{expected}; {fills}"], stderr=subprocess.PIPE) as process:
        assert process.wait(60) == 0
