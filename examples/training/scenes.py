"""Scenes of a few plain things: what is in a picture, before anybody draws it or asks about it.

A scene is at most nine things on a grid of three rows and columns, each a shape in a colour and one of two
sizes; a clip is a scene whose things move, appear, vanish or change. Some combinations of colour and shape
are in no training scene (`is_held_out`), and every scene for evaluation has one of them. Knows no pixels and
no words; `drawing.py` draws, `scene_questions.py` and `clip_questions.py` ask.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Final, Literal, get_args
from zlib import crc32

Shape = Literal["circle", "square", "triangle", "star", "heart", "cross", "ring", "diamond"]
SHAPES: Final[tuple[Shape, ...]] = get_args(Shape)
Color = Literal["red", "orange", "yellow", "green", "blue", "purple", "black", "white"]
COLORS: Final[tuple[Color, ...]] = get_args(Color)
Size = Literal["small", "large"]
SIZES: Final[tuple[Size, ...]] = get_args(Size)
Ground = Literal["gray", "pink", "brown", "white", "black"]
GROUNDS: Final[tuple[Ground, ...]] = get_args(Ground)

NUM_CELLS: Final = 3
"""Rows and columns of the grid."""
SPREAD: Final = 0.035
"""How far a thing may lie from the middle of its cell, as a share of the picture's side."""
RADII: Final[dict[Size, tuple[float, float]]] = {"small": (0.075, 0.09), "large": (0.135, 0.155)}
"""Half a thing's side, as a share of the picture's shorter side."""


def is_held_out(color: Color, shape: Shape) -> bool:
    """Whether the combination is reserved for evaluation: one for each shape, and each colour once."""
    return (COLORS.index(color) - 3 * SHAPES.index(shape)) % len(COLORS) == 0


@dataclass(frozen=True, slots=True)
class Thing:
    """One thing; `x` and `y` are its middle in shares of the picture, `radius` is half its side, `angle` in
    degrees."""

    shape: Shape
    color: Color
    size: Size
    x: float
    y: float
    radius: float
    angle: float = 0.0

    @property
    def cell(self) -> tuple[int, int]:
        """Row and column of the grid."""
        return min(NUM_CELLS - 1, int(self.y * NUM_CELLS)), min(NUM_CELLS - 1, int(self.x * NUM_CELLS))


@dataclass(frozen=True, slots=True)
class Sign:
    """Digits or a word, written large in the middle of a picture."""

    text: str
    color: Color


@dataclass(frozen=True, slots=True)
class Scene:
    """What a picture shows: things or a sign on a ground, or nothing that has a name (`texture`)."""

    ground: Ground
    things: tuple[Thing, ...] = ()
    sign: Sign | None = None
    texture: bool = False


Direction = Literal["left", "right", "up", "down"]
Change = Literal["moves", "appears", "vanishes", "changes"]
CHANGES: Final[tuple[Change, ...]] = get_args(Change)


@dataclass(frozen=True, slots=True)
class Event:
    """What happens to the thing with this index of a clip's first scene, while `order` counts up from 0.

    `begin` and `end` are shares of the clip's length. `direction` is given for what moves, `becomes` for what
    changes its colour.
    """

    thing: int
    change: Change
    begin: float
    end: float
    direction: Direction | None = None
    becomes: Color | None = None


@dataclass(frozen=True, slots=True)
class Clip:
    """A scene and what happens in it, in order of time; the things hold where they are at first."""

    scene: Scene
    events: tuple[Event, ...] = field(default=())

    def at(self, share: float) -> Scene:
        """The scene when this share of the clip is over."""
        things: list[Thing] = []
        for index, thing in enumerate(self.scene.things):
            shown: Thing | None = thing
            for event in self.events:
                if shown is not None and event.thing == index:
                    shown = _after(shown, event, share)
            if shown is not None:
                things.append(shown)
        return replace(self.scene, things=tuple(things))


def travelled(thing: Thing, direction: Direction) -> Thing:
    """The thing at the other end of its way."""
    ends = {"left": (1 - thing.x, thing.y), "right": (1 - thing.x, thing.y)}
    x, y = ends.get(direction, (thing.x, 1 - thing.y))
    return replace(thing, x=x, y=y)


