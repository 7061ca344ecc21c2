"""Several languages in one recording: what each range is asked for, and in which pieces."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import trio
from sensorium.actors.speech.families.family import LanguageSource, RangeRequest
from sensorium.actors.speech.recipe import transcribe_ranges
from sensorium.actors.speech.recording import Recording
from sensorium.actors.speech.recording_state import Memory
from sensorium.media.transcript.language_detection import (
    clear_language,
    cut_at_pauses,
    likely_language,
    merged,
)
from sensorium.media.transcript.range_answer import DetectedLanguage, Range, RangeAnswer
from sensorium.protocols.engine.messages import EncoderItem, Lane
from sensorium.protocols.transcription.transcript import Transcript, TranscriptionOptions
from support.scripted_speech import RANGE_SAMPLES, ScriptedFamily

SECOND = RANGE_SAMPLES
LONG = 4 * SECOND


class Pausing(Recording):
    """Somebody speaks for whole seconds, with pauses at these places."""

    pauses: tuple[int, ...] = ()
    num_looks = 0

    async def speech(
        self, part: Range, *, min_silence: int = 0, threshold: float = 0.5, padding: int = 0
    ) -> list[Range]:
        await trio.lowlevel.checkpoint()
        self.num_looks += 1
        bounds = [part[0], *(at for at in self.pauses if part[0] < at < part[1]), part[1]]
        return list(itertools.pairwise(bounds))


async def transcribe(
    family: ScriptedFamily,
    places: list[int],
    ranges: list[Range],
    pauses: tuple[int, ...] = (),
    languages: tuple[str, ...] = (),
) -> tuple[Transcript, str]:
    """Of audio with a second each of `places`, and what was streamed of it."""
    samples = np.repeat(np.asarray(places, np.float32), SECOND)
    recording = Pausing(family, lambda start, end: samples[start:end])
    recording.pauses = pauses
    deltas: list[str] = []
    transcript = await transcribe_ranges(
        family,
        recording,
        ranges,
        Memory(),
        TranscriptionOptions(segment_timestamps=True, languages=languages),
        lane=Lane(),
        on_delta=deltas.append,
    )
    return transcript, "".join(deltas)


@pytest.mark.parametrize("source", ["detection", "answer"])
async def test_each_range_is_asked_for_its_own_language_if_that_is_clear(source: LanguageSource) -> None:
    family = ScriptedFamily(("en", "a"), ("pl", "b"), ("pl", "c"), ("fr", "d"), language_from=source)
    starts = (0, LONG, 2 * LONG, 3 * LONG, 3 * LONG + SECOND)
    transcript, deltas = await transcribe(
        family, [1] * 4 + [2] * 4 + [3] * 4 + [4], list(itertools.pairwise(starts))
    )
    assert deltas == transcript.text == "a b c d"
    assert (transcript.language, transcript.languages) == ("pl", ("pl", "en"))
    assert [segment.language for segment in transcript.segments] == ["en", "pl", "pl", "pl"], "too short"
    assert sorted(family.asked) == [(0, "en"), (1, "pl"), (2, "pl"), (3, "pl")]


async def test_a_range_of_which_the_model_is_unsure_is_asked_piece_by_piece() -> None:
    family = ScriptedFamily(
        ("en", "a"),
        ("zh", "你好"),
        ("en", "c"),
        language_from="detection",
        probability=lambda seconds: 0.6,
    )
    transcript, deltas = await transcribe(
        family, [1] * 4 + [2] * 4 + [3] * 4, [(0, 3 * LONG)], pauses=(LONG, 2 * LONG)
    )
    assert deltas == transcript.text == "a 你好 c"
    assert [(each.text.strip(), each.language) for each in transcript.segments] == [
        ("a", "en"), ("你好", "zh"), ("c", "en")
    ]  # fmt: skip
    assert [each.start for each in transcript.segments] == [0.0, 4.0, 8.0]
    same = ScriptedFamily(
        ("en", "a"), ("en", "b"), language_from="detection", probability=lambda seconds: 0.6
    )
    whole, _ = await transcribe(same, [1] * 4 + [2] * 4, [(0, 2 * LONG)], pauses=(LONG,))
    assert whole.text == "a", "one language, one piece"


def torn_at_first(seconds: float) -> float:
    """Of 12 s the model is unsure, of anything shorter it is not, whatever else is spoken there."""
    return 0.6 if seconds > 8 else 0.95


async def test_a_range_that_is_in_doubt_in_one_half_is_asked_piece_by_piece() -> None:
    """However sure the model is of the whole."""
    family = ScriptedFamily(
        ("fr", "a"), ("en", "b"), language_from="detection", probability=lambda seconds: 0.99
    )
    family.in_halves = lambda seconds: 0.6 if seconds > 4 else 1.0
    transcript, deltas = await transcribe(family, [1] * 4 + [2] * 4, [(0, 2 * LONG)], (LONG,))
    assert deltas == transcript.text == "a b"
    assert [segment.language for segment in transcript.segments] == ["fr", "en"]


async def test_where_languages_have_changed_they_may_change_again() -> None:
    """The model is sure of 8 s of French and English, as of their first sentence."""
    said = [("en", "a"), ("zh", "你好"), ("en", "c"), ("fr", "d"), ("en", "e")]
    places = [1] * 4 + [2] * 4 + [3] * 4 + [4] * 4 + [5] * 4
    pauses = (LONG, 2 * LONG, 4 * LONG)
    ranges = [(0, 3 * LONG), (3 * LONG, 5 * LONG)]
    family = ScriptedFamily(*said, language_from="detection", probability=torn_at_first)
    transcript, deltas = await transcribe(family, places, ranges, pauses)
    assert deltas == transcript.text == "a 你好 c d e"
    # Behind one language it is taken at its word: pieces cost an encode each.
    family = ScriptedFamily(*said, language_from="detection", probability=torn_at_first)
    transcript, _ = await transcribe(family, places[12:], [(0, 2 * LONG)], (LONG,))
    assert (transcript.text, family.asked) == ("d", [(3, "fr")])


async def test_a_piece_is_streamed_as_soon_as_it_is_answered() -> None:
    deltas: list[str] = []
    shown: dict[int, str] = {}

    class Noting(ScriptedFamily):
        async def answer(
            self,
            items: Sequence[EncoderItem],
            request: RangeRequest,
            on_text: Callable[[str], None] | None = None,
        ) -> RangeAnswer:
            answer = await super().answer(items, request, on_text)
            shown[self.asked[-1][0]] = "".join(deltas)
            return answer

    family = Noting(("fr", "a"), ("en", "b"), ("fr", "c"), language_from="detection")
    samples = np.repeat(np.asarray([1] * 4 + [2] * 4 + [3] * 4, np.float32), SECOND)
    recording = Pausing(family, lambda start, end: samples[start:end])
    recording.pauses = (LONG, 2 * LONG)
    found = await transcribe_ranges(
        family,
        recording,
        [(0, 3 * LONG)],
        Memory(),
        TranscriptionOptions(languages=("en", "fr")),
        lane=Lane(),
        on_delta=deltas.append,
    )
    assert deltas == ["a", " b", " c"]
    assert found.text == "a b c"
    assert shown == {0: "", 1: "a", 2: "a b"}


async def test_where_somebody_speaks_is_found_once() -> None:
    """However often a turn is asked about that goes on behind it."""
    family = ScriptedFamily(("fr", "a"), ("en", "b"), ("en", "c"), language_from="detection")
    samples = np.repeat(np.asarray([1] * 4 + [2] * 4 + [3] * 4, np.float32), SECOND)
    recording, memory = Pausing(family, lambda start, end: samples[start:end]), Memory()
    recording.pauses = (LONG,)
    options = TranscriptionOptions(languages=("en", "fr"))
    ranges = [(0, 2 * LONG), (2 * LONG, 3 * LONG)]
    for _ in range(3):
        memory.keep_only(ranges)
        await transcribe_ranges(family, recording, ranges, memory, options, lane=Lane(), is_timed=False)
    assert recording.num_looks == 1
    memory.keep_only(ranges[1:])
    assert not memory.regions


@pytest.mark.parametrize("source", ["detection", "answer"])
async def test_of_named_languages_each_piece_is_asked_for_its_own(source: LanguageSource) -> None:
    """Also of a model whose single answer would name one language for all of it."""
    family = ScriptedFamily(("fr", "a"), ("en", "b"), language_from=source, probability=lambda seconds: 0.99)
    transcript, deltas = await transcribe(
        family, [1] * 4 + [2] * 4, [(0, 2 * LONG)], (LONG,), languages=("en", "fr")
    )
    assert deltas == transcript.text == "a b"
    assert [segment.language for segment in transcript.segments] == ["fr", "en"]


async def test_what_a_piece_does_not_tell_its_neighbour_does() -> None:
    family = ScriptedFamily(
        ("en", "a"), ("fr", "b"), language_from="detection", probability=lambda seconds: 0.3
    )
    transcript, _ = await transcribe(family, [1] * 4 + [2] * 4, [(0, LONG), (LONG, 2 * LONG)])
    assert [segment.language for segment in transcript.segments] == ["en", "en"]
    silent, _ = await transcribe(ScriptedFamily((None, ""), language_from="detection"), [1], [(0, SECOND)])
    assert (silent.text, silent.languages, silent.segments) == ("", ("en",), ())


def test_a_piece_has_enough_speech_to_tell() -> None:
    part = (0, 20 * SECOND)
    regions = [
        (SECOND, 3 * SECOND),
        (4 * SECOND, 5 * SECOND),
        (6 * SECOND, 10 * SECOND),
        (12 * SECOND, 13 * SECOND),
    ]
    assert cut_at_pauses(part, regions) == [(0, int(3.5 * SECOND)), (int(3.5 * SECOND), 20 * SECOND)]
    assert cut_at_pauses(part, [part]) == [part]
    assert merged([((0, 1), "en"), ((1, 2), "en"), ((2, 3), "fr")]) == (((0, 2), "en"), ((2, 3), "fr"))


def test_evidence() -> None:
    part, short = (0, LONG), (0, SECOND)
    assert clear_language(part, DetectedLanguage("fr", 0.95)) == "fr"
    assert clear_language(short, DetectedLanguage("fr", 0.95)) is None
    assert clear_language(part, DetectedLanguage("fr", 0.95, is_speech=False)) is None
    assert clear_language(part, DetectedLanguage("fr", 0.85)) is None
    assert clear_language(part, DetectedLanguage("fr", 0.95, in_halves=0.75)) == "fr"
    assert clear_language(part, DetectedLanguage("fr", 0.95, in_halves=0.65)) is None
    assert likely_language(part, DetectedLanguage("fr", 0.7)) == "fr"
    assert likely_language(short, DetectedLanguage("fr", 0.85)) is None
    assert likely_language(part, DetectedLanguage("fr", 0.4)) is None
    assert likely_language(part, None) is None
