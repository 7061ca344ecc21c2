"""How questions and answers about scenes are put: names for things and places, and the forms of an answer.

Every question has one right answer, as a sentence, as a word or as JSON, whichever it asks for. What is asked
is the business of `still_questions.py` and `clip_questions.py`; knows no pixels. Read `scenes.py` first.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from scenes import Scene, Thing

PLACES: Final = (
    ("top left", "top middle", "top right"),
    ("middle left", "center", "middle right"),
    ("bottom left", "bottom middle", "bottom right"),
)
NUMBERS: Final = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
WORD_SHARE, JSON_SHARE = 0.15, 0.15
"""How often a question asks for a word, and for JSON, where it may."""
_IN_A_WORD: Final = (" Answer in one word.", " One word only.", " Just one word, please.")
_AS_JSON: Final = (" Answer as JSON.", " Reply in JSON.", " Give me JSON.")


@dataclass(frozen=True, slots=True)
class SceneQuestion:
    """A question, its right answer, and what kind of question it is."""

    kind: str
    question: str
    answer: str


@dataclass(frozen=True, slots=True)
class Answers:
    """The same answer in every form; without a `word`, or `value` for JSON, nobody asks for those."""

    forms: Sequence[str]
    sentence: str
    word: str | None = None
    value: dict[str, Any] | None = None

    def drawn(self, kind: str, rng: random.Random) -> SceneQuestion:
        """One way of asking, and what belongs to it."""
        question = rng.choice(self.forms)
        draw = rng.random()
        if draw < WORD_SHARE and self.word is not None:
            return SceneQuestion(kind, question + rng.choice(_IN_A_WORD), self.word)
        if draw > 1 - JSON_SHARE and self.value is not None:
            return SceneQuestion(kind, question + rng.choice(_AS_JSON), json.dumps(self.value))
        return SceneQuestion(kind, question, self.sentence)


def article(noun: str) -> str:
    """With "a" or "an"."""
    return f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"


def full_name(thing: Thing) -> str:
    """ "small red circle"."""
    return f"{thing.size} {thing.color} {thing.shape}"


def values_of(thing: Thing) -> dict[str, str]:
    """What JSON says of a thing."""
    return {"size": thing.size, "color": thing.color, "shape": thing.shape}


def place_of(thing: Thing) -> str:
    """The name of its cell."""
    row, column = thing.cell
    return PLACES[row][column]


def name_of(thing: Thing, things: Sequence[Thing], rng: random.Random, *, but: str = "") -> str | None:
    """A name without "the" that only this of the things has, which does not say `but`; None without one."""
    names = [
        thing.shape,
        f"{thing.color} thing",
        f"{thing.color} {thing.shape}",
        f"{thing.size} {thing.shape}",
        full_name(thing),
    ]
    words = {"shape": thing.shape, "color": thing.color, "size": thing.size, "": ""}
    known = [
        name
        for name in names
        if (not but or words[but] not in name.split()) and sum(fits(each, name) for each in things) == 1
    ]
    return rng.choice(known) if known else None


def fits(thing: Thing, name: str) -> bool:
    """Whether the thing may be called so."""
    return set(name.split()) <= {thing.shape, thing.color, thing.size, "thing"}


def named(scene: Scene, rng: random.Random, *, but: str = "") -> tuple[Thing, str] | None:
    """One of the scene's things with a name of its own."""
    for thing in rng.sample(scene.things, len(scene.things)):
        name = name_of(thing, scene.things, rng, but=but)
        if name is not None:
            return thing, name
    return None


def two_named(scene: Scene, rng: random.Random, *, but: str = "") -> list[tuple[Thing, str]] | None:
    found: list[tuple[Thing, str]] = []
    for thing in rng.sample(scene.things, len(scene.things)):
        name = name_of(thing, scene.things, rng, but=but)
        if name is not None:
            found.append((thing, name))
    return found[:2] if len(found) > 1 else None


def yes_or_no(forms: Sequence[str], *, yes: bool) -> Answers:
    """The answer to a question that can be denied."""
    return Answers(forms, "Yes." if yes else "No.", "yes" if yes else "no", {"answer": yes})


def listed(parts: Sequence[str]) -> str:
    """ "a, b and c"."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
