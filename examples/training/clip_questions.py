"""Clips in which something happens, what may be asked about them, and the one right answer to each question.

Things keep to their own row or column, so that none hides another; no two have the same colour and shape at
any time. Things stay apart in time, too: of two events the first is over before the second begins. Read
`scenes.py` and `question_forms.py` first.
"""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Final, Literal, get_args

from question_forms import Answers, SceneQuestion, article, listed, yes_or_no
from scenes import (
    CHANGES,
    COLORS,
    GROUNDS,
    NUM_CELLS,
    Change,
    Clip,
    Color,
    Direction,
    Event,
    Ground,
    Scene,
    Thing,
    drawn_thing,
    is_held_out,
)

ClipKind = Literal["happens", "direction", "moving", "moves", "change", "becomes", "order", "clip json"]
CLIP_KINDS: Final[tuple[ClipKind, ...]] = get_args(ClipKind)
NUM_FRAMES: Final = (2, 4, 6, 8)
"""Of a clip; two events take more than `MAX_SHORT`."""
MAX_SHORT: Final = 4
NOTHING: Final = "Nothing happens."


def drawn_clip(rng: random.Random, num_frames: int, *, held_out: bool = False) -> Clip:
    """One to three things, to which up to two things happen; the first of them is of a held-out combination
    if that is wanted."""
    across = rng.random() < 0.5
    ground = rng.choice(GROUNDS)
    num_events = rng.choice((0, 1, 1, 1, 1, 1, 1, 1, 1)) if num_frames <= MAX_SHORT else rng.choice((1, 1, 2))
    count = rng.randint(max(1, num_events), NUM_CELLS)
    lanes = rng.sample(range(NUM_CELLS), count)
    things: list[Thing] = []
    while len(things) < count:
        lane, place = lanes[len(things)], rng.randrange(NUM_CELLS)
        row, column = (lane, place) if across else (place, lane)
        thing = drawn_thing(rng, row, column, frozenset((ground,)), held_out=held_out and not things)
        if all((thing.color, thing.shape) != (other.color, other.shape) for other in things):
            things.append(thing)
    chosen = [0, *range(1, count)] if held_out else rng.sample(range(count), count)
    spans = ((0.0, 1.0),) if num_events == 1 else ((0.0, 0.45), (0.55, 1.0))
    if num_events == 2:
        rng.shuffle(chosen)
    events: list[Event] = []
    for index, span in zip(chosen[:num_events], spans, strict=False):
        things[index], event = _event(index, things, ground, span, num_frames, across=across, rng=rng)
        events.append(event)
    return Clip(Scene(ground, tuple(things)), tuple(events))


def _event(
    index: int,
    things: list[Thing],
    ground: Ground,
    span: tuple[float, float],
    num_frames: int,
    *,
    across: bool,
    rng: random.Random,
) -> tuple[Thing, Event]:
    """Something that happens to the thing within the span, and the thing where it begins."""
    thing = things[index]
    change: Change = rng.choices(CHANGES, (4, 2, 2, 2))[0]
    if change == "moves":
        direction: Direction = rng.choice(("left", "right") if across else ("up", "down"))
        far = rng.uniform(0.8, 0.86)
        start = far if direction in {"left", "up"} else 1 - far
        moved = replace(thing, x=start) if across else replace(thing, y=start)
        length = span[1] - span[0]
        begin = span[0] + rng.uniform(0, 0.15) * length
        return moved, Event(index, change, begin, span[1] - rng.uniform(0, 0.15) * length, direction)
    # Between two frames: what is sudden is seen in one and not in the other.
    gaps = [(gap + 0.5) / (num_frames - 1) for gap in range(num_frames - 1)]
    at = rng.choice([gap for gap in gaps if span[0] < gap < span[1]])
    becomes = _other_color(index, things, ground, rng) if change == "changes" else None
    return thing, Event(index, change, at, at, becomes=becomes)


def _other_color(index: int, things: list[Thing], ground: Ground, rng: random.Random) -> Color:
    """A colour that nothing else has, and that is known with the thing's shape."""
    thing = things[index]
    taken = {ground, *(each.color for each in things)}
    known = [color for color in COLORS if color not in taken and not is_held_out(color, thing.shape)]
    return rng.choice(known)


def make_clip_question(kind: ClipKind, clip: Clip, rng: random.Random) -> SceneQuestion | None:
    """A question of the kind about the clip, or None where there is none."""
    match kind:
        case "happens":
            answers: Answers | None = _happens(clip)
        case "direction":
            answers = _direction(clip, rng)
        case "moving":
            answers = _moving(clip)
        case "moves":
            answers = _moves(clip, rng)
        case "change":
            answers = _change(clip, rng)
        case "becomes":
            answers = _becomes(clip)
        case "order":
            answers = _order(clip, rng)
        case "clip json":
            answers = _clip_json(clip)
    return None if answers is None else answers.drawn(kind, rng)


