"""Word times lie in the audio, in order, where sounds are; on generated speech they are near the truth."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sensorium.media.audio.features import FeatureConfig
from sensorium.media.speech.frames import FRAME_S, log_mel_frames, speech_frames
from sensorium.media.speech.spoken_length import spoken_words
from sensorium.media.speech.word_times import refine_words, rejoined, time_words
from sensorium.protocols.transcription.transcript import Word
from support.features import log_mel
from support.timed_speech import LANGUAGES, mean_error_s, timed_speech

RATE = 16_000
TEXTS = st.text(alphabet="ab ,.é9%今", max_size=60)
Samples = npt.NDArray[np.float32]


def bursts(
    spans: list[tuple[float, float]], duration_s: float, *, noise: float = 0.0, seed: int = 0
) -> Samples:
    """Loud noise in each span of seconds, silence or soft noise elsewhere."""
    rng = np.random.default_rng(seed)
    level = np.full(int(duration_s * RATE), noise)
    for start, end in spans:
        level[int(start * RATE) : int(end * RATE)] = 0.2
    samples: Samples = (level * rng.standard_normal(len(level))).astype(np.float32)
    return samples


def check_order(words: tuple[Word, ...], num_samples: int) -> None:
    edges = [time for word in words for time in (word.start, word.end)]
    assert edges == sorted(edges)
    assert all(0 <= edge <= num_samples / RATE + 0.0005 for edge in edges)
    if num_samples >= FRAME_S * RATE * (len(words) + 1):
        assert all(word.end > word.start for word in words)


@given(
    text=TEXTS,
    blocks=st.lists(st.sampled_from([0.0, 0.0, 0.001, 0.1, 0.5]), max_size=40),
    tail=st.integers(0, 1599),
    seed=st.integers(0, 100),
)
def test_times_are_in_order_and_inside_the_audio(
    text: str, blocks: list[float], tail: int, seed: int
) -> None:
    level = np.concatenate((np.repeat(blocks, 1600), np.full(tail, 0.1)))
    samples = (level * np.random.default_rng(seed).standard_normal(len(level))).astype(np.float32)
    words = time_words(text, samples)
    if len(samples):
        assert [word.word for word in words] == spoken_words(text)
    else:
        assert words == ()
    check_order(words, len(samples))


@given(
    starts=st.lists(st.floats(0, 30), min_size=1, max_size=30),
    blocks=st.lists(st.sampled_from([0.0, 0.001, 0.1]), min_size=1, max_size=30),
    data=st.data(),
)
def test_refined_times_are_in_order_whatever_the_hints(
    starts: list[float], blocks: list[float], data: st.DataObject
) -> None:
    names = data.draw(st.lists(st.sampled_from(["a", "long,", "word.", "今", "-"]), min_size=1, max_size=30))
    rough = [Word(name, start, start) for name, start in zip(names, starts, strict=False)]
    level = np.repeat(blocks, 1600)
    samples = (level * np.random.default_rng(0).standard_normal(len(level))).astype(np.float32)
    words = refine_words(rough, speech_frames(samples))
    assert [word.word for word in words] == [word.word for word in rough]
    check_order(words, len(samples))


@pytest.mark.parametrize("noise", [0.0, 0.005])
def test_a_word_in_each_burst(noise: float) -> None:
    """Silence around sounds is nobody's: the first word does not begin at 0, the last ends with its sound."""
    spans = [(0.8, 1.1), (1.5, 1.9), (2.6, 2.9)]
    words = time_words("one, three, six.", bursts(spans, 4.0, noise=noise))
    for word, (start, end) in zip(words, spans, strict=True):
        assert word.start == pytest.approx(start, abs=0.025)
        assert word.end == pytest.approx(end, abs=0.025)


def test_a_muted_start_hides_no_background() -> None:
    """Noise behind digital silence is still noise."""
    speech = timed_speech("en")
    words = time_words(speech.text, np.concatenate((np.zeros(RATE, np.float32), speech.samples)))
    true = tuple(Word(word.word, word.start + 1.0, word.end + 1.0) for word in speech.words)
    assert mean_error_s(words, true) <= 0.08


@pytest.mark.parametrize(
    ("faint_s", "silence_s", "heard_s"), [(0.12, 0.25, 0.12), (0.12, 0.04, 0.12), (0.6, 0.25, 0.0)]
)
def test_a_word_ends_where_it_has_faded_into_dead_silence(
    faint_s: float, silence_s: float, heard_s: float
) -> None:
    """Of a studio's recording, whose pauses are cut to nothing; what goes on for long is the room."""
    loud = bursts([(0.0, 0.4)], 0.4 + faint_s, noise=0.002)
    samples = np.concatenate([loud, np.zeros(int(silence_s * RATE), np.float32)] * 4)
    words = time_words("one, two, six, ten.", samples)
    period_s = len(samples) / RATE / 4
    for number, word in enumerate(words):
        assert word.end - number * period_s == pytest.approx(0.4 + heard_s, abs=0.03)


def test_words_share_a_sound_by_their_length() -> None:
    words = time_words("a washing machine", bursts([(0.5, 2.0)], 2.5))
    lengths = [word.end - word.start for word in words]
    assert lengths[0] < 0.2
    assert sum(lengths) == pytest.approx(1.5, abs=0.03)
    assert min(lengths[1:]) > 0.4


