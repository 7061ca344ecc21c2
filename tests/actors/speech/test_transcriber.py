"""Whisper on whole recordings: windows are cut at quiet places, the language is found once."""

from __future__ import annotations

import numpy as np
import pytest
from sensorium.actors.speech.model import Samples
from sensorium.actors.speech.transcriber import Transcriber
from sensorium.protocols.errors import BadRequestError
from sensorium.protocols.messages import EncoderItem
from sensorium.protocols.transcript import TranscriptionOptions
from support.running_speech import random_folder, running_decoder, sound


@pytest.mark.slow
async def test_the_stream_is_the_transcript() -> None:
    audio = sound(16_000 * 9, seed=5)
    async with running_decoder() as decoder:
        transcriber = Transcriber(decoder)
        for language in (None, "zh"):
            options = TranscriptionOptions(language=language)
            deltas: list[str] = []
            streamed = await transcriber.transcribe(audio, options, on_delta=deltas.append)
            assert "".join(deltas) == streamed.text
            assert streamed.text == (await transcriber.transcribe(audio, options)).text


@pytest.mark.slow
async def test_windows_are_transcribed_each_by_itself_and_joined() -> None:
    audio = sound(16_000 * 7, seed=6)
    options = TranscriptionOptions(language="en", segment_timestamps=True)
    async with running_decoder() as decoder:
        transcriber = Transcriber(decoder)
        whole = await transcriber.transcribe(audio, options)
        windows = decoder.cut_rule.split(audio)
        parts = [await transcriber.transcribe(audio[start:end], options) for start, end in windows]
    assert len(windows) > 3
    assert whole.text == " ".join(part.text for part in parts if part.text)
    assert whole.duration == 7.0
    assert [segment.id for segment in whole.segments] == list(range(len(whole.segments)))
    starts = [segment.start for segment in whole.segments]
    assert starts == sorted(starts)


@pytest.mark.slow
async def test_the_language_is_that_of_the_first_window_with_sound() -> None:
    quiet = np.zeros(32_000 * 2, np.float32)
    audio = sound(30_000, seed=7)
    async with running_decoder() as decoder:
        transcriber = Transcriber(decoder)
        alone = await transcriber.transcribe(audio, TranscriptionOptions())
        before = decoder.engine.statistics().num_decode_tokens
        silence = await transcriber.transcribe(quiet, TranscriptionOptions())
        assert (silence.text, silence.language) == ("", ""), "nobody spoke in any"
        assert decoder.engine.statistics().num_decode_tokens == before
        behind = await transcriber.transcribe(np.concatenate((quiet, audio)), TranscriptionOptions())
        assert behind.language == alone.language


@pytest.mark.slow
async def test_features_of_a_window_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    audio = sound(30_000 * 3, seed=7)
    async with running_decoder() as decoder:
        looked_at: list[int] = []
        item = decoder.item

        def spy(samples: Samples) -> EncoderItem:
            looked_at.append(len(samples))
            return item(samples)

        monkeypatch.setattr(decoder, "item", spy)
        await Transcriber(decoder).transcribe(audio, TranscriptionOptions())
        assert sum(looked_at) == len(audio)
        await Transcriber(decoder).transcribe(audio, TranscriptionOptions(languages=("de", "zh")))
        assert sum(looked_at) == 2 * len(audio)


@pytest.mark.slow
async def test_hints_hold_the_language_and_reach_the_prompt() -> None:
    audio = sound(30_000, seed=7)
    async with running_decoder() as decoder:
        transcriber = Transcriber(decoder)
        found = {
            language: (
                await transcriber.transcribe(audio, TranscriptionOptions(languages=(language,)))
            ).language
            for language in transcriber.languages
        }
        assert all(given == answered for given, answered in found.items())
        hints = TranscriptionOptions(keywords=("lights", "kitchen"), prompt="Turn on.", language="en")
        as_prompt = TranscriptionOptions(prompt="lights, kitchen. Turn on.", language="en")
        assert (await transcriber.transcribe(audio, hints)).text == (
            await transcriber.transcribe(audio, as_prompt)
        ).text


@pytest.mark.slow
async def test_empty_audio_is_an_empty_transcript() -> None:
    async with running_decoder() as decoder:
        transcript = await Transcriber(decoder).transcribe(np.zeros(0, np.float32), TranscriptionOptions())
    assert (transcript.text, transcript.duration) == ("", 0.0)


@pytest.mark.slow
async def test_an_unknown_language_is_refused_before_any_work() -> None:
    async with running_decoder() as decoder:
        with pytest.raises(BadRequestError) as caught:
            await Transcriber(decoder).transcribe(sound(16_000, seed=8), TranscriptionOptions(language="xx"))
        assert caught.value.param == "language"
        assert decoder.engine.statistics().num_steps == 0


@pytest.mark.slow
async def test_an_english_only_model_needs_no_language() -> None:
    async with running_decoder(random_folder(seed=9, multilingual=False)) as decoder:
        transcript = await Transcriber(decoder).transcribe(sound(40_000, seed=9), TranscriptionOptions())
        assert transcript.language == "en"
        silence = await Transcriber(decoder).transcribe(np.zeros(8_000, np.float32), TranscriptionOptions())
        assert silence.language == "en", "it is known"
        assert Transcriber(decoder).languages == ("en",)
