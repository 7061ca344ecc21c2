"""Whisper: an update costs its open window, drafts save steps; languages and prompts are the checkpoint's."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import trio
from sensorium.actors.inference.client import Place
from sensorium.actors.speech.families import whisper as whisper_family
from sensorium.kernels.attention.kv_quantization import KvDtype
from sensorium.media.transcript.range_answer import Samples
from sensorium.protocols.engine.messages import (
    Align,
    AnyRequest,
    SampleRequest,
    TextGenerated,
)
from sensorium.protocols.errors import BadRequestError
from sensorium.protocols.transcription.transcript import TranscriptionOptions
from support.patched_runs import Ask, note_requests, patch_runs, patch_whole_answers
from support.running_speech import EXACT, random_asr_folder, random_folder, running_speech, sound

pytestmark = pytest.mark.slow


async def test_an_update_costs_one_window_whatever_the_age_of_the_turn() -> None:
    audio = sound(32_000 * 6, seed=2)
    options = TranscriptionOptions(language="en")
    async with running_speech() as whisper:
        live = whisper.speech.live(lambda a, b: audio[a:b], options, start=0)
        costs = []
        for end in range(4_000, len(audio), 4_000):
            before = whisper.engine.statistics().num_windows_encoded
            await live.hypothesis(end, final=False)
            costs.append(whisper.engine.statistics().num_windows_encoded - before)
        assert max(costs) <= 2  # two when a window has just been finished, else the open one
        assert sum(costs) <= len(costs) + 8


async def test_the_draft_saves_steps_and_changes_nothing() -> None:
    audio = sound(30_000, seed=3)
    options = TranscriptionOptions(language="en")
    async with running_speech() as whisper:
        live = whisper.speech.live(lambda a, b: audio[a:b], options, start=0)
        await live.hypothesis(30_000 - 160, final=False)
        await live.hypothesis(30_000, final=True)
        assert whisper.engine.statistics().num_draft_tokens > 0


async def test_of_where_a_turn_begins_the_likeliest_tokens_are_told() -> None:
    audio = sound(30_000, seed=3)
    async with running_speech() as whisper:
        live = whisper.speech.live(partial(between, audio), TranscriptionOptions(language="en"), start=0)
        first, *others = (await live.hypothesis(len(audio), final=False)).tokens
        assert dict(first.likeliest)[first.data] == pytest.approx(first.logprob)
        assert max(first.likeliest, key=lambda each: each[1])[0] == first.data
        assert others
        assert not any(token.likeliest for token in others)
        file = await whisper.speech.transcribe(audio, TranscriptionOptions(language="en", logprobs=True))
        assert file.tokens
        assert not any(token.likeliest for token in file.tokens)


@pytest.mark.parametrize("is_live", [False, True])
async def test_a_loop_is_ended_as_soon_as_it_is_one(is_live: bool) -> None:
    audio = sound(30_000, seed=3)
    options = TranscriptionOptions(language="en")
    async with running_speech() as whisper:
        loop = whisper.whisper().text.encode(" no")
        num_said = 0

        @asynccontextmanager
        async def run(_: Place, request: SampleRequest) -> AsyncIterator[Any]:
            async def tokens() -> AsyncGenerator[TextGenerated, None]:
                nonlocal num_said
                for number in range(400):
                    await trio.lowlevel.checkpoint()
                    token_id = loop[number % len(loop)]
                    num_said += 1
                    yield TextGenerated(request.request_id, (token_id,), (-0.1,), probe_probability=0.0)

            async with aclosing(tokens()) as said:
                yield said

        patch_runs(whisper.engine, run)
        if is_live:
            live = whisper.speech.live(lambda a, b: audio[a:b], options, start=0)
            text = (await live.hypothesis(len(audio), final=True)).text
        else:
            text = (await whisper.speech.transcribe(audio, options)).text
    assert text == "no no"
    assert num_said == 24 * len(loop)


async def test_numbers_are_spelled_if_that_is_asked_for() -> None:
    plain = TranscriptionOptions(language="en")
    spelled = TranscriptionOptions(language="en", numerals="words")
    num_numerals = 0
    async with running_speech() as whisper:
        for seed in range(6):
            audio = sound(30_000, seed=seed)
            num_numerals += has_numerals((await whisper.speech.transcribe(audio, plain)).text)
            live = whisper.speech.live(partial(between, audio), spelled, start=0)
            text = (await whisper.speech.transcribe(audio, spelled)).text
            assert text
            assert not has_numerals(text)
            assert (await live.hypothesis(len(audio), final=True)).text == text
            if num_numerals:
                break
    assert num_numerals, "random models say anything"


@pytest.mark.parametrize("kv_dtype", ["auto", "int8"])
async def test_a_long_window_is_asked_for_the_language_of_its_halves(
    monkeypatch: pytest.MonkeyPatch, kv_dtype: KvDtype
) -> None:
    """Of the encoding that is there; a short one is asked for that of the whole only."""
    monkeypatch.setattr(whisper_family, "MIN_RANGE", 8_000)
    audio, options = sound(20_000, seed=3), TranscriptionOptions()
    async with running_speech(config=replace(EXACT, kv_dtype=kv_dtype)) as whisper:
        spans: list[tuple[int, int] | None] = []

        async def noted(request: SampleRequest, ask: Ask) -> TextGenerated:
            spans.append(request.encoder_span)
            return await ask()

        patch_whole_answers(whisper.engine, noted)
        await whisper.speech.transcribe(audio[:12_000], options)
        assert spans == [None]
        live = whisper.speech.live(partial(between, audio), options, start=0)
        spans.clear()
        final = await live.hypothesis(len(audio), final=True)
        assert sorted(spans, key=lambda span: span or ()) == [None, (0, 31), (31, 62)], "20 ms each"
        before = whisper.engine.statistics().num_windows_encoded
        assert (await whisper.speech.transcribe(audio, options)).text == final.text
        assert whisper.engine.statistics().num_windows_encoded <= before + 1
        live.close()


def between(audio: Samples, start: int, end: int) -> Samples:
    return audio[start:end]


def has_numerals(text: str) -> bool:
    return any(each.isdigit() or each in "%$£€" for each in text)


async def test_a_model_that_writes_numbers_as_it_likes_says_so() -> None:
    async with running_speech(random_asr_folder()) as other:
        with pytest.raises(BadRequestError) as caught:
            await other.speech.transcribe(sound(16_000, seed=1), TranscriptionOptions(numerals="words"))
    assert caught.value.param == "numerals"


async def test_windows_are_transcribed_each_by_itself_and_joined() -> None:
    audio = sound(16_000 * 7, seed=6)
    options = TranscriptionOptions(language="en", segment_timestamps=True)
    async with running_speech() as whisper:
        whole = await whisper.speech.transcribe(audio, options)
        windows = whisper.speech.family.facts.cut_rule.split(audio)
        parts = [await whisper.speech.transcribe(audio[start:end], options) for start, end in windows]
    assert len(windows) > 3
    assert whole.text == " ".join(part.text for part in parts if part.text)
    assert whole.duration == 7.0
    assert [segment.id for segment in whole.segments] == list(range(len(whole.segments)))
    starts = [segment.start for segment in whole.segments]
    assert starts == sorted(starts)


async def test_the_language_is_that_of_the_first_window_with_sound() -> None:
    quiet = np.zeros(32_000 * 2, np.float32)
    audio = sound(30_000, seed=7)
    async with running_speech() as whisper:
        alone = await whisper.speech.transcribe(audio, TranscriptionOptions())
        before = whisper.engine.statistics().num_decode_tokens
        silence = await whisper.speech.transcribe(quiet, TranscriptionOptions())
        assert (silence.text, silence.language) == ("", ""), "nobody spoke in any"
        assert whisper.engine.statistics().num_decode_tokens == before
        behind = await whisper.speech.transcribe(np.concatenate((quiet, audio)), TranscriptionOptions())
        assert behind.language == alone.language


async def test_hints_hold_the_language_and_reach_the_prompt() -> None:
    audio = sound(30_000, seed=7)
    async with running_speech() as whisper:
        found = {
            language: (
                await whisper.speech.transcribe(audio, TranscriptionOptions(languages=(language,)))
            ).language
            for language in whisper.speech.languages
        }
        assert all(given == answered for given, answered in found.items())
        hints = TranscriptionOptions(keywords=("lights", "kitchen"), prompt="Turn on.", language="en")
        as_prompt = TranscriptionOptions(prompt="lights, kitchen. Turn on.", language="en")
        assert (await whisper.speech.transcribe(audio, hints)).text == (
            await whisper.speech.transcribe(audio, as_prompt)
        ).text


async def test_empty_audio_is_an_empty_transcript() -> None:
    async with running_speech() as whisper:
        transcript = await whisper.speech.transcribe(np.zeros(0, np.float32), TranscriptionOptions())
    assert (transcript.text, transcript.duration) == ("", 0.0)


async def test_an_english_only_model_needs_no_language() -> None:
    async with running_speech(random_folder(seed=9, multilingual=False)) as whisper:
        transcript = await whisper.speech.transcribe(sound(40_000, seed=9), TranscriptionOptions())
        assert transcript.language == "en"
        silence = await whisper.speech.transcribe(np.zeros(8_000, np.float32), TranscriptionOptions())
        assert silence.language == "en", "it is known"
        assert whisper.speech.languages == ("en",)


async def test_words_are_aligned_behind_the_prompt_that_they_were_said_to() -> None:
    audio = sound(30_000, seed=7)
    async with running_speech() as whisper:
        text, noted = whisper.whisper().text, list[AnyRequest]()
        note_requests(whisper.engine, noted)

        def aligned() -> list[AnyRequest]:
            return [request for request in noted if isinstance(request.task, Align)]

        for task in whisper.speech.tasks:
            options = TranscriptionOptions(language="de", task=task, word_timestamps=True)
            assert (await whisper.speech.transcribe(audio, options)).words
            prompt = text.prompt(language="de", task=task)
            assert aligned()[-1].prompt_token_ids[: len(prompt)] == prompt
        assert len({command.prompt_token_ids[:3] for command in aligned()}) == 2
