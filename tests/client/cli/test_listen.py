"""`sensorium listen`: what it prints, and its exit codes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from sensorium.client.cli import commands
from sensorium.protocols.realtime.codec import encode_event
from sensorium.protocols.realtime.events import Error, ErrorDetail, InputAudioBufferUtteranceEnded
from support.fake_server import FakeDialog, serve_realtime


class Deaf(FakeDialog):
    """Refuses what it hears with one code after the other."""

    codes: tuple[str, ...] = ("invalid_audio", "audio_stream_broken")

    def _receive_audio(self, audio: bytes) -> list[str]:
        code, *rest = self.codes
        self.codes = tuple(rest)
        return [encode_event(Error(error=ErrorDetail(code=code, message=f"no: {code}")))]


def test_no_microphone_says_to_name_a_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "sounddevice", None)
    assert commands.listen() == 2
    assert "name a WAV file: sensorium listen FILE" in capsys.readouterr().err


def test_a_wav_file_is_not_sent_from_standard_input(capsys: pytest.CaptureFixture[str]) -> None:
    """No server takes one as it comes: who pipes one is told before."""
    assert commands.listen(Path("-")) == 2
    assert "--audio-format, the name of its container or auto" in capsys.readouterr().err


def test_a_recording_that_is_refused_is_no_success(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = tmp_path / "one.webm", tmp_path / "two.webm"
    one.write_bytes(b"?")
    two.write_bytes(b"?" * 20_000)  # two appends
    for file, code, expected in (
        (one, 1, ""),
        (two, 2, "sensorium: the server takes no more of this recording\n"),
    ):
        with serve_realtime(Deaf) as url:
            assert commands.listen(file, audio_format="audio/webm", base_url=url) == code
        shown = capsys.readouterr()
        assert shown.out.startswith("(the server refused a message: no: invalid_audio)\n")
        assert shown.err == expected


@pytest.mark.slow
def test_listening_to_a_file_prints_finals_and_latencies(
    recording: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serve_realtime() as url:
        assert commands.listen(recording, base_url=url) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "0:00.0  one two"
    assert lines[2] == "audio          1.0 s, 1 turn"
    assert lines[3].startswith("first partial  ")
    assert lines[4].startswith("final          ")


def test_a_container_has_no_latencies_and_others_are_told_of(
    tmp_path: Path, recording: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is sent as fast as it is taken, so that its text may come before it would have been spoken."""
    with serve_realtime() as url:
        assert commands.listen(recording, audio_format="auto", base_url=url) == 0
    expected = capsys.readouterr().out
    assert "audio " in expected
    assert "first partial" not in expected
    other = tmp_path / "talk.mp3"
    other.write_bytes(b"ID3")
    assert commands.listen(other) == 2
    assert "send it as it is: --audio-format auto" in capsys.readouterr().err


@pytest.mark.slow
def test_listening_as_json_is_the_sessions_events_and_nothing_else(
    recording: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serve_realtime() as url:
        assert commands.listen(recording, base_url=url, json=True) == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    kinds = [event["type"].rsplit(".", 1)[1] for event in events]
    assert "delta" in kinds
    assert kinds[-1] == "completed"


class Answering(FakeDialog):
    """Says where an utterance ended, behind each answer."""

    def receive(self, frame: str | bytes) -> list[str]:
        expected = super().receive(frame)
        for index, one in reversed(list(enumerate(expected))):
            if "transcription.completed" in one:
                item_id = json.loads(one)["item_id"]
                ended = InputAudioBufferUtteranceEnded(item_id=item_id, last_word_end_ms=900)
                expected.insert(index + 1, encode_event(ended))
        return expected


@pytest.mark.slow
def test_an_utterance_is_a_paragraph_or_an_event(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serve_realtime(Answering) as url:
        assert commands.listen(recording, base_url=url, options={"utterance_end_ms": 900}) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[:3] == ["0:00.0  one two", "", ""]
        assert commands.listen(recording, base_url=url, options={"utterance_end_ms": 900}, json=True) == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [event["type"].rsplit(".", 1)[1] for event in events][-2:] == ["completed", "utterance_ended"]


@pytest.mark.slow
def test_a_session_that_breaks_is_1(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serve_realtime(lambda: FakeDialog(close_at_ms=600)) as url:
        assert commands.listen(recording, base_url=url) == 1
    assert "code 1011 (server fault), reason: the fake broke" in capsys.readouterr().err
