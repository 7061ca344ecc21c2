"""Questions about stills have exactly one right answer, and it is the one that is given."""

import json
import random
from collections import Counter

import pytest
from question_forms import NUMBERS, PLACES, SceneQuestion, fits
from scenes import COLORS, SHAPES, SIZES, Scene, drawn_scene, drawn_sign
from still_questions import STILL_KINDS, UNKNOWN, StillKind, make_still_question

NUM_SCENES = 300


def questions_of(kind: StillKind) -> list[tuple[Scene, SceneQuestion]]:
    """Of many scenes those that the kind can be asked about."""
    found = []
    for seed in range(NUM_SCENES):
        rng = random.Random(seed)
        match kind:
            case "unknown":
                scene = Scene("gray", texture=True)
            case "read" | "sign color":
                scene = drawn_sign(rng)
            case _:
                scene = drawn_scene(rng)
        question = make_still_question(kind, scene, rng)
        if question is not None:
            found.append((scene, question))
    assert found
    return found


def name_in(question: str) -> str:
    """The first name of a thing behind "the"."""
    words = question.replace("?", " ").replace(".", " ").split()
    known = {"thing", *SIZES, *SHAPES, *COLORS}
    return " ".join(word for word in words[words.index("the") + 1 :] if word in known)


def stated(answer: str) -> str:
    """What a short answer says, in whichever form."""
    if answer.startswith("{"):
        (value,) = json.loads(answer).values()
        return str(value)
    return answer.rstrip(".").split()[-1]


@pytest.mark.parametrize("kind", ["color", "shape", "size"])
def test_what_is_asked_for_is_a_property_of_the_only_thing_of_that_name(kind: StillKind) -> None:
    for scene, question in questions_of(kind):
        name = name_in(question.question.split("small or large")[0])
        named = [thing for thing in scene.things if fits(thing, name)]
        assert len(named) == 1, question
        value = {"color": named[0].color, "shape": named[0].shape, "size": named[0].size}[kind]
        assert stated(question.answer) == value, question
        assert value not in name.split(), question


def test_counts_are_counts() -> None:
    for scene, question in questions_of("count"):
        words = question.question.replace("?", "").replace(".", "").split()
        wanted = {word.removesuffix("es") if word == "crosses" else word.removesuffix("s") for word in words}
        noun = " ".join(wanted & {*SHAPES, *COLORS, "thing"})
        number = sum(fits(thing, noun) for thing in scene.things)
        said = question.answer
        if said.startswith("{"):
            assert json.loads(said) == {"count": number}, question
        else:
            assert {*said.rstrip(".").split()} & {NUMBERS[number], "zero" if not number else ""}, question


def test_places_are_those_of_the_things() -> None:
    for scene, question in questions_of("where"):
        name = name_in(question.question.removeprefix("In which part of the picture is "))
        (thing,) = (thing for thing in scene.things if fits(thing, name))
        row, column = thing.cell
        assert PLACES[row][column] in question.answer


def test_relations_follow_the_grid() -> None:
    answers = Counter[str]()
    for scene, question in questions_of("relation"):
        text = question.question.removeprefix("Is it true that ")
        side = next(side for side in ("left of", "right of", "above", "below") if f" {side} " in text)
        first, second = (
            name_in(f"is the {part.split(' the ', 1)[-1].removeprefix('the ')}") for part in text.split(side)
        )
        one, other = (next(thing for thing in scene.things if fits(thing, name)) for name in (first, second))
        rows, columns = one.cell[0] - other.cell[0], one.cell[1] - other.cell[1]
        true = {"left of": columns < 0, "right of": columns > 0, "above": rows < 0, "below": rows > 0}[side]
        assert stated(question.answer).lower() in ({"yes", "true"} if true else {"no", "false"}), question
        answers[str(true)] += 1
    assert min(answers.values()) > 0.3 * max(answers.values())


def test_lists_have_every_thing_with_its_place() -> None:
    for scene, question in questions_of("json"):
        found = json.loads(question.answer)
        expected = [
            (thing.size, thing.color, thing.shape, PLACES[thing.cell[0]][thing.cell[1]])
            for thing in scene.things
        ]
        assert [tuple(each.values()) for each in found] == expected


def test_what_is_absent_is_not_there_and_what_has_no_name_is_not_named() -> None:
    for scene, question in questions_of("absent"):
        noun = question.answer.removeprefix("There is no ").rstrip(".")
        assert noun in question.question
        assert not any(fits(thing, noun) for thing in scene.things)
    assert {question.answer for _, question in questions_of("unknown")} == {UNKNOWN}


def test_signs_are_read_as_written() -> None:
    for scene, question in questions_of("read"):
        assert scene.sign is not None
        assert stated(question.answer) == scene.sign.text


@pytest.mark.parametrize("kind", STILL_KINDS)
def test_the_same_question_about_a_scene_has_one_answer(kind: StillKind) -> None:
    for scene, _ in questions_of(kind)[:40]:
        answers: dict[str, str] = {}
        for seed in range(40):
            question = make_still_question(kind, scene, random.Random(seed))
            if question is not None:
                assert answers.setdefault(question.question, question.answer) == question.answer


def test_a_scene_is_asked_only_what_it_can_answer() -> None:
    rng = random.Random(0)
    assert make_still_question("read", drawn_scene(rng), rng) is None
    assert make_still_question("color", drawn_sign(rng), rng) is None
    assert make_still_question("ground", Scene("gray", texture=True), rng) is None
    assert make_still_question("unknown", drawn_scene(rng), rng) is None
