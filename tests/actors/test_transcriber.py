"""Whole recordings: deltas join to the text, windows are cut at quiet places, language is found once."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sensorium.actors.transcriber import DeltaJoiner, Transcriber
from sensorium.media.segments import split
from sensorium.protocols.errors import BadRequestError
from sensorium.protocols.transcript import TranscriptionOptions
from support.random_model import random_folder, running_decoder, sound

TEXTS = st.text(alphabet="ab \n", max_size=8)


@given(
    texts=st.lists(TEXTS, min_size=1, max_size=5), cuts=st.randoms(use_true_random=False), space=st.booleans()
)
def test_deltas_join_to_the_transcript_in_any_order(texts: list[str], cuts: Random, space: bool) -> None:
    separator = " " if space else ""
    emitted: list[str] = []
    joiner = DeltaJoiner(len(texts), separator, emitted.append)
    pending = [(index, list(text)) for index, text in enumerate(texts)]
    while pending:
        index, letters = cuts.choice(pending)
        if letters and cuts.random() < 0.8:
            joiner.feeder(index)(letters.pop(0))
        else:
            # Whatever was not fed comes with the end.
            joiner.finish(index, texts[index])
            pending = [entry for entry in pending if entry[0] != index]
    stripped = (text.strip() for text in texts)
    assert "".join(emitted) == separator.join(text for text in stripped if text)
    assert all(emitted)


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
        windows = split(audio, window_samples=decoder.window_samples, search_samples=decoder.search_samples)
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
        assert silence.text == ""
        assert decoder.engine.statistics().num_decode_tokens == before
        behind = await transcriber.transcribe(np.concatenate((quiet, audio)), TranscriptionOptions())
        assert behind.language == alone.language


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
