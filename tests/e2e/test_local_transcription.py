"""`LocalEngine.transcribe`: the transcript that a server gives, in this process, and what may be left out."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from sensorium import AsyncLocalEngine, Client, LocalEngine
from sensorium.actors.local.speech import TranscribeOptions
from sensorium.protocols.errors import BadRequestError, MediaError
from sensorium.protocols.transcription.options import Granularity
from sensorium.protocols.transcription.transcript import TimedSegment, Transcript
from support.audio_files import tracks
from support.server import Server
from support.speech_conformance import assert_streamed

pytestmark = pytest.mark.slow

SETTINGS: dict[str, Any] = {"device": "cpu", "dtype": "float32", "num_threads": 1, "kv_memory": "16MiB"}


def test_a_recording_has_the_transcript_that_a_server_gives(server: Server, folders: dict[str, Path]) -> None:
    path = Path(__file__).parents[2] / "examples" / "data" / "kitchen_lights.wav"
    times: list[Granularity] = ["segment", "word"]
    with Client(server.url) as client:
        served = client.transcribe(path, timestamp_granularities=times)
        searched = client.transcribe(path, beam_size=3, language="de")
    samples, rate = soundfile.read(path, dtype="float32")
    with LocalEngine("tiny-whisper", **SETTINGS) as whisper:
        for recording in (path, path.read_bytes(), (samples, rate)):
            own = whisper.transcribe(recording, timestamp_granularities=times)
            assert own.text
            assert (own.text, own.language, own.languages) == (served.text, served.language, served.languages)
            assert (own.segments, own.words) == (served.segments, served.words)
            assert_streamed(list(whisper.segments(recording, timestamp_granularities=times)), own)
        assert not whisper.transcribe(path, language="en").words
        assert whisper.transcribe(path, beam_size=3, language="de").text == searched.text
        for bad, param in (
            ({"language": "xx"}, "language"),
            ({"temperature": 7}, "temperature"),
            ({"beam_size": 9}, "beam_size"),
            ({"a": 1}, "a"),
        ):
            with pytest.raises(BadRequestError) as caught:
                whisper.transcribe(path, **bad)
            assert caught.value.param == param
        gap = np.zeros(5 * rate, np.float32)
        parted = (np.concatenate((gap, samples, gap, samples, gap)), rate)
        transcript = whisper.transcribe(parted, timestamp_granularities=times, vad_filter=True)
        assert transcript.text == f"{own.text} {own.text}"
        assert transcript.duration == pytest.approx(len(parted[0]) / rate)
        for place, begins in ((0, 5.0), (len(own.words), 10.0 + len(samples) / rate)):
            for word, alone in zip(transcript.words[place:], own.words, strict=False):
                assert word.start == pytest.approx(begins + alone.start, abs=0.4)
        assert transcript.segments[-1].end == transcript.words[-1].end
        segments = list(whisper.segments(parted, timestamp_granularities=times, vad_filter=True))
        assert_streamed(segments, transcript)
        assert not any(each.words for each in whisper.segments(parted, vad_filter=True))
        silence = whisper.transcribe((gap, rate), vad_filter=True, language="en")
        assert (silence.text, silence.language, silence.duration) == ("", "en", 5.0)
        calls = np.stack((samples, 0 * samples), axis=1)
        separate = whisper.transcribe((calls, rate), multichannel=True)
        assert [channel.text for channel in separate.channels] == [own.text, ""]
        assert separate.text == own.text
        for bad_sound in (np.zeros((8, 9), np.float32), np.zeros((2, 2, 2), np.float32), "x"):
            with pytest.raises(BadRequestError) as caught:
                whisper.transcribe((bad_sound, rate), multichannel=True)
            assert caught.value.param == "audio"
        with pytest.raises(MediaError):
            whisper.transcribe(b"no recording")
        recorded = tracks(0 * samples, samples, default=0, rate=rate)
        assert [whisper.transcribe(recorded, audio_track=track).text for track in (0, 1)] == ["", own.text]
        for sound, error in ((recorded, MediaError), ((samples, rate), BadRequestError)):
            with pytest.raises(error, match="audio_track") as refused:
                whisper.transcribe(sound, audio_track=2)
            assert refused.value.param == "audio_track"
        with pytest.raises(BadRequestError, match="takes no prompts"):
            whisper.generate("The quick brown fox")
        with pytest.raises(BadRequestError, match="multichannel"):
            list(whisper.segments((calls, rate), multichannel=True))
        again, segments = asyncio.run(_transcribe_async(path))
        assert again == whisper.transcribe(path)
        assert_streamed(segments, again)
    with (
        LocalEngine(folders["text"], **SETTINGS) as text,
        pytest.raises(BadRequestError, match="does not transcribe"),
    ):
        text.transcribe(path)


def test_a_document_is_the_one_that_a_server_gives(server: Server) -> None:
    path = Path(__file__).parents[2] / "examples" / "data" / "kitchen_lights.wav"
    with Client(server.url) as client, LocalEngine("tiny-whisper", **SETTINGS) as whisper:
        words_of_file = whisper.transcribe(path, timestamp_granularities=["word"])
        for is_filtered in (False, True):
            shown = whisper.transcribe(
                path, response_format="srt", max_words_per_line=1, vad_filter=is_filtered
            )
            assert shown == client.transcribe(
                path, response_format="srt", max_words_per_line=1, vad_filter=is_filtered
            )
            assert shown.split("\n")[2::4] == [word.word for word in words_of_file.words]
        marked = whisper.transcribe(path, response_format="vtt", highlight_words=True)
        assert marked.count("<u>") == len(words_of_file.words)
        assert whisper.transcribe(path, response_format="text").strip() == words_of_file.text
        with pytest.raises(BadRequestError, match="`max_line_width` needs `response_format` srt or vtt"):
            whisper.transcribe(path, max_line_width=20)
        with pytest.raises(BadRequestError, match="response_format"):
            whisper.transcribe(path, response_format="verbose_json")  # type: ignore[call-overload]
    assert asyncio.run(_document_async(path)) == marked


async def _document_async(path: Path) -> str:
    async with AsyncLocalEngine("tiny-whisper", **SETTINGS) as whisper:
        return await whisper.transcribe(path, response_format="vtt", highlight_words=True)


async def _transcribe_async(path: Path) -> tuple[Transcript, list[TimedSegment]]:
    async with AsyncLocalEngine("tiny-whisper", **SETTINGS) as whisper:
        return await whisper.transcribe(path), [each async for each in whisper.segments(path)]


def test_a_keyword_is_spelt_as_it_is_given(sentences: bytes) -> None:
    path = sentences[: 2 * 16_000 * 3]  # the first one
    with LocalEngine("tiny-qwen3-asr", **SETTINGS) as engine:
        plain = engine.transcribe(path).text
        assert plain.startswith("Good morning Alice, how")
        for keywords in (["Alyce"], ["Kubernetes", "Alyce"]):
            assert engine.transcribe(path, keywords=keywords, keyword_boost=0).text == plain
            transcript = engine.transcribe(path, keywords=keywords, keyword_boost=4).text
            assert transcript == plain.replace("Alice", "Alyce")
        assert engine.transcribe(path, hotwords="Kubernetes, Wettermann").text == plain, "nobody said these"
        searched, drawn = TranscribeOptions(beam_size=3), TranscribeOptions(temperature=0.2, seed=1)
        for others in (searched, drawn):
            others["keywords"] = ["Alyce"]
            others["keyword_boost"] = 0
            segments = engine.transcribe(path, **others).text
            others["keyword_boost"] = 4
            assert engine.transcribe(path, **others).text == segments
