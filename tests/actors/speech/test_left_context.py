"""Whisper hears a turn behind earlier ones: what it says is `transformers`', its times are the turn's."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
import trio
from sensorium.actors.speech.families import whisper as whisper_family
from sensorium.actors.speech.recording_state import Memory
from sensorium.media.speech.voice_activity import VoiceActivityModel
from sensorium.media.transcript.answer_guard import LoopGuard, cut_loops
from sensorium.media.transcript.range_answer import DetectedLanguage, RangeAnswer, Samples
from sensorium.protocols.engine.messages import EncoderItem, SampleRequest, TextGenerated
from sensorium.protocols.transcription.transcript import TranscriptionOptions
from support.patched_runs import Ask, patch_whole_answers
from support.running_speech import RunningSpeech, random_asr_folder, random_folder, running_speech, sound
from support.timed_speech import mean_error_s, timed_speech
from transformers import WhisperForConditionalGeneration

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def short_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have room in front of turns, too."""
    monkeypatch.setattr(whisper_family, "LEAST_ROOM_S", 0.0)


ENGLISH = TranscriptionOptions(language="en")
TURN, END = 16_100, 30_000
"""A turn, in samples; windows are of two seconds."""


def between(audio: Samples, start: int, end: int) -> Samples:
    return audio[start:end]


class Reference:
    """`transformers` on the same folder, whose decoder is given a part of what its encoder gave."""

    def __init__(self, folder: Path) -> None:
        self._model: Any = WhisperForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()

    @torch.inference_mode()
    def text(self, whisper: RunningSpeech, window: Samples, first: int) -> str:
        """The greedy answer from position `first` of a window on."""
        text = whisper.whisper().text
        features = whisper.whisper().features()
        features.append(window)
        item: EncoderItem = features.items()[0]
        mel = torch.from_numpy(np.frombuffer(item.features.data, "<f4").reshape(item.features.shape).copy())
        encoded = self._model.model.encoder(mel[None])
        encoded.last_hidden_state = encoded.last_hidden_state[:, first:]
        asked = text.request(language="en")
        ids, said = list(asked.prompt_token_ids), list[int]()
        while len(said) < asked.sampling.max_tokens:
            step = self._model(encoder_outputs=encoded, decoder_input_ids=torch.tensor([ids + said]))
            logits = step.logits[0, -1]
            logits[list(asked.sampling.suppress_token_ids)] = -torch.inf
            if not said:
                logits[list(asked.sampling.begin_suppress_token_ids)] = -torch.inf
            token = int(logits.argmax())
            if token in asked.sampling.stop_token_ids:
                break
            said.append(token)
        return cut_loops(text.decode(said[: LoopGuard().feed(said)])).strip()


@pytest.mark.parametrize("seed", range(3))
async def test_a_final_is_what_transformers_says_behind_the_same_sound(seed: int) -> None:
    audio = sound(END, seed=10 + seed)
    reference = Reference(random_folder(seed))
    async with running_speech(random_folder(seed)) as whisper:
        live = partial(whisper.speech.live, partial(between, audio), ENGLISH, start=TURN)
        alone = live()
        behind = live(before=(0, 3_000, 9_000))
        finals = [await each.hypothesis(END, final=True) for each in (alone, behind)]
        # There is room for 32,000 samples, and positions are 320 long.
        num_before = TURN // 320
        assert finals[0].text == reference.text(whisper, audio[TURN:END], 0)
        assert finals[1].text == reference.text(whisper, audio[TURN - 320 * num_before : END], num_before)
        assert finals[0].text != finals[1].text
        assert finals[1].duration == pytest.approx((END - TURN) / 16_000)
        assert (await live(before=(0,)).hypothesis(END, final=True)).text == finals[1].text
        behind.close()
        await whisper.idle()


