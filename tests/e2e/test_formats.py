"""One recording has the same words in every format, over REST and live."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from sensorium import Client
from sensorium.client import TextDelta, TextDone, TextSegment
from support.raw_socket import pcm, raw_session
from support.rendered_text import letters, subtitle_letters
from support.server import Server
from support.speech_conformance import assert_streamed

pytestmark = pytest.mark.slow


def post(server: Server, recording: bytes, **form: str) -> httpx.Response:
    answer = httpx.post(
        f"{server.api}/audio/transcriptions", files={"file": ("a.wav", recording)}, data=form, timeout=60
    )
    assert answer.status_code == 200, answer.text
    return answer


def live(server: Server, audio: bytes, granularities: list[str]) -> tuple[str, list[Any], list[Any]]:
    """Text, words and segments of a turn."""
    with raw_session(server.realtime) as session:
        session.configure(timestamp_granularities=granularities)
        session.append_binary(audio)
        session.commit()
        completed = session.until("completed", 60)
        segments = session.seen("input_audio_transcription.segment")
        return completed["transcript"], completed.get("words", []), segments


def test_every_format_and_live_have_the_same_words(server: Server, sentences: bytes) -> None:
    text = post(server, sentences, response_format="json").json()["text"]
    spoken = letters(text)
    assert len(text.split()) > 10
    assert letters(post(server, sentences, response_format="text").text) == spoken
    for granularity in ("word", "segment"):
        found = post(
            server,
            sentences,
            response_format="verbose_json",
            **{"timestamp_granularities[]": granularity},
        ).json()
        assert found["text"] == text
        parts = found[f"{granularity}s"]
        key = "word" if granularity == "word" else "text"
        assert letters("".join(part[key] for part in parts)) == spoken
    with Client(server.url) as client:
        events = list(client.transcribe_stream(sentences, timestamp_granularities=["segment", "word"]))
        whole = client.transcribe(sentences, timestamp_granularities=["segment", "word"])
    assert "".join(event.delta for event in events if isinstance(event, TextDelta)) == text
    assert_streamed([event for event in events if isinstance(event, TextSegment)], whole)
    assert events[-1] == TextDone(text, whole.language, whole.duration)
    for subtitles in ("srt", "vtt"):
        assert subtitle_letters(post(server, sentences, response_format=subtitles).text) == spoken
    audio = pcm(sentences)
    for granularities in ([], ["word"], ["segment"]):
        transcript, words, segments = live(server, audio, granularities)
        assert transcript == text
        assert not words or letters("".join(word["word"] for word in words)) == spoken
        assert not segments or letters("".join(segment["text"] for segment in segments)) == spoken
        assert (bool(words), bool(segments)) == ("word" in granularities, "segment" in granularities)


def test_repetitions_are_as_likely_as_is_asked_for(server: Server, conversation: bytes) -> None:
    """As vLLM's own client asks, and in every format."""
    plain = post(server, conversation, seed="4419", repetition_penalty="1").json()["text"]
    assert plain == post(server, conversation).json()["text"]
    options = {"seed": "4419", "repetition_penalty": "10"}
    text = post(server, conversation, **options).json()["text"]
    assert text != plain
    assert post(server, conversation, response_format="verbose_json", **options).json()["text"] == text


def test_many_clips_of_a_short_file_are_a_programs_work(server: Server, conversation: bytes) -> None:
    """Each takes a window of the encoder: 256 of them are two hours, in the class of who waits for 8 s."""

    def num_batch() -> float:
        lines = httpx.get(f"{server.url}/metrics").text.splitlines()
        name = "sensorium_engine_request_seconds_count"
        return sum(float(line.split()[-1]) for line in lines if line.startswith(name) and '"batch"' in line)

    starts = [f"{number / 4:g}" for number in range(42)]
    for most, is_batch in ((40, False), (42, True)):
        before = num_batch()
        post(server, conversation, clip_timestamps=",".join(starts[:most]))
        assert (num_batch() > before) is is_batch
