"""What is measured as a call is one, with the whole text in it, and what is measured as text is that text."""

from __future__ import annotations

import json

import bench_tool_calls as bench
import pytest
from sensorium.engine.text.tools.formats import FORMATS, FormatName
from sensorium.engine.text.tools.machine import AnswerFormat, AnswerMachine, read_whole
from sensorium.protocols.chat.response import AnswerMessage
from sensorium.protocols.chat.stream_events import message_of

TEXT = bench.words(40)


def read(name: FormatName, answer: str) -> AnswerMessage:
    machine = AnswerMachine(AnswerFormat(FORMATS[name]), {"note": bench.SCHEMA})
    return message_of(read_whole(machine, answer), shows_reasoning=True)


def test_every_format_is_measured() -> None:
    assert {name for name, _, _ in bench.answers(TEXT).values()} == set(FORMATS)


@pytest.mark.parametrize("shown", bench.answers(TEXT))
def test_calls_are_calls_and_text_is_text(shown: str) -> None:
    name, plain, call = bench.answers(TEXT)[shown]
    assert read(name, plain) == AnswerMessage(content=TEXT)
    message = read(name, call)
    assert message.content is None
    assert isinstance(message.tool_calls, list)
    (made,) = message.tool_calls
    assert made.function.name == "note"
    assert json.loads(made.function.arguments)["text"] == TEXT


def test_it_prints_a_row_for_each(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["bench", "--words", "20", "--rounds", "1"])
    bench.main()
    rows = capsys.readouterr().out.splitlines()[2:]
    assert [row[:18].strip() for row in rows] == list(bench.answers(TEXT))
