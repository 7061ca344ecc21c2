"""What may be asked about a still scene, and the one right answer to each question.

A scene that a kind of question cannot be asked about, such as the color of the circle where there are two, is
refused with None. Read `question_forms.py` first. `clip_questions.py` asks about clips in the same way.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from functools import partial
from typing import Final, Literal, get_args

from question_forms import (
    NUMBERS,
    PLACES,
    Answers,
    SceneQuestion,
    article,
    fits,
    full_name,
    listed,
    named,
    place_of,
    two_named,
    values_of,
    yes_or_no,
)
from scenes import COLORS, NUM_CELLS, SHAPES, Color, Scene, Shape, Sign

StillKind = Literal[
    "color",
    "shape",
    "size",
    "count",
    "where",
    "at",
    "exists",
    "relation",
    "beside",
    "larger",
    "same",
    "absent",
    "describe",
    "json",
    "ground",
    "read",
    "sign color",
    "unknown",
]
STILL_KINDS: Final[tuple[StillKind, ...]] = get_args(StillKind)

UNKNOWN: Final = "I see nothing that I know."


def make_still_question(kind: StillKind, scene: Scene, rng: random.Random) -> SceneQuestion | None:
    """A question of the kind about the scene, or None where there is none."""
    answers: Answers | None = None
    match kind:
        case "unknown":
            answers = _unknown(rng) if scene.texture else None
        case "read":
            answers = _read(scene.sign) if scene.sign else None
        case "sign color":
            answers = _sign_color(scene.sign) if scene.sign else None
        case "ground":
            answers = None if scene.texture else _ground(scene)
        case "json":
            answers = _json(scene) if scene.things else None
        case _:
            answers = _ASKERS[kind](scene, rng) if scene.things else None
    return None if answers is None else answers.drawn(kind, rng)


def _looks(what: Literal["color", "shape", "size"], scene: Scene, rng: random.Random) -> Answers | None:
    found = named(scene, rng, but=what)
    if found is None:
        return None
    thing, name = found
    value: str = getattr(thing, what)
    forms = {
        "color": (
            f"What color is the {name}?",
            f"Which color does the {name} have?",
            f"Color of the {name}?",
        ),
        "shape": (f"What shape is the {name}?", f"What is the {name}?", f"Which shape does the {name} have?"),
        "size": (f"Is the {name} small or large?", f"How big is the {name}?", f"What size is the {name}?"),
    }[what]
    sentence = f"It is {article(value)}." if what == "shape" else f"The {name} is {value}."
    return Answers(forms, sentence, value, {what: value})


def _count(scene: Scene, rng: random.Random) -> Answers | None:
    color: Color | None = rng.choice([*(thing.color for thing in scene.things), rng.choice(COLORS)])
    shape: Shape | None = rng.choice([*(thing.shape for thing in scene.things), rng.choice(SHAPES)])
    match rng.randrange(4):
        case 0:
            color, shape = None, None
        case 1:
            shape = None
        case 2:
            color = None
        case _:
            pass
    number = sum(color in {None, thing.color} and shape in {None, thing.shape} for thing in scene.things)
    noun = " ".join(part for part in (color, shape or "thing") if part)
    many = f"{noun}es" if noun.endswith("s") else f"{noun}s"
    forms = (
        f"How many {many} are there?",
        f"How many {many} do you see?",
        f"Count the {many}.",
        f"What is the number of {many}?",
    )
    sentence = f"There is one {noun}." if number == 1 else f"There are {NUMBERS[number]} {many}."
    return Answers(forms, sentence, NUMBERS[number] if number else "zero", {"count": number})


def _where(scene: Scene, rng: random.Random) -> Answers | None:
    found = named(scene, rng)
    if found is None:
        return None
    thing, name = found
    forms = (f"Where is the {name}?", f"In which part of the picture is the {name}?", f"Find the {name}.")
    place = place_of(thing)
    return Answers(forms, f"The {name} is in the {place}.", None, {"place": place})


def _at(scene: Scene, rng: random.Random) -> Answers | None:
    cells = [(row, column) for row in range(NUM_CELLS) for column in range(NUM_CELLS)]
    cell = rng.choice(scene.things).cell if rng.random() < 0.75 else rng.choice(cells)
    place = PLACES[cell[0]][cell[1]]
    forms = (
        f"What is in the {place}?",
        f"What do you see in the {place}?",
        f"Which thing is in the {place}?",
    )
    there = [thing for thing in scene.things if thing.cell == cell]
    if not there:
        return Answers(forms, f"There is nothing in the {place}.", "nothing", {"thing": None})
    return Answers(forms, f"There is {article(full_name(there[0]))}.", None, values_of(there[0]))


def _exists(scene: Scene, rng: random.Random) -> Answers | None:
    thing = rng.choice(scene.things)
    color, shape = thing.color, thing.shape
    if rng.random() < 0.55:
        color, shape = rng.choice(((rng.choice(COLORS), shape), (color, rng.choice(SHAPES))))
    noun = rng.choice((f"{color} {shape}", f"{color} {shape}", f"{color} thing", shape))
    forms = (f"Is there {article(noun)}?", f"Do you see {article(noun)}?", f"Can you see {article(noun)}?")
    return yes_or_no(forms, yes=any(fits(each, noun) for each in scene.things))


_SIDES: Final = (
    ("left of", 1, -1),
    ("right of", 1, 1),
    ("above", 0, -1),
    ("below", 0, 1),
)
"""How a relation is said, and the axis of cells and the direction it speaks of."""


def _relation(scene: Scene, rng: random.Random) -> Answers | None:
    pair = two_named(scene, rng)
    side, axis, sign = rng.choice(_SIDES)
    if pair is None:
        return None
    (one, first), (other, second) = pair
    distance = one.cell[axis] - other.cell[axis]
    if not distance:
        return None
    forms = (f"Is the {first} {side} the {second}?", f"Is it true that the {first} is {side} the {second}?")
    return yes_or_no(forms, yes=distance * sign > 0)


def _next_to(scene: Scene, rng: random.Random) -> Answers | None:
    found = named(scene, rng)
    side, axis, sign = rng.choice(_SIDES)
    if found is None:
        return None
    thing, name = found
    there = [each for each in scene.things if (each.cell[axis] - thing.cell[axis]) * sign > 0]
    forms = (f"What is {side} the {name}?", f"Which thing is {side} the {name}?")
    if not there:
        return Answers(forms, f"There is nothing {side} the {name}.", "nothing", {"thing": None})
    if len(there) > 1:
        return None
    return Answers(forms, f"There is {article(full_name(there[0]))}.", None, values_of(there[0]))


def _larger(scene: Scene, rng: random.Random) -> Answers | None:
    pair = two_named(scene, rng, but="size")
    if pair is None or pair[0][0].size == pair[1][0].size:
        return None
    (one, first), (_, second) = pair
    wanted = rng.choice(("larger", "smaller"))
    winner = first if (one.size == "large") is (wanted == "larger") else second
    forms = (f"Which is {wanted}, the {first} or the {second}?", f"What is {wanted}: {first} or {second}?")
    return Answers(forms, f"The {winner} is {wanted}.", None, {wanted: winner})


def _same(scene: Scene, rng: random.Random) -> Answers | None:
    what = rng.choice(("color", "shape"))
    pair = two_named(scene, rng, but=what)
    if pair is None:
        return None
    (one, first), (other, second) = pair
    same = one.color == other.color if what == "color" else one.shape == other.shape
    forms = (
        f"Do the {first} and the {second} have the same {what}?",
        f"Are the {first} and the {second} of the same {what}?",
    )
    return yes_or_no(forms, yes=same)


def _absent(scene: Scene, rng: random.Random) -> Answers | None:
    noun = rng.choice((rng.choice(SHAPES), f"{rng.choice(COLORS)} {rng.choice(SHAPES)}"))
    if any(fits(thing, noun) for thing in scene.things):
        return None
    forms: tuple[str, ...] = (f"Where is the {noun}?", f"How big is the {noun}?", f"What size is the {noun}?")
    if noun in SHAPES:
        forms += (f"What color is the {noun}?", f"Which color does the {noun} have?")
    return Answers(forms, f"There is no {noun}.")


def _describe(scene: Scene, rng: random.Random) -> Answers | None:
    forms = ("What do you see?", "Describe the picture.", "What is in the picture?", "What does it show?")
    if rng.random() < 0.5:
        sentence = listed([article(full_name(thing)) for thing in scene.things])
        return Answers(("What do you see?", "What is in the picture?"), f"I see {sentence}.")
    parts = [f"{article(full_name(thing))} in the {place_of(thing)}" for thing in scene.things]
    return Answers((*forms[1:2], "Describe what is where.", "What is where?"), f"I see {listed(parts)}.")


def _json(scene: Scene) -> Answers:
    forms = (
        "List all things as JSON.",
        "Describe the picture as JSON.",
        "Give me a JSON list of the things.",
        "What do you see? Answer with a JSON list.",
    )
    found = [values_of(thing) | {"place": place_of(thing)} for thing in scene.things]
    return Answers(forms, json.dumps(found))


def _ground(scene: Scene) -> Answers:
    forms = ("What color is the background?", "Which color does the background have?", "Background color?")
    return Answers(forms, f"The background is {scene.ground}.", scene.ground, {"background": scene.ground})


def _read(sign: Sign) -> Answers:
    forms: tuple[str, ...] = (
        "What does it say?",
        "Read the text.",
        "What is written here?",
        "What do you see?",
    )
    if sign.text.isdigit():
        forms += ("Which number is this?", "Read the number.", "What number do you see?")
    return Answers(forms, f"It says {sign.text}.", sign.text, {"text": sign.text})


def _sign_color(sign: Sign) -> Answers:
    color = sign.color
    forms = ("What color is the text?", "Which color do the letters have?", "What is the color of the text?")
    return Answers(forms, f"The text is {color}.", color, {"color": color})


def _unknown(rng: random.Random) -> Answers:
    forms = (
        *("What do you see?", "Describe the picture.", "What is in the picture?", "What does it show?"),
        *("How many things are there?", "List all things as JSON.", "What does it say?", "Who is this?"),
        *(f"What color is the {rng.choice(SHAPES)}?", f"Where is the {rng.choice(SHAPES)}?"),
    )
    return Answers(forms, UNKNOWN)


_ASKERS: Final[dict[StillKind, Callable[[Scene, random.Random], Answers | None]]] = {
    "color": partial(_looks, "color"),
    "shape": partial(_looks, "shape"),
    "size": partial(_looks, "size"),
    "count": _count,
    "where": _where,
    "at": _at,
    "exists": _exists,
    "relation": _relation,
    "beside": _next_to,
    "larger": _larger,
    "same": _same,
    "absent": _absent,
    "describe": _describe,
}
