"""The recipe, whatever the model: who decides the language, what is asked, timed and remembered."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
import soundfile
import trio
from msgspec import UNSET
from sensorium.actors.live.audio_store import AudioStore
from sensorium.actors.live.turns import LiveTurns, Outcome
from sensorium.actors.speech.families.family import CutRule, LanguageSource
from sensorium.actors.speech.languages import resolution as settling
from sensorium.actors.speech.model import FILE, LIVE_FINAL, LIVE_FIRST, LIVE_PARTIAL, is_first
from sensorium.actors.speech.recipe import Prior, transcribe_ranges
from sensorium.actors.speech.recording import Recording
from sensorium.actors.speech.recording_state import Memory
from sensorium.actors.speech.transcriber import Transcriber
from sensorium.media.speech.voice_activity import VoiceActivityModel
from sensorium.media.transcript import language_detection as languages
from sensorium.protocols.engine.messages import ItemId, Lane
from sensorium.protocols.errors import BadRequestError
from sensorium.protocols.transcription.transcript import Transcript, TranscriptionOptions
from sensorium.realtime.effects import Transcribe
from support.scripted_speech import RANGE_SAMPLES, ScriptedFamily, scripted_audio

SOURCES: tuple[LanguageSource, ...] = ("detection", "answer")
PLAIN = TranscriptionOptions()


async def transcribe(
    family: ScriptedFamily, options: TranscriptionOptions = PLAIN, *, prior: Prior | None = None
) -> tuple[Transcript, str]:
    """All of the script, and what was streamed of it."""
    samples = scripted_audio(*range(1, len(family.said) + 1))
    deltas: list[str] = []
    transcript = await transcribe_ranges(
        family,
        Recording(family, lambda start, end: samples[start:end]),
        [(RANGE_SAMPLES * n, RANGE_SAMPLES * (n + 1)) for n in range(len(family.said))],
        Memory(),
        options,
        lane=Lane(),
        prior=prior,
        on_delta=None if prior else deltas.append,
    )
    return transcript, "".join(deltas)


@pytest.mark.parametrize("source", SOURCES)
async def test_the_first_range_with_speech_is_asked_for_the_language_of_short_ones(
    source: LanguageSource,
) -> None:
    family = ScriptedFamily(
        (None, ""), ("zh", "你好"), ("en", "ignored"), ("en", "too"), language_from=source
    )
    transcript, deltas = await transcribe(family)
    assert (transcript.language, transcript.text, deltas) == ("zh", "你好 ignored too", "你好 ignored too")
    assert family.detected == [0, 1]
    assert sorted(family.asked) == [(0, "zh"), (1, "zh"), (2, "zh"), (3, "zh")]
    assert [(each.id, each.start, each.end) for each in transcript.segments] == [
        (0, 1.0, 2.0),
        (1, 2.0, 3.0),
        (2, 3.0, 4.0),
    ]
    nobody = ScriptedFamily(("pl", ""), ("zh", ""), language_from=source)
    assert (await transcribe(nobody))[0].language == "pl", "the first with sound"


async def test_an_answer_about_a_single_range_names_the_language_by_itself() -> None:
    family = ScriptedFamily(("zh", "你好"))
    transcript, deltas = await transcribe(family)
    assert (transcript.language, transcript.language_probability, deltas) == ("zh", 0.9, "你好")
    assert (family.asked, family.detected) == ([(0, None)], [])


async def test_a_model_of_one_language_is_asked_for_none() -> None:
    family = ScriptedFamily(("zh", "a"), language_from="model")
    assert (await transcribe(family))[0].language == "en"
    assert (family.asked, family.detected) == ([(0, "en")], [])


async def test_an_answer_may_name_no_language() -> None:
    transcript, deltas = await transcribe(ScriptedFamily((None, "what")))
    assert (transcript.language, transcript.text, deltas) == ("", "what", "what")
    assert [segment.language for segment in transcript.segments] == [UNSET]


@pytest.mark.parametrize("source", SOURCES)
async def test_numbers_are_written_in_digits_where_their_language_is_known(source: LanguageSource) -> None:
    digits = TranscriptionOptions(numerals="digits", segment_timestamps=True)
    said = (("fr", "vingt-cinq chats"), ("fr", ""), ("fr", "deux deux"))
    transcript, deltas = await transcribe(ScriptedFamily(*said, language_from=source), digits)
    assert transcript.text == deltas == "25 chats 2 2"
    assert [segment.text for segment in transcript.segments] == [" 25 chats", " 2 2"]
    transcript, deltas = await transcribe(ScriptedFamily(("zh", "twenty"), language_from=source), digits)
    assert transcript.text == deltas == "twenty"
    translated = msgspec.structs.replace(digits, task="translate")
    transcript, deltas = await transcribe(ScriptedFamily(("zh", "twenty"), language_from=source), translated)
    assert transcript.text == deltas == "20"


async def test_a_pinned_language_counts_only_where_nothing_was_told_before() -> None:
    pinned = Prior("de", is_pinned=True)
    family = ScriptedFamily((None, ""), ("zh", "a"))
    assert (await transcribe(family, prior=pinned))[0].language == "de"
    assert sorted(family.asked) == [(0, "zh"), (1, "de")]
    family = ScriptedFamily(("zh", "a"), ("zh", "b"))
    assert (await transcribe(family, prior=pinned))[0].language == "zh"


async def test_a_language_that_is_expected_saves_waiting_and_changes_nothing() -> None:
    for expected in ("zh", "de"):
        family = ScriptedFamily(("zh", "a"), ("zh", "b"), language_from="detection")
        transcript, _ = await transcribe(family, prior=Prior(expected, is_pinned=False))
        assert (transcript.language, transcript.text) == ("zh", "a b")
        assert family.detected == [0]
        assert {(0, "zh"), (1, "zh")} <= set(family.asked)
        assert len(family.asked) == 2 or expected == "de"
        assert family.num_looked_at <= 4 * RANGE_SAMPLES


@pytest.mark.parametrize("source", SOURCES)
async def test_one_allowed_language_is_taken_and_of_several_one_is_chosen_once(
    source: LanguageSource,
) -> None:
    family = ScriptedFamily(("zh", "a"), ("zh", "b"), language_from=source)
    await transcribe(family, TranscriptionOptions(languages=("fr",)))
    assert (sorted(family.asked), family.detected) == ([(0, "fr"), (1, "fr")], [])
    family = ScriptedFamily(("zh", "a"), ("zh", "b"), language_from=source)
    await transcribe(family, TranscriptionOptions(languages=("pl", "fr")))
    assert (sorted(family.asked), family.detected) == ([(0, "pl"), (1, "pl")], [0])
    assert family.num_looked_at == 2 * RANGE_SAMPLES, "features of either were computed once"


@pytest.mark.parametrize("source", SOURCES)
async def test_a_clear_language_is_pinned_for_partials_and_finals_ask_again(source: LanguageSource) -> None:
    family = ScriptedFamily(
        ("de", "Ja."), language_from=source, probability=lambda seconds: 0.9 if seconds > 0.7 else 0.5
    )
    family.facts = replace(family.facts, takes_previous_text=False, cut_rule=CutRule(2 * RANGE_SAMPLES, 0))
    audio = scripted_audio(1, 1)
    live = Transcriber(family).live(lambda a, b: audio[a:b], PLAIN, start=0)
    num_asked = []
    for end, final in ((16_000, False), (25_000, False), (26_000, False), (28_000, False), (30_000, True)):
        said = await live.hypothesis(end, final=final)
        assert (said.text, said.language) == ("Ja.", "de")
        is_told = source == "answer"
        num_asked.append([family.asked[-1][1] is None] if is_told else len(family.detected))
    assert num_asked == (
        [[True], [True], [False], [False], [True]] if source == "answer" else [1, 2, 2, 2, 3]
    )
    assert family.previous == [(), (0, 16_000), (0, 25_000), (0, 26_000), (0, 28_000)]


@pytest.mark.parametrize(
    ("probability", "spoken", "allowed", "partial", "is_sure"),
    [
        (0.6, "en", (), "en", True),
        (0.79, "en", ("de", "en"), "en", True),
        (0.81, "en", (), "de", False),
        (0.6, "de", (), "de", True),
        (0.6, "en", ("de", "fr"), "de", False),
        (0.6, None, (), "de", False),
        (0.6, "xx", (), "de", False),
    ],
)
async def test_a_turn_begins_in_the_language_that_was_spoken_before(
    probability: float, spoken: str | None, allowed: tuple[str, ...], partial: str, is_sure: bool
) -> None:
    """What is longer, and its end, is asked for its own; a doubtful one at the end is that of the session."""
    family = ScriptedFamily(("de", "Ja."), language_from="detection", probability=lambda _: probability)
    family.facts = replace(family.facts, cut_rule=CutRule(8 * RANGE_SAMPLES, 0))
    audio, options = scripted_audio(1, 1, 1, 1), TranscriptionOptions(languages=allowed)
    live = Transcriber(family).live(lambda a, b: audio[a:b], options, start=0, spoken=spoken)
    for end in (8_000, 20_000):
        said = await live.hypothesis(end, final=False)
        assert said.language == family.asked[-1][1] == partial
        assert said.language_probability == (1.0 if is_sure else probability)
    assert (await live.hypothesis(50_000, final=False)).language == "de"
    final = await live.hypothesis(20_000, final=True)
    of_session = is_sure and spoken == "en"
    assert final.language == ("en" if of_session else "de")
    assert final.language_probability == pytest.approx(1 - probability if of_session else probability)
    live.close()


async def test_who_goes_before_whom() -> None:
    family = ScriptedFamily(("en", "a"), ("en", "b"), ("en", "c"))
    audio = scripted_audio(1, 2, 3)
    live = Transcriber(family).live(lambda a, b: audio[a:b], PLAIN, start=0, caller="ada")
    lanes = []
    for end, options in (
        (8_000, {"final": False}),
        (16_000, {"final": True}),
        (16_100, {"final": True, "is_queued": True}),
        (16_200, {"final": True, "is_pushed": True, "is_queued": True}),
        (44_000, {"final": False}),
    ):
        await live.hypothesis(end, **options)
        lanes.append(family.lanes[-1])
    assert all(lane.caller == "ada" for lane in lanes)
    assert is_first(lanes[0])
    assert not any(map(is_first, lanes[1:]))
    nobodys = [msgspec.structs.replace(lane, caller="") for lane in lanes]
    assert nobodys == [LIVE_FIRST, LIVE_FINAL, LIVE_PARTIAL, FILE, LIVE_PARTIAL]
    assert LIVE_FINAL.priority < LIVE_FIRST.priority < LIVE_PARTIAL.priority
    live.close()


async def test_sessions_are_kept_while_a_range_may_grow() -> None:
    family, audio = ScriptedFamily(("en", "a"), ("en", "b")), scripted_audio(1, 2)
    live = Transcriber(family).live(lambda a, b: audio[a:b], PLAIN, start=0)
    for end in (8_000, 16_000):
        await live.hypothesis(end, final=False)
    assert (len(family.sessions), family.engine.closed) == (1, [])
    await live.hypothesis(20_000, final=False)
    assert (len(family.sessions), len(family.engine.closed)) == (2, 1)
    await live.hypothesis(32_000, final=True)
    live.close()
    live.close()
    assert sorted(family.engine.closed) == sorted(family.sessions)


async def test_finished_ranges_are_timed_before_the_turn_ends() -> None:
    family, audio = ScriptedFamily(*[("en", "a")] * 4), scripted_audio(1, 2, 3, 4)
    options = TranscriptionOptions(word_timestamps=True)
    live = Transcriber(family).live(lambda a, b: audio[a:b], options, start=0)
    for end in range(7_000, len(audio), 7_000):
        await live.hypothesis(end, final=False)
    assert len(family.timed) == 3
    final = await live.hypothesis(len(audio), final=True)
    assert (len(family.timed), sum(family.timed)) == (4, len(audio))
    assert final.words == (await Transcriber(family).transcribe(audio, options)).words


async def test_an_answer_that_is_its_own_prompt_counts_only_if_it_was_said() -> None:
    data = Path(__file__).parents[3] / "examples" / "data" / "kitchen_lights.wav"
    speech = np.asarray(soundfile.read(data, dtype="float32")[0], np.float32)[:RANGE_SAMPLES]
    prompt = "Names: Anna Berg and Carlos Diaz, both of Zurich, who manage the kitchen lights"
    for text, hears in ((prompt, False), ("Anna", True)):
        family = ScriptedFamily(("en", text))
        deltas: list[str] = []
        with_place = np.concatenate((np.ones(1, np.float32), speech[1:]))
        said = await Transcriber(family, VoiceActivityModel()).transcribe(
            with_place, TranscriptionOptions(prompt=prompt), on_delta=deltas.append
        )
        assert said.text == "".join(deltas) == (text if hears else "")


async def test_languages_have_names_and_refusals_name_the_field() -> None:
    speech = Transcriber(ScriptedFamily(("de", "a")))
    speech.check(TranscriptionOptions(language=" German ", languages=("de",)))
    with pytest.raises(BadRequestError, match="languages: 'xx' is not one of en, de") as caught:
        speech.check(TranscriptionOptions(languages=("de", "xx")))
    assert caught.value.param == "languages"
    live = speech.live(lambda a, b: scripted_audio(1)[a:b], TranscriptionOptions(language="xx"), start=0)
    with pytest.raises(BadRequestError):
        await live.hypothesis(100, final=False)


@pytest.mark.slow
async def test_a_turn_that_is_cleared_while_it_is_looked_at_is_no_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its audio may be gone by the time that the thread is back."""
    family = ScriptedFamily(("en", "a"), ("en", "b"), ("en", "c"))
    store, outcomes = AudioStore(), list[Outcome]()
    store.append(scripted_audio(0, 2, 3))
    is_looking, may_go_on = trio.Event(), threading.Event()
    token = trio.lowlevel.current_trio_token()

    def look() -> None:
        token.run_sync_soon(is_looking.set)
        may_go_on.wait(5)

    async def report(outcome: Outcome) -> None:
        outcomes.append(outcome)

    family.while_looking = look
    turns = LiveTurns({"m": Transcriber(family)}, "m", report, session_id="s")
    async with trio.open_nursery() as nursery:
        turns.start(Transcribe(ItemId("i"), 0, store.end, final=True), nursery, store.copy)
        await is_looking.wait()
        turns.forget(ItemId("i"))
        store.forget_before(store.end)
        may_go_on.set()
    assert (outcomes, caplog.records, family.asked) == ([], [], [])


