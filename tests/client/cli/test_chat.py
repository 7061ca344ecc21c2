"""`sensorium chat`: what it prints and remembers, and how it ends."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from sensorium.actors.commands import run
from sensorium.client import ChatDelta, Client
from sensorium.client.cli import commands
from sensorium.client.cli.chat import AnswerWriter, Files, converse, read_question

PNG = b"\x89PNG\r\n\x1a\n"


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


class Server:
    """Answers with a number, or as it is told; remembers what it was asked."""

    def __init__(self, *special: httpx.Response | None) -> None:
        self.special = list(special)
        self.conversations: list[list[dict[str, Any]]] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.conversations.append(json.loads(request.read())["messages"])
        if self.special and (answer := self.special.pop(0)) is not None:
            return answer
        deltas: tuple[dict[str, str], ...] = ({"content": f"answer {len(self.conversations)}"}, {})
        chunks = [
            {"choices": [{"delta": each, "finish_reason": None if each else "stop"}]} for each in deltas
        ]
        return httpx.Response(200, content="".join(f"data: {json.dumps(each)}\n\n" for each in chunks))

    @property
    def client(self) -> Client:
        return Client("http://a.test", http_client=httpx.Client(transport=httpx.MockTransport(self)))


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is typed next, to be filled."""
    lines: list[str] = []

    def read(prompt: str) -> str:
        assert prompt == "> "
        if not lines:
            raise EOFError
        return lines.pop(0)

    monkeypatch.setattr("builtins.input", read)
    return lines


def words(messages: list[dict[str, Any]]) -> list[object]:
    return [each["content"] for each in messages]


def test_a_conversation_remembers(typed: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    server = Server()
    typed += ["First", "", "Second", "/new", "Third"]
    assert converse(server.client, Files(), {"system": "Be brief."}) == 0
    assert [words(each) for each in server.conversations] == [
        ["Be brief.", "First"],
        ["Be brief.", "First", "answer 1", "Second"],
        ["Be brief.", "Third"],
    ]
    assert "answer 1\nanswer 2\nanswer 3\n" in capsys.readouterr().out


def test_files_go_with_the_next_question_only(typed: list[str], tmp_path: Path) -> None:
    server = Server()
    (tmp_path / "a.png").write_bytes(PNG)
    typed += [f"/image {tmp_path / 'a.png'}", "/image none.png", "/video", "What?", "And?", "/exit", "never"]
    assert converse(server.client, Files(), {}) == 0
    first, second = server.conversations
    assert [part["type"] for part in first[0]["content"]] == ["image_url", "text"]
    assert second[2]["content"] == "And?"
    assert typed == ["never"]


def test_what_fails_is_a_line_and_the_question_may_be_asked_again(
    typed: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    refused = httpx.Response(400, json={"error": {"message": "no", "code": "c", "param": "messages"}})
    server = Server(refused)
    typed += ["First", "First"]
    assert converse(server.client, Files(), {}) == 0
    assert [words(each) for each in server.conversations] == [["First"], ["First"]]
    shown = capsys.readouterr()
    assert shown.err == "sensorium: no (400, c, param: messages)\n"
    assert "answer 2\n" in shown.out


def test_ctrl_c_ends_an_answer_and_not_the_conversation(
    typed: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    closed: list[bool] = []

    class Interrupted(httpx.SyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            yield b'data: {"choices": [{"delta": {"content": "answ"}}]}\n\n'
            raise KeyboardInterrupt

        def close(self) -> None:
            closed.append(True)

    server = Server(httpx.Response(200, stream=Interrupted()))
    typed += ["First", "Second"]
    assert converse(server.client, Files(), {"system": "Be brief."}) == 0
    assert closed
    assert words(server.conversations[1]) == ["Be brief.", "First", "answ", "Second"]
    assert "answ\nanswer 2\n" in capsys.readouterr().out


def test_ctrl_c_at_the_prompt_loses_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    keys: list[str | type[BaseException]] = ["First", KeyboardInterrupt, "Second", EOFError]

    def read(_: str) -> str:
        key = keys.pop(0)
        if isinstance(key, str):
            return key
        raise key

    monkeypatch.setattr("builtins.input", read)
    server = Server()
    assert converse(server.client, Files(), {}) == 0
    assert words(server.conversations[1]) == ["First", "answer 1", "Second"]
    assert "\n(/exit or Ctrl-D leaves)\n" in capsys.readouterr().out


def test_thoughts_are_dim_on_a_terminal_only() -> None:
    deltas = (ChatDelta(reasoning="Hm."), ChatDelta("Blue\x1b]0;title\x07\r"), ChatDelta(" it\nis"))
    screen, file = Terminal(), io.StringIO()
    for out in (screen, file):
        writer = AnswerWriter(out)
        for delta in deltas:
            writer.add(delta)
        writer.end()
        writer.end()
    assert screen.getvalue() == "\x1b[2mHm.\n\x1b[0mBlue]0;title it\nis\n"
    assert file.getvalue() == "Blue\x1b]0;title\x07\r it\nis\n"
    thought = Terminal()
    writer = AnswerWriter(thought)
    writer.add(deltas[0])
    writer.end()
    assert thought.getvalue() == "\x1b[2mHm.\x1b[0m\n"


def test_where_a_question_is_read() -> None:
    piped = io.TextIOWrapper(io.BytesIO(b" diff \xff\n"))
    assert read_question(["Say:", "-"], piped) == "Say:\ndiff �"
    assert read_question([], io.TextIOWrapper(io.BytesIO(b"all of it\n"))) == "all of it"
    assert read_question(["Hi"], piped) == "Hi"
    assert read_question([], Terminal()) is None


def test_bad_usage_is_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "none.png"
    assert run(["chat", "Hi", "--image", str(picture)]) == 2
    assert run(["chat", "Hi", "--base-url", "http://127.0.0.1:9"]) == 1
    assert run(["chat", "Hi", "--base-url", "nonsense"]) == 2
    assert run(["chat", ""]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == f"sensorium: {picture}: No such file or directory"
    assert len(lines) == 4
    assert all(line.startswith("sensorium: ") for line in lines)


def test_the_command_takes_its_options(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server = Server()
    monkeypatch.setattr(commands, "Client", lambda *_: server.client)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"the diff\n")))
    assert run(["chat", "Describe:", "-", "--system", "Be brief.", "--max-tokens", "5"]) == 0
    assert words(server.conversations[0]) == ["Be brief.", "Describe:\nthe diff"]
    assert capsys.readouterr().out == "answer 1\n"