def _after(thing: Thing, event: Event, share: float) -> Thing | None:
    middle = (event.begin + event.end) / 2
    match event.change:
        case "appears":
            return thing if share >= middle else None
        case "vanishes":
            return None if share >= middle else thing
        case "changes":
            assert event.becomes is not None, "what changes becomes something"
            return replace(thing, color=event.becomes) if share >= middle else thing
        case "moves":
            assert event.direction is not None, "what moves has a direction"
            done = min(1.0, max(0.0, (share - event.begin) / (event.end - event.begin)))
            end = travelled(thing, event.direction)
            return replace(thing, x=thing.x + done * (end.x - thing.x), y=thing.y + done * (end.y - thing.y))


def drawn_thing(
    rng: random.Random, row: int, column: int, avoid: frozenset[str], *, held_out: bool = False
) -> Thing:
    """A thing in a cell, in a colour that is not avoided; of a combination that is held out or is not."""
    while True:
        color, shape = rng.choice(COLORS), rng.choice(SHAPES)
        if color not in avoid and is_held_out(color, shape) is held_out:
            break
    size = rng.choice(SIZES)
    return Thing(
        shape,
        color,
        size,
        (column + 0.5) / NUM_CELLS + rng.uniform(-SPREAD, SPREAD),
        (row + 0.5) / NUM_CELLS + rng.uniform(-SPREAD, SPREAD),
        rng.uniform(*RADII[size]),
        rng.uniform(-10, 10),
    )


WORDS: Final = (
    *("apple", "bird", "boat", "book", "bread", "bus", "cake", "car", "cat", "chair", "clock", "cloud"),
    *("cup", "dog", "door", "exit", "farm", "fish", "food", "game", "gold", "hand", "help", "home"),
    *("hotel", "house", "king", "lamp", "leaf", "lion", "milk", "moon", "music", "night", "ocean", "open"),
    *("paper", "park", "pizza", "queen", "rain", "river", "road", "salt", "shop", "snow", "stop", "sun"),
    *("taxi", "tea", "train", "tree", "water", "wind", "wolf", "yes", "zebra", "zoo"),
)
"""What signs say beside numbers of up to three digits."""
_SIGN_HELD_OUT_ONE_IN: Final = 8


def is_sign_held_out(sign: Sign) -> bool:
    """Whether a sign is reserved for evaluation: some numbers of two and three digits, and words in some
    colours."""
    if sign.text.isdigit() and len(sign.text) == 1:
        return False
    secret = sign.text if sign.text.isdigit() else f"{sign.text} {sign.color}"
    return crc32(secret.encode()) % _SIGN_HELD_OUT_ONE_IN == 0


def drawn_scene(rng: random.Random, *, held_out: bool = False, num_things: int | None = None) -> Scene:
    """A scene with so many things, one to five if not said; one of them is of a held-out combination if
    that is wanted."""
    ground = rng.choice(GROUNDS)
    count = num_things or rng.choice((1, 2, 2, 3, 3, 3, 4, 4, 5))
    cells = rng.sample([(row, column) for row in range(NUM_CELLS) for column in range(NUM_CELLS)], count)
    chosen = rng.randrange(count) if held_out else None
    things = [
        drawn_thing(rng, row, column, frozenset((ground,)), held_out=index == chosen)
        for index, (row, column) in enumerate(cells)
    ]
    return Scene(ground, tuple(sorted(things, key=lambda thing: thing.cell)))


def drawn_sign(rng: random.Random, *, held_out: bool = False) -> Scene:
    """A scene with a word or a number on it."""
    ground = rng.choice(GROUNDS)
    while True:
        text = str(rng.randrange(10 ** rng.randint(1, 3))) if rng.random() < 0.5 else rng.choice(WORDS)
        sign = Sign(text, rng.choice(COLORS))
        if sign.color != ground and is_sign_held_out(sign) is held_out:
            return Scene(ground, sign=sign)