async def test_a_closed_turn_reads_no_audio_that_was_forgotten() -> None:
    family, audio = ScriptedFamily(("en", "a")), scripted_audio(1)
    is_forgotten = False

    def read(start: int, end: int) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
        assert not is_forgotten
        return audio[start:end]

    for number in range(12):
        live, is_forgotten = Transcriber(family).live(read, PLAIN, start=0), False
        async with trio.open_nursery() as nursery:

            async def ask() -> None:
                await live.hypothesis(16_000, final=True)  # noqa: B023

            nursery.start_soon(ask)
            for _ in range(number):
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
            live.close()
            is_forgotten = True


async def test_each_range_may_know_what_was_said_before() -> None:
    said = [("en", text) for text in ("send this caller", "to voice mail", "goodbye then", "the end")]
    family = ScriptedFamily(*said)
    plain, _ = await transcribe(family)
    assert [family.previous_transcript[place] for place in range(4)] == [[""], [""], [""], [""]]
    family = ScriptedFamily(*said)
    family.misled = {2: "send this caller, send this caller"}
    options = TranscriptionOptions(condition_on_previous_text=True)
    transcript, deltas = await transcribe(family, options)
    assert deltas == transcript.text == plain.text
    assert family.previous_transcript == {
        0: [""],
        1: ["send this caller"],
        2: ["send this caller to voice mail", ""],
        3: ["send this caller to voice mail goodbye then"],
    }, "an answer made of what it was told is asked for again"