def test_a_drawn_out_word_is_long_where_the_hints_are_exact() -> None:
    """Who goes on speaks words: no part of a sentence belongs to none, however long "in" takes."""
    starts = {"she": 0.5, "is": 0.7, "in": 0.9, "a": 1.9, "to": 2.0, "be": 2.15, "kind": 2.3}
    hints = [Word(name, start, start) for name, start in starts.items()]
    frames = speech_frames(bursts([(0.5, 2.7)], 3.2))
    words, rough = refine_words(hints, frames), refine_words(hints, frames, is_rough=True)
    assert [word.end for word in words[:-1]] == [word.start for word in words[1:]]
    assert words[3].start == pytest.approx(1.9, abs=0.05)
    assert rough[3].start < 1.7, "lengths say more than rough hints"


def test_hints_tell_music_from_speech() -> None:
    """Three seconds of other sound come first; the model says where the words begin."""
    speech = timed_speech("en")
    music = bursts([(0.0, 3.0)], 3.0)
    rng = np.random.default_rng(2)
    rough = [Word(word.word, word.start + 3.0 + rng.uniform(-0.1, 0.1), 0.0) for word in speech.words]
    words = refine_words(rough, speech_frames(np.concatenate((music, speech.samples))))
    true = tuple(Word(word.word, word.start + 3.0, word.end + 3.0) for word in speech.words)
    assert mean_error_s(words, true) <= 0.12


def test_words_begin_with_speech_behind_any_noise() -> None:
    """A model takes what comes before the first word for it; voice activity knows better."""
    speech = timed_speech("en")
    samples = np.concatenate((bursts([(0.0, 8.0)], 8.0), speech.samples))
    rough = [Word(word.word, word.start + 8.0, word.end + 8.0) for word in speech.words]
    rough[0] = Word(rough[0].word, 0.0, rough[0].end)
    true = tuple(Word(word.word, word.start + 8.0, word.end + 8.0) for word in speech.words)
    frames = speech_frames(samples)
    assert refine_words(rough, frames)[0].start < 1.0
    for regions in ([(8 * RATE, len(samples))], [(RATE // 2, RATE), (8 * RATE, len(samples))]):
        assert mean_error_s(refine_words(rough, frames, regions), true) <= 0.12


@pytest.mark.parametrize("regions", [[], [(RATE, RATE + 800)]])
def test_voice_activity_that_hears_too_little_is_not_believed(regions: list[tuple[int, int]]) -> None:
    speech = timed_speech("en")
    without = time_words(speech.text, speech.samples)
    assert time_words(speech.text, speech.samples, regions) == without


def test_where_nothing_is_heard_words_share_the_time() -> None:
    words = time_words("uno dos", np.zeros(RATE, np.float32))
    assert words[0].start == 0.0
    assert words[-1].end == 1.0


def test_more_words_than_frames() -> None:
    words = time_words("a b c d", np.ones(320, np.float32))
    assert [word.start for word in words] == [0.0, 0.005, 0.01, 0.015]


@pytest.mark.parametrize("language", LANGUAGES)
def test_generated_speech_is_timed_within_the_bar(language: str) -> None:
    speech = timed_speech(language)
    assert mean_error_s(time_words(speech.text, speech.samples), speech.words) <= 0.08


def test_speakers_and_noise_may_change() -> None:
    """Three voices one after the other, each with its own rate, level and background."""
    parts = [timed_speech(language) for language in LANGUAGES]
    offsets_s = np.cumsum([0.0, *(len(part.samples) / RATE for part in parts[:-1])])
    true = tuple(
        Word(word.word, word.start + offset_s, word.end + offset_s)
        for part, offset_s in zip(parts, offsets_s, strict=True)
        for word in part.words
    )
    words = time_words(
        " ".join(part.text for part in parts), np.concatenate([part.samples for part in parts])
    )
    assert mean_error_s(words, true) <= 0.12


@pytest.mark.parametrize("language", LANGUAGES)
def test_features_serve_as_well_as_samples(language: str) -> None:
    """Rough times, up to 0.3 s off, are put right by the features of the padded window."""
    speech = timed_speech(language)
    rng = np.random.default_rng(1)
    rough = [Word(word.word, word.start + rng.uniform(-0.3, 0.3), 0.0) for word in speech.words]
    features = log_mel(FeatureConfig(), speech.samples)
    words = refine_words(rough, log_mel_frames(features, len(speech.samples)), is_rough=True)
    assert mean_error_s(words, speech.words) <= 0.08
    check_order(words, len(speech.samples))


@pytest.mark.parametrize(
    ("begins_s", "goes_on_s", "is_moved"),
    [(4.58, 10.45, True), (4.0, 6.9, False), (8.0, 12.0, False)],
    ids=["behind music", "who hesitates", "nearer to its own"],
)
def test_the_first_word_of_a_sentence_is_with_the_next(
    begins_s: float, goes_on_s: float, is_moved: bool
) -> None:
    words = [
        Word("arrives.", 3.0, 3.83),
        Word("I", begins_s, begins_s + 0.2),
        Word("have", goes_on_s, goes_on_s + 0.3),
    ]
    found = rejoined(words)
    assert [word.word for word in found] == ["arrives.", "I", "have"]
    assert found[0] == words[0]
    assert found[2].end == words[2].end
    if is_moved:
        assert goes_on_s == found[1].start < found[1].end == found[2].start < found[2].end
    else:
        assert found == tuple(words)
    inside = [Word("it", 3.0, 3.83), *words[1:]]
    assert rejoined(inside) == tuple(inside), "no sentence begins"
