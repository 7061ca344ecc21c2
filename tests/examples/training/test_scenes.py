"""Scenes: what is held out is in no training scene and in every other; clips are what their events say."""

import random

import pytest
from scenes import (
    COLORS,
    GROUNDS,
    SHAPES,
    Clip,
    Color,
    Direction,
    Event,
    Scene,
    Shape,
    Sign,
    Thing,
    drawn_scene,
    drawn_sign,
    is_held_out,
    is_sign_held_out,
)

NUM_SCENES = 400


def thing(color: Color = "red", shape: Shape = "circle", x: float = 0.2, y: float = 0.5) -> Thing:
    return Thing(shape, color, "small", x, y, 0.08)


def test_every_colour_and_every_shape_is_held_out_once() -> None:
    held_out = [(color, shape) for color in COLORS for shape in SHAPES if is_held_out(color, shape)]
    assert sorted(color for color, _ in held_out) == sorted(COLORS)
    assert sorted(shape for _, shape in held_out) == sorted(SHAPES)


@pytest.mark.parametrize("held_out", [False, True])
def test_scenes_hold_what_they_may(held_out: bool) -> None:
    for seed in range(NUM_SCENES):
        scene = drawn_scene(random.Random(seed), held_out=held_out)
        assert any(is_held_out(each.color, each.shape) for each in scene.things) is held_out
        assert len({each.cell for each in scene.things}) == len(scene.things)
        assert all(each.color != scene.ground for each in scene.things)


@pytest.mark.parametrize("held_out", [False, True])
def test_signs_are_those_they_may_be(held_out: bool) -> None:
    signs = [drawn_sign(random.Random(seed), held_out=held_out) for seed in range(NUM_SCENES)]
    for scene in signs:
        assert scene.sign is not None
        assert is_sign_held_out(scene.sign) is held_out
        assert scene.sign.color != scene.ground


def test_a_held_out_number_is_held_out_in_every_colour() -> None:
    for number in range(1000):
        assert len({is_sign_held_out(Sign(str(number), color)) for color in COLORS}) == 1
    assert not any(is_sign_held_out(Sign(str(digit), "red")) for digit in range(10))


@pytest.mark.parametrize(
    ("direction", "start", "end"),
    [
        ("right", (0.2, 0.5), (0.8, 0.5)),
        ("left", (0.8, 0.5), (0.2, 0.5)),
        ("down", (0.5, 0.2), (0.5, 0.8)),
        ("up", (0.5, 0.8), (0.5, 0.2)),
    ],
)
def test_what_moves_goes_from_one_side_to_the_other(
    direction: Direction, start: tuple[float, float], end: tuple[float, float]
) -> None:
    clip = Clip(
        Scene(GROUNDS[0], (thing(x=start[0], y=start[1]),)), (Event(0, "moves", 0.1, 0.9, direction),)
    )
    for share, expected in ((0.0, start), (0.1, start), (0.5, (0.5, 0.5)), (0.9, end), (1.0, end)):
        (seen,) = clip.at(share).things
        assert (seen.x, seen.y) == pytest.approx(expected)


def test_what_is_sudden_is_over_at_once() -> None:
    things = (thing("red"), thing("blue", x=0.5), thing("green", x=0.8))
    events = (
        Event(0, "appears", 0.3, 0.3),
        Event(1, "vanishes", 0.5, 0.5),
        Event(2, "changes", 0.7, 0.7, becomes="black"),
    )
    clip = Clip(Scene("gray", things), events)
    shown = {share: [each.color for each in clip.at(share).things] for share in (0.2, 0.4, 0.6, 0.8)}
    assert shown == {
        0.2: ["blue", "green"],
        0.4: ["red", "blue", "green"],
        0.6: ["red", "green"],
        0.8: ["red", "black"],
    }