async def test_what_was_said_in_another_language_is_no_context(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (languages, settling):
        monkeypatch.setattr(module, "MIN_RANGE", 0)
    said = (("en", "hello"), ("fr", "bonjour"), ("fr", "encore"))
    family = ScriptedFamily(*said, language_from="detection", probability=lambda _: 0.95)
    family.facts = replace(family.facts, takes_previous_text=True)
    await transcribe(family, TranscriptionOptions(condition_on_previous_text=True))
    assert [family.previous_transcript[place] for place in range(3)] == [[""], [""], ["bonjour"]]


async def test_an_answer_that_repeats_itself_is_forgotten() -> None:
    family = ScriptedFamily(("en", "a rose is " * 40), ("en", "a rose"), ("en", "b"))
    await transcribe(family, TranscriptionOptions(condition_on_previous_text=True))
    assert [family.previous_transcript[place] for place in (1, 2)] == [[""], ["a rose"]]


async def test_an_answer_made_of_pieces_of_its_prompt_is_asked_for_without_it() -> None:
    prompt = "He spoke of the weather and of the roads. " * 4
    options = TranscriptionOptions(prompt=prompt)
    family = ScriptedFamily(("en", "Could you call me back tomorrow?"))
    family.misled = {0: "He spoke of the weather and of the weather and"}
    transcript, deltas = await transcribe(family, options)
    assert deltas == transcript.text == "Could you call me back tomorrow?"
    family = ScriptedFamily(("en", "he spoke of the weather, and of the weather"))
    family.misled = {0: "He spoke of the weather and of the weather"}
    assert (await transcribe(family, options))[0].text == family.misled[0], "that was said"
    family = ScriptedFamily(("en", "Could you call me back tomorrow?"))
    family.misled = {0: ""}
    assert (await transcribe(family, options))[0].text == "Could you call me back tomorrow?", "heard nothing"


async def test_clips_are_answered_for_themselves_with_the_times_of_the_whole() -> None:
    family = ScriptedFamily(*[("en", letter) for letter in "abcd"])
    speech, audio = Transcriber(family), scripted_audio(1, 2, 3, 4)
    options = TranscriptionOptions(clips=(1, 2, 3), segment_timestamps=True)
    transcript = await speech.transcribe(audio, options)
    assert (transcript.text, transcript.duration, sum(family.timed)) == ("b d", 4.0, 32_000)
    assert [(each.start, each.end, each.text) for each in transcript.segments] == [(1, 2, " b"), (3, 4, " d")]
    whole = await speech.transcribe(audio, TranscriptionOptions(clips=(0,), segment_timestamps=True))
    assert whole == await speech.transcribe(audio, TranscriptionOptions(segment_timestamps=True))
    assert (await speech.transcribe(audio, TranscriptionOptions(clips=(9,)))).duration == 4.0
