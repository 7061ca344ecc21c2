"""Utterances from clips: their text is what is heard until their end, and the seed decides everything."""

import random

import numpy as np
import pytest
import spoken_utterances
from speech_grammar import Language, normalised
from spoken_clips import Clip, LogMel
from spoken_utterances import FLOOR, MAX_FRAMES, Noises, excerpt, joined, spoken_until, without_speech
from tiny_qwen3_asr_model import feature_extractor
from tiny_whisper_data import NUM_MELS, Frames

WORDS = [("Good", 0.0, 0.4), ("morning,", 0.4, 1.0), ("Emma.", 1.1, 1.6)]


@pytest.fixture(scope="module")
def noises() -> Noises:
    return Noises(0)


def clip(seed: int, num_frames: int = 160) -> tuple[Clip, Frames]:
    frames = np.random.default_rng(seed).uniform(-6, 1, (num_frames, NUM_MELS)).astype(np.float16)
    return Clip("en", "en", "words", num_frames, WORDS), frames


def test_text_grows_with_the_words_and_ends_with_the_pause() -> None:
    assert spoken_until(WORDS, 0.2) == ""
    assert spoken_until(WORDS, 0.39) == "Good"
    assert spoken_until(WORDS, 1.0) == "Good morning"
    assert spoken_until(WORDS, 1.6) == "Good morning, Emma"
    assert spoken_until(WORDS, 1.8) == "Good morning, Emma."


def test_an_utterance_says_a_beginning_of_its_clips(noises: Noises, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spoken_utterances, "EXCERPT_SHARE", 0)
    whole = normalised(" ".join(text for text, _, _ in WORDS) + " ").split() * 3
    complete = 0
    for seed in range(40):
        utterance = joined([clip(seed), clip(seed + 1), clip(seed + 2)], noises, random.Random(seed))
        said = normalised(utterance.text).split()
        assert said == whole[: len(said)]
        assert (utterance.language is None) == (not said)
        assert utterance.frames.min() >= FLOOR
        complete += said == whole
    assert 20 < complete < 40, "most are whole, some are broken off"


@pytest.mark.parametrize(
    ("language", "text", "allowed"),
    [
        (
            "en",
            "Where is, Emma?",
            {"Where.", "Is.", "Emma?", "Where is.", "Is, Emma?"},
        ),
        (
            "es",
            "¿Dónde está Emma?",
            {"Dónde.", "Está.", "¿Emma?", "Dónde está.", "¿Está Emma?"},
        ),
    ],
)
def test_an_excerpt_is_written_as_a_sentence_and_holds_its_words_frames(
    language: Language, text: str, allowed: set[str]
) -> None:
    times = [(0.1, 0.4), (0.4, 0.9), (1.1, 1.6)]
    words = [(word, *time) for word, time in zip(text.split(), times, strict=True)]
    frames = np.arange(160 * NUM_MELS).reshape(160, NUM_MELS).astype(np.float16)
    whole = Clip(language, "en", "words", 160, words)
    seen = set()
    for seed in range(60):
        part, heard = excerpt(whole, frames, random.Random(seed))
        said = " ".join(word for word, _, _ in part.words)
        seen.add(said)
        first = next(i for i, word in enumerate(words) if normalised(word[0]) == normalised(said.split()[0]))
        begin = round(times[first][0] * 100)
        assert np.array_equal(heard, frames[begin : begin + len(heard)])
        assert part.num_frames == len(heard) == round(100 * (times[first + len(part.words) - 1][1])) - begin
        assert part.words[0][1] == pytest.approx(0.0, abs=0.01)
        assert part.words[-1][2] == pytest.approx(len(heard) / 100, abs=0.01)
    assert seen == allowed


def test_what_is_too_short_for_an_excerpt_stays_whole() -> None:
    frames = np.zeros((50, NUM_MELS), np.float16)
    one = Clip("en", "en", "words", 50, [("Good.", 0.0, 0.4)])
    assert excerpt(one, frames, random.Random(0)) == (one, frames)
    quick = Clip("en", "en", "words", 50, [("So", 0.0, 0.05), ("so.", 0.05, 0.1)])
    assert excerpt(quick, frames, random.Random(0))[0] == quick


def test_no_utterance_is_longer_than_the_longest(noises: Noises) -> None:
    utterance = joined([clip(seed, 900) for seed in range(5)], noises, random.Random(1))
    assert len(utterance.frames) <= MAX_FRAMES
    assert len(normalised(utterance.text).split()) <= 9


def test_the_same_draws_make_the_same_utterance(noises: Noises) -> None:
    first, second, other = (joined([clip(1), clip(2)], noises, random.Random(seed)) for seed in (3, 3, 4))
    assert np.array_equal(first.frames, second.frames)
    assert first.text == second.text
    assert not np.array_equal(first.frames, other.frames)


def test_silence_says_nothing(noises: Noises) -> None:
    for seed in range(20):
        utterance = without_speech(noises, random.Random(seed))
        assert utterance.text == ""
        assert utterance.language is None


def test_frames_are_those_of_the_feature_extractor() -> None:
    audio = np.random.default_rng(0).normal(0, 0.1, 24_000).astype(np.float32)
    audio[:400] = audio[-400:] = 0
    expected = np.asarray(feature_extractor()(audio, sampling_rate=16_000)["input_features"][0])
    logs = LogMel()(audio).astype(np.float32).T
    features = (np.maximum(logs, logs.max() - 8) + 4) / 4
    num_frames = len(audio) // 160
    np.testing.assert_allclose(features[:, :num_frames], expected[:, :num_frames], atol=2e-3)