async def test_there_is_as_much_in_front_as_there_is_room_for() -> None:
    audio = sound(50_000, seed=4)
    reads: list[int] = []

    def read(start: int, end: int) -> Samples:
        reads.append(start)
        return audio[start:end]

    async with running_speech() as whisper:
        for end, first in ((25_000, 0), (40_000, 9_000), (47_000, 15_500), (49_000, 20_000)):
            live = whisper.speech.live(read, ENGLISH, start=20_000, before=(0, 9_000, 15_500))
            reads.clear()
            await live.hypothesis(end, final=True)
            assert min(reads) == first


async def test_hypotheses_before_it_are_those_of_the_turn_alone() -> None:
    audio = sound(END, seed=10)
    async with running_speech() as whisper:
        live = partial(whisper.speech.live, partial(between, audio), ENGLISH, start=TURN)
        alone, behind, asked_at_once = live(), live(before=(0,)), live(before=(0,))
        for end in (TURN + 4_000, TURN + 9_000, END):
            partials = [(await each.hypothesis(end, final=False)).text for each in (alone, behind)]
            assert partials[0] == partials[1]
        final = await behind.hypothesis(END, final=True)
        assert final.text != partials[0]
        assert (await asked_at_once.hypothesis(END, final=True)).text == final.text
        # The turn goes on: what was final was one more of them.
        assert (await behind.hypothesis(END, final=False)).text in (partials[0], final.text)


async def test_silence_is_silence_whoever_spoke_before_it() -> None:
    true = timed_speech("en")
    audio = np.concatenate((true.samples, np.zeros(24_000, np.float32)))
    async with running_speech("tiny-whisper", activity=VoiceActivityModel()) as whisper:
        start = len(true.samples)
        live = whisper.speech.live(partial(between, audio), ENGLISH, start=start, before=(0,))
        assert (await live.hypothesis(len(audio), final=True)).text == ""
        assert whisper.engine.statistics().num_windows_encoded == 0


async def test_times_are_those_of_the_turn() -> None:
    """Language is that of the turn, too, though another was spoken in front of it."""
    true, other = timed_speech("en"), timed_speech("es")
    start = len(other.samples)
    audio = np.concatenate((other.samples, true.samples))
    options = TranscriptionOptions(word_timestamps=True, segment_timestamps=True)
    async with running_speech("tiny-whisper") as whisper:
        live = whisper.speech.live(partial(between, audio), options, start=start, before=(0,))
        final = await live.hypothesis(len(audio), final=True)
        assert (final.text, final.language) == (true.text, "en")
        assert mean_error_s(final.words, true.words) <= 0.15
        assert final.segments[-1].end == final.words[-1].end <= final.duration


@pytest.mark.parametrize("probability", [0.69, 0.71])
async def test_where_the_language_is_not_clear_behind_others_a_turn_is_heard_alone(
    probability: float,
) -> None:
    audio, options = sound(END, seed=10), TranscriptionOptions()
    async with running_speech() as whisper:
        encodings = list[str]()

        async def unsure(request: SampleRequest, ask: Ask) -> TextGenerated:
            answer = await ask()
            encodings.append(str(request.encoder_hash))
            surer = 0.99 if len(set(encodings)) > 1 else probability
            return msgspec.structs.replace(answer, logprobs=(math.log(surer),))

        patch_whole_answers(whisper.engine, unsure)
        live = partial(whisper.speech.live, partial(between, audio), start=TURN)
        final = await live(options, before=(0,)).hypothesis(END, final=True)
        known = msgspec.structs.replace(options, language=final.language)
        behind, alone = [
            (await live(known, before=before).hypothesis(END, final=True)).text for before in ((0,), ())
        ]
        assert behind != alone
        assert final.text == (alone if probability < 0.7 else behind)


