"""`sensorium transcribe`: what is a file and what an address, and what is told of each as it comes."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest
from sensorium.actors.commands import run
from sensorium.client.cli import commands
from sensorium.client.cli.transcribe import side_by_side
from sensorium.protocols.transcription.rest import segment_event
from sensorium.protocols.transcription.transcript import TimedSegment, Word
from support.fake_server import Answer, serve_rest

STREAM = (
    b'data: {"type":"transcript.text.delta","delta":"good"}\n\n'
    b'data: {"type":"transcript.text.done","text":"good"}\n\ndata: [DONE]\n\n'
)
NOWHERE = "http://127.0.0.1:9"


def test_no_name_is_no_file(capsys: pytest.CaptureFixture[str]) -> None:
    """Nor is it the folder one is in."""
    assert run(["transcribe", ""]) == 2
    assert capsys.readouterr().err == "sensorium: no such file: ''\n"


@pytest.mark.slow
def test_an_address_is_left_to_the_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    address = "https://a.test/talks/talk.wav?at=2"
    with serve_rest({"/v1/audio/transcriptions": Answer(b"good", content_type="text/plain")}) as (
        url,
        requests,
    ):
        words = ["transcribe", address, "data:audio/wav;base64,UklGRg==", "--base-url", url]
        assert run(words) == 0
        assert run([*words, "--output-dir", str(tmp_path)]) == 0
    assert {request.body.count(address.encode()) for request in requests} == {0, 1}
    assert not any(b'name="file"' in request.body for request in requests)
    assert capsys.readouterr().out.startswith(f"== {address}\ngood\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.txt", "talk.txt"]


def test_who_leaves_waits_for_no_file() -> None:
    begun: list[int] = []
    may_end = threading.Event()

    def work(number: int) -> int:
        begun.append(number)
        if number:
            may_end.wait()
        return number

    outcomes = side_by_side(work, range(20))
    assert next(outcomes) == 0
    outcomes.close()  # what Ctrl-C comes to
    may_end.set()
    assert len(begun) <= 5


def test_two_documents_of_one_name_are_refused(
    recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other" / recording.name
    other.parent.mkdir()
    other.write_bytes(recording.read_bytes())
    assert commands.transcribe([recording, other], output_dir=tmp_path / "out", base_url=NOWHERE) == 2
    assert f"two inputs would be written to {tmp_path / 'out' / 'talk.txt'}" in capsys.readouterr().err


@pytest.mark.slow
def test_streamed_text_is_printed_as_it_comes(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serve_rest({"/v1/audio/transcriptions": Answer(STREAM)}) as (url, _):
        assert commands.transcribe([recording], stream=True, base_url=url) == 0
    assert capsys.readouterr().out == "good\n"


@pytest.mark.slow
def test_streamed_segments_are_a_line_each(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    segment = TimedSegment(
        0, 0, 0.5, 1.0, "good", (), 0.0, -0.1, 1.0, 0.0, "en", words=(Word("good", 0.5, 1.0),)
    )
    other = recording.rename(recording.with_name(os.fsdecode(b"caf\xe9.wav")))  # of another encoding
    with serve_rest({"/v1/audio/transcriptions": Answer(segment_event(segment) + STREAM)}) as (url, requests):
        assert commands.transcribe([other], stream=True, format="json", base_url=url) == 0
    assert b"verbose_json" in requests[0].body
    assert json.loads(capsys.readouterr().out) == {
        "file": str(other.with_name("caf\ufffd.wav")),
        "start": 0.5,
        "end": 1.0,
        "text": "good",
        "language": "en",
        "words": [{"word": "good", "start": 0.5, "end": 1.0}],
    }


@pytest.mark.slow
def test_a_stream_that_fails_is_named_and_does_not_stop_the_others(
    recording: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (cut, _) = STREAM.split(b"\n\n", 1)
    with serve_rest({"/v1/audio/transcriptions": Answer(cut)}) as (url, requests):
        assert commands.transcribe([recording, recording], stream=True, base_url=url) == 1
        assert len(requests) == 2
    shown = capsys.readouterr()
    assert shown.out == "good\ngood\n"
    assert shown.err == f"sensorium: {recording}: the transcription broke off before its end\n" * 2
