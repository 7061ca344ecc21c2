"""Clips have events that can be seen, and questions about them are answered by the events."""

import json
import random
from collections import Counter

import pytest
from clip_questions import CLIP_KINDS, NOTHING, NUM_FRAMES, ClipKind, drawn_clip, make_clip_question
from scenes import Clip, is_held_out

NUM_CLIPS = 300


def clips(*, held_out: bool = False) -> list[tuple[Clip, int]]:
    made = []
    for seed in range(NUM_CLIPS):
        rng = random.Random(seed)
        num_frames = rng.choice(NUM_FRAMES)
        made.append((drawn_clip(rng, num_frames, held_out=held_out), num_frames))
    return made


@pytest.mark.parametrize("held_out", [False, True])
def test_clips_hold_what_they_may_at_every_moment(held_out: bool) -> None:
    for clip, num_frames in clips(held_out=held_out):
        first, *others = clip.scene.things
        assert is_held_out(first.color, first.shape) is held_out
        assert not any(is_held_out(other.color, other.shape) for other in others)
        for frame in range(num_frames):
            things = clip.at(frame / (num_frames - 1)).things
            assert len({(thing.color, thing.shape) for thing in things}) == len(things)
            assert all(thing.color != clip.scene.ground for thing in things)
            known = [thing for thing in things if is_held_out(thing.color, thing.shape)]
            assert held_out or not known


def test_every_event_is_seen_between_two_frames_and_events_keep_their_order() -> None:
    numbers = Counter(len(clip.events) for clip, _ in clips())
    assert set(numbers) == {0, 1, 2}
    for clip, num_frames in clips():
        shown = [clip.at(frame / (num_frames - 1)) for frame in range(num_frames)]
        changes = [index for index in range(1, num_frames) if shown[index] != shown[index - 1]]
        assert bool(changes) is bool(clip.events)
        if len(clip.events) == 2:
            first, last = clip.events
            assert first.end < last.begin
            assert first.thing != last.thing


def test_things_keep_apart() -> None:
    for clip, num_frames in clips():
        for frame in range(num_frames):
            cells = [thing.cell for thing in clip.at(frame / (num_frames - 1)).things]
            assert len(set(cells)) == len(cells)


@pytest.mark.parametrize("kind", CLIP_KINDS)
def test_the_same_question_about_a_clip_has_one_answer(kind: ClipKind) -> None:
    found = 0
    for clip, _ in clips()[:60]:
        answers: dict[str, str] = {}
        for seed in range(20):
            posed = make_clip_question(kind, clip, random.Random(seed))
            if posed is not None:
                found += 1
                assert answers.setdefault(posed.question, posed.answer) == posed.answer
    assert found


def test_json_says_the_events() -> None:
    for clip, _ in clips():
        posed = make_clip_question("clip json", clip, random.Random(0))
        assert posed is not None
        found = json.loads(posed.answer)
        assert [each["event"] for each in found] == [event.change for event in clip.events]
        for each, event in zip(found, clip.events, strict=True):
            thing = clip.scene.things[event.thing]
            assert each["thing"] == f"{thing.color} {thing.shape}"
            assert each.get("direction") == event.direction
            assert each.get("color") == event.becomes


def test_sentences_name_the_thing_and_what_it_does() -> None:
    verbs = {"moves": "moves", "appears": "appears", "vanishes": "vanishes", "changes": "turns"}
    for clip, _ in clips():
        posed = make_clip_question("happens", clip, random.Random(0))
        assert posed is not None
        if not clip.events:
            assert posed.answer == NOTHING
        for event in clip.events:
            thing = clip.scene.things[event.thing]
            assert f"{thing.color} {thing.shape} {verbs[event.change]}" in posed.answer
            assert (event.direction or "") in posed.answer
            assert (event.becomes or "") in posed.answer
        order = [posed.answer.find(f"{clip.scene.things[event.thing].color} ") for event in clip.events]
        assert order == sorted(order)


def test_the_first_and_the_last_event_are_told_apart() -> None:
    for clip, _ in clips():
        posed = make_clip_question("order", clip, random.Random(1))
        assert (posed is None) is (len(clip.events) < 2)
        if posed is not None:
            event = clip.events[0 if "first" in posed.question else -1]
            assert clip.scene.things[event.thing].shape in posed.answer