async def test_an_answer_that_came_before_its_language_was_not_clear_does_not_count() -> None:
    """Answers are asked for beside the language, as expected; which is there first changes nothing."""
    audio, options = sound(END, seed=10), TranscriptionOptions()
    async with running_speech() as whisper:
        delays_s = [0.0]
        english = whisper.whisper().text.language_ids["en"]

        async def unsure(_: SampleRequest, ask: Ask) -> TextGenerated:
            await trio.sleep(delays_s[0])
            answer = await ask()
            return msgspec.structs.replace(answer, token_ids=(english,), logprobs=(math.log(0.5),))

        patch_whole_answers(whisper.engine, unsure)
        texts = set()
        for delays_s[0] in (0.0, 1.0):
            live = whisper.speech.live(partial(between, audio), options, start=TURN, before=(0,))
            await live.hypothesis(TURN + 9_000, final=False)
            texts.add((await live.hypothesis(END, final=True)).text)
            live.close()
        alone = whisper.speech.live(partial(between, audio), options, start=TURN)
        assert texts == {(await alone.hypothesis(END, final=True)).text}


async def test_an_unclear_pause_of_a_long_turn_counts_for_nothing_behind_it() -> None:
    """What is asked on the way, or not, changes no final: a range that grew is no piece of what it became."""
    start, pause, end = 16_000, 6 * 16_000, 10 * 16_000
    audio = sound(20 * 16_000, seed=3)
    async with running_speech(random_folder(window_s=8)) as whisper:
        probability = [0.99]
        english = whisper.whisper().text.language_ids["en"]

        async def as_sure(_: SampleRequest, ask: Ask) -> TextGenerated:
            answer = await ask()
            sure = {"token_ids": (english,), "logprobs": (math.log(probability[0]),)}
            return msgspec.structs.replace(answer, **sure, probe_probability=0.0)

        patch_whole_answers(whisper.engine, as_sure)
        texts = list[str]()
        for asked_in_the_pause in (False, True):
            live = whisper.speech.live(
                partial(between, audio), TranscriptionOptions(), start=start, before=(start - 8000,)
            )
            if asked_in_the_pause:
                probability[0] = 0.5
                await live.hypothesis(pause, final=True)
                probability[0] = 0.99
            texts.append((await live.hypothesis(end, final=True)).text)
            live.close()
        alone = whisper.speech.live(partial(between, audio), TranscriptionOptions(), start=start)
        assert texts[0] == texts[1] != (await alone.hypothesis(end, final=True)).text


async def test_a_model_of_short_windows_hears_a_turn_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    async with running_speech() as whisper:
        assert not whisper.speech.supports_left_context


async def test_other_families_hear_it_alone() -> None:
    audio = sound(END, seed=5)
    async with running_speech(random_asr_folder()) as asr:
        assert not asr.speech.supports_left_context
        live = partial(asr.speech.live, partial(between, audio), ENGLISH, start=TURN)
        finals = [await live(before=before).hypothesis(END, final=True) for before in ((), (0,))]
        assert finals[0] == finals[1]


def test_what_is_heard_alone_is_so_in_all_its_pieces() -> None:
    memory = Memory()
    for part in ((0, 10), (10, 20), (0, 20)):
        memory.answers[part, "en"] = RangeAnswer(text="heard behind something")
    memory.transcribe_alone((0, 10))
    assert list(memory.answers) == [((10, 20), "en")]
    assert [memory.is_alone(part) for part in ((0, 10), (3, 5), (0, 20), (10, 20))] == [
        True,
        True,
        True,
        False,
    ]


def test_what_a_range_was_while_it_grew_is_no_piece_of_it() -> None:
    memory = Memory()
    memory.keep_only([(0, 12)])
    memory.transcribe_alone((0, 12))
    memory.detected[0, 12] = DetectedLanguage("en", 0.5)
    memory.keep_only([(0, 15), (15, 20)])
    assert not memory.alone
    assert not memory.detected
    for part in ((0, 15), (3, 9)):
        memory.detected[part] = DetectedLanguage("en", 0.9)
    memory.keep_only([(0, 15), (15, 22)])
    assert set(memory.detected) == {(0, 15), (3, 9)}, "but of what cannot grow pieces are kept"
