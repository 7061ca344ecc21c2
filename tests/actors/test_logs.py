"""The log's two formats: one line for each record whatever a client sends, with the id of its request."""

from __future__ import annotations

import io
import json
import logging
import re
import warnings
from collections.abc import Iterator

import pytest
import trio
from sensorium.actors.logs import FIELDS, REQUEST_ID, LogConfig, configure

LOG = logging.getLogger("sensorium.test")


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(capture=False)


def test_text_lines_have_a_date_and_the_id() -> None:
    out = io.StringIO()
    configure(LogConfig(), out)
    LOG.info("outside")
    token = REQUEST_ID.set("req_1")
    LOG.warning("of a request")
    REQUEST_ID.reset(token)
    LOG.debug("too small")
    first, second = out.getvalue().splitlines()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} INFO outside", first)
    assert second.endswith(" WARNING [req_1] of a request")


def test_what_a_client_sends_begins_no_line_and_speaks_to_no_terminal() -> None:
    out = io.StringIO()
    configure(LogConfig(), out)
    LOG.info("GET %s", "/\r\n2026-01-01 ERROR forged \x1b[31m\x9b")
    (line,) = out.getvalue().split("\n")[:-1]
    assert r"/\x0d\x0a2026-01-01 ERROR forged \x1b[31m\x9b" in line


def test_json_lines_are_objects_with_fields_and_exceptions() -> None:
    out = io.StringIO()
    configure(LogConfig(log_level="debug", log_format="json"), out)
    LOG.debug("asked\nfor", extra={FIELDS: {"status": 200}})
    try:
        raise ZeroDivisionError
    except ZeroDivisionError:
        LOG.exception("failed")
    asked, failed = map(json.loads, out.getvalue().splitlines())
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", asked.pop("time"))
    assert asked == {"level": "debug", "logger": "sensorium.test", "message": "asked\nfor", "status": 200}
    assert "ZeroDivisionError" in failed["exception"]


def test_libraries_speak_through_the_log_or_not_at_all() -> None:
    out = io.StringIO()
    configure(LogConfig(), out)
    logging.getLogger("httpx").info("HTTP Request")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("a library's worry", UserWarning, stacklevel=1)
    (line,) = out.getvalue().splitlines()
    assert "WARNING" in line
    assert "a library's worry" in line


async def test_tasks_and_threads_of_a_request_have_its_id() -> None:
    out = io.StringIO()
    configure(LogConfig(log_format="json"), out)
    REQUEST_ID.set("req_2")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.to_thread.run_sync, LOG.info, "in a thread of a task")
    assert json.loads(out.getvalue())["request_id"] == "req_2"