def _name(clip: Clip, event: Event) -> str:
    thing = clip.scene.things[event.thing]
    return f"{thing.color} {thing.shape}"


def _described(clip: Clip, event: Event) -> str:
    """What happens, to be continued in a sentence."""
    name = _name(clip, event)
    match event.change:
        case "moves":
            where = event.direction if event.direction in {"up", "down"} else f"to the {event.direction}"
            return f"the {name} moves {where}"
        case "appears":
            return f"{article(name)} appears"
        case "vanishes":
            return f"the {name} vanishes"
        case "changes":
            return f"the {name} turns {event.becomes}"


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _happens(clip: Clip) -> Answers:
    forms = (
        "What happens?",
        "What happens in the clip?",
        "Describe what happens.",
        "What do you see happen?",
    )
    match [_described(clip, event) for event in clip.events]:
        case []:
            return Answers(forms, NOTHING)
        case [only]:
            return Answers(forms, _sentence(only))
        case [first, *rest]:
            return Answers(forms, _sentence(f"first {first}, then {listed(rest)}"))
    raise AssertionError("a list is empty, or has a first part and a rest")


def _direction(clip: Clip, rng: random.Random) -> Answers | None:
    moving = [event for event in clip.events if event.change == "moves"]
    if not moving:
        return None
    event = rng.choice(moving)
    name, direction = _name(clip, event), event.direction
    where = direction if direction in {"up", "down"} else f"to the {direction}"
    forms = (
        f"Which way does the {name} move?",
        f"Where does the {name} go?",
        f"In which direction does the {name} move?",
    )
    return Answers(forms, f"It moves {where}.", direction, {"direction": direction})


def _moving(clip: Clip) -> Answers:
    names = [f"the {_name(clip, event)}" for event in clip.events if event.change == "moves"]
    forms = ("What moves?", "Which thing moves?", "What is moving?")
    if not names:
        return Answers(forms, "Nothing moves.", "nothing", {"moving": []})
    values = [name.removeprefix("the ") for name in names]
    verb = "move" if len(names) > 1 else "moves"
    return Answers(forms, _sentence(f"{listed(names)} {verb}"), None, {"moving": values})


def _moves(clip: Clip, rng: random.Random) -> Answers:
    index = rng.randrange(len(clip.scene.things))
    thing = clip.scene.things[index]
    moves = any(event.thing == index and event.change == "moves" for event in clip.events)
    name = f"{thing.color} {thing.shape}"
    return yes_or_no((f"Does the {name} move?", f"Is the {name} moving?"), yes=moves)


def _change(clip: Clip, rng: random.Random) -> Answers:
    chosen_change: Change = rng.choice(("appears", "vanishes", "changes"))
    if clip.events and rng.random() < 0.6:
        chosen_change = rng.choice([event.change for event in clip.events])
    forms = {
        "appears": ("What appears?", "Which thing appears?", "What comes into the picture?"),
        "vanishes": ("What vanishes?", "What disappears?", "Which thing goes away?"),
        "changes": ("What changes its color?", "Which thing turns another color?"),
        "moves": ("What moves?", "Which thing moves?", "What is moving?"),
    }[chosen_change]
    described = [_described(clip, event) for event in clip.events if event.change == chosen_change]
    if not described:
        nothing = {"changes": "Nothing changes its color."}.get(chosen_change, f"Nothing {chosen_change}.")
        return Answers(forms, nothing, "nothing")
    if chosen_change == "moves":
        return _moving(clip)
    return Answers(forms, _sentence(listed(described)))


def _becomes(clip: Clip) -> Answers | None:
    turning = [event for event in clip.events if event.change == "changes"]
    if len(turning) != 1:
        return None
    name, color = _name(clip, turning[0]), turning[0].becomes
    forms = (f"Which color does the {name} turn?", f"What color does the {name} become?")
    return Answers(forms, f"It turns {color}.", color, {"color": color})


def _order(clip: Clip, rng: random.Random) -> Answers | None:
    if len(clip.events) < 2:
        return None
    which, event = rng.choice((("first", clip.events[0]), ("last", clip.events[-1])))
    forms = (f"What happens {which}?", f"Which is the {which} thing to happen?")
    return Answers(forms, _sentence(_described(clip, event)))


def _clip_json(clip: Clip) -> Answers:
    forms = (
        "Describe the clip as JSON.",
        "List what happens as JSON.",
        "What happens? Answer with a JSON list.",
    )
    found: list[dict[str, str]] = []
    for event in clip.events:
        values = {"thing": _name(clip, event), "event": event.change}
        values |= {"direction": event.direction} if event.direction else {}
        found.append(values | ({"color": event.becomes} if event.becomes else {}))
    return Answers(forms, json.dumps(found))
