"""What people see: text that grows in place, and times."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest
from sensorium.client.cli import commands
from sensorium.client.cli.transcribe import stream_files, transcribe_files
from sensorium.client.server_events import TextDelta
from sensorium.client.terminal import (
    JsonLines,
    LiveText,
    clean,
    fail,
    guarded,
    json_text,
    milliseconds,
    one_line,
    timestamp,
    write,
)


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def test_partial_text_grows_in_place_on_a_terminal_only() -> None:
    screen, file = Terminal(), io.StringIO()
    for out in (screen, file):
        live = LiveText(out)
        live.partial("good")
        live.line("good day")
    assert screen.getvalue() == "\r\x1b[K\x1b[2mgood\x1b[0m\r\x1b[Kgood day\n"
    assert file.getvalue() == "good day\n"


def test_a_long_partial_shows_its_end_on_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    screen = Terminal()
    LiveText(screen).partial("a" * 50 + "end")
    shown = screen.getvalue().split("\x1b[2m")[1].removesuffix("\x1b[0m")
    assert shown.startswith("…")
    assert shown.endswith("end")
    assert len(shown) < 20


def test_times_for_people() -> None:
    assert timestamp(83.25) == "1:23.2"
    assert milliseconds([0.1, None, 0.3, 0.2]) == "200 ms (worst 300 ms)"
    assert milliseconds([]) == "–"


HOSTILE = "a\x1b]0;pwn\x07\x1b[2J\x9b31m\x08\x7f\x85é\tb"
SHOWN = "a]0;pwn[2J31mé\tb"


def raw_controls(text: str) -> set[str]:
    return {each for each in text if (each < " " and each not in "\n\t") or "\x7f" <= each <= "\x9f"}


def screens_of(monkeypatch: pytest.MonkeyPatch) -> tuple[Terminal, Terminal]:
    """Standard output and standard error, from now on."""
    both = Terminal(), Terminal()
    monkeypatch.setattr(sys, "stdout", both[0])
    monkeypatch.setattr(sys, "stderr", both[1])
    return both


def test_text_from_elsewhere_is_cleaned_on_terminals_only() -> None:
    screen, file = Terminal(), io.StringIO()
    for out in (screen, file):
        write(f"{HOSTILE}\nnext", out=out)
    assert screen.getvalue() == f"{SHOWN}\nnext\n"
    assert file.getvalue() == f"{HOSTILE}\nnext\n"
    assert clean(HOSTILE, file) == HOSTILE


def test_live_text_writes_no_control_characters_but_its_own() -> None:
    screen, file = Terminal(), io.StringIO()
    for out in (screen, file):
        live = LiveText(out)
        live.partial(f"{HOSTILE}\nnext")
        live.line(HOSTILE)
    shown = f"{SHOWN.replace('31m', '31m ')} next"  # U+0085 ends a line, too
    assert (
        raw_controls(screen.getvalue().replace("\r\x1b[K", "").replace("\x1b[2m", "").replace("\x1b[0m", ""))
        == set()
    )
    assert "\n" not in screen.getvalue()[:-1]
    assert shown.split()[-1] == "next"
    assert file.getvalue() == f"{HOSTILE}\n"


@pytest.mark.parametrize("end", ["\n", "\r\n", "\x0b", "\x85", "\u2028"])
def test_an_error_is_one_line(end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    screens = screens_of(monkeypatch)
    fail(f"{HOSTILE}{end}INFO forged")
    line = screens[1].getvalue()
    assert line.startswith("sensorium: a\\x1b]0;pwn\\x07")
    assert line.endswith(" INFO forged\n")
    assert line.count("\n") == 1
    assert raw_controls(line) == set()


def test_so_is_that_of_a_file_whose_name_is_hostile(monkeypatch: pytest.MonkeyPatch) -> None:
    screens = screens_of(monkeypatch)

    def command() -> int:
        Path(f"/nowhere/{HOSTILE}\nINFO forged").read_bytes()
        return 0

    assert guarded(command) == 2
    assert screens[1].getvalue().count("\n") == 1
    assert raw_controls(screens[1].getvalue()) == set()


def test_json_says_the_same_without_raw_control_characters() -> None:
    encoded = json.dumps({"text": HOSTILE}, ensure_ascii=False).encode()
    text = json_text(encoded)
    assert raw_controls(text) == set()
    assert json.loads(text) == {"text": HOSTILE}
    out = io.StringIO()
    JsonLines(out).event(TextDelta(HOSTILE))
    assert raw_controls(out.getvalue()) == set()
    assert one_line("é 日本 \u202b") == "é 日本 \u202b"


class Hostile:
    """A client whose server says what speaks to terminals."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def models(self) -> list[Any]:
        return [
            SimpleNamespace(
                id=f"{HOSTILE}\nforged",
                abilities=[HOSTILE],
                input_modalities=[HOSTILE],
                languages=[],
                delays_ms=[80, 560],
            )
        ]

    def transcribe(self, *_: object, **options: object) -> Any:  # noqa: ANN401 (as the client's)
        names = ("text", "language", "languages", "duration", "segments", "words", "channels")
        whole = SimpleNamespace(**dict.fromkeys(names, HOSTILE) | {"channels": ()})
        return HOSTILE if "response_format" in options else whole

    def transcribe_stream(self, *_: object, **__: object) -> list[TextDelta]:
        return [TextDelta(each) for each in HOSTILE]


def test_languages_of_a_model_are_counted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    known = [[], ["en"], ["en", "de"]]
    common = {"abilities": ["transcribe"], "input_modalities": [], "delays_ms": None}
    found = [SimpleNamespace(id="m", languages=each, **common) for each in known]
    monkeypatch.setattr(Hostile, "models", lambda _: found)
    monkeypatch.setattr(commands, "Client", Hostile)
    assert commands.models("http://a.test", None) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["m: transcribe", "m: transcribe · 1 language", "m: transcribe · 2 languages"]


def test_no_command_writes_what_a_server_says_raw(monkeypatch: pytest.MonkeyPatch) -> None:
    screens = screens_of(monkeypatch)
    monkeypatch.setattr(commands, "Client", Hostile)
    client: Any = Hostile()
    assert commands.models("http://a.test", None) == 0
    assert screens[0].getvalue().count("\n") == 1
    for document in ("text", "srt", "json"):
        transcribe_files(client, ["a", f"b{HOSTILE}\n.wav"], document, {}, None)
    stream_files(client, ["a"], "text", {})
    assert "pwn" in screens[0].getvalue()
    assert raw_controls(screens[0].getvalue()) == set()
    assert "\x1b]" not in screens[1].getvalue()  # there the progress bar writes its own
    assert "\x9b" not in screens[1].getvalue()
