"""Pictures show what their scene says, where it says so."""

import random

import numpy as np
import numpy.typing as npt
import pytest
from drawing import LETTERS, draw, draw_clip, patch_labels
from scenes import COLORS, SHAPES, WORDS, Clip, Color, Event, Scene, Sign, Thing, drawn_scene

HEIGHT, WIDTH, PATCH = 128, 96, 16
PURE: dict[Color, tuple[int, int, int]] = {
    "red": (215, 30, 35),
    "blue": (35, 75, 205),
    "green": (35, 155, 60),
}


def square(color: Color, x: float, y: float) -> Thing:
    return Thing("square", color, "large", x, y, 0.15)


@pytest.mark.parametrize("color", PURE)
def test_a_thing_is_where_it_is_and_nowhere_else(color: Color) -> None:
    picture = draw(Scene("white", (square(color, 0.25, 0.75),)), HEIGHT, WIDTH, random.Random(0))
    near = np.abs(picture.astype(int) - PURE[color]).max(-1) < 60
    rows, columns = np.nonzero(near)
    assert abs(rows.mean() - 0.75 * HEIGHT) < 2
    assert abs(columns.mean() - 0.25 * WIDTH) < 2
    side = 2 * 0.88 * 0.15 * WIDTH
    assert near.sum() == pytest.approx(side**2, rel=0.15)


@pytest.mark.parametrize("shape", SHAPES)
def test_shapes_differ_from_each_other(shape: str) -> None:
    def mask(name: str) -> npt.NDArray[np.bool_]:
        (known,) = (each for each in SHAPES if each == name)
        scene = Scene("white", (Thing(known, "black", "large", 0.5, 0.5, 0.15),))
        dark: npt.NDArray[np.bool_] = draw(scene, HEIGHT, WIDTH, random.Random(0)).mean(-1) < 128
        return dark

    own = mask(shape)
    for other in SHAPES:
        if other != shape:
            assert (own ^ mask(other)).sum() > 0.1 * own.sum()


def test_the_same_generator_draws_the_same_picture() -> None:
    scene = drawn_scene(random.Random(3))
    first, again, other = (draw(scene, HEIGHT, WIDTH, random.Random(seed)) for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_frames_of_a_clip_show_its_moments() -> None:
    clip = Clip(
        Scene("white", (square("red", 0.2, 0.5), square("blue", 0.8, 0.2))),
        (Event(0, "moves", 0.0, 1.0, "right"), Event(1, "vanishes", 0.5, 0.5)),
    )
    frames = draw_clip(clip, 4, HEIGHT, WIDTH, random.Random(0))
    middles, blues = [], []
    for frame in frames:
        reds = np.abs(frame.astype(int) - PURE["red"]).max(-1) < 60
        middles.append(np.nonzero(reds)[1].mean() / WIDTH)
        blues.append(int((np.abs(frame.astype(int) - PURE["blue"]).max(-1) < 60).sum()))
    assert middles == pytest.approx([0.2, 0.4, 0.6, 0.8], abs=0.03)
    assert min(blues[:2]) > 100
    assert max(blues[2:]) == 0


def test_patches_are_labelled_with_what_lies_on_them() -> None:
    scene = Scene("white", (square("red", 0.25, 0.75), square("blue", 0.75, 0.25)))
    labels = patch_labels(scene, HEIGHT, WIDTH, PATCH)
    assert labels.shape == (HEIGHT // PATCH, WIDTH // PATCH, 3)
    rows, columns = np.nonzero(labels[..., 0] == 1 + COLORS.index("red"))
    assert abs((rows.mean() + 0.5) * PATCH - 0.75 * HEIGHT) < PATCH / 2
    assert abs((columns.mean() + 0.5) * PATCH - 0.25 * WIDTH) < PATCH / 2
    assert set(labels[..., 1].flat) == {0, 1 + SHAPES.index("square")}
    assert not labels[..., 2].any()


@pytest.mark.parametrize("text", ["7", "42", "moon", "pizza"])
def test_letters_are_labelled_in_their_order(text: str) -> None:
    labels = patch_labels(Scene("white", sign=Sign(text, "red")), HEIGHT, HEIGHT, PATCH)
    middle = labels[HEIGHT // PATCH // 2, :, 2]
    read = [LETTERS[label - 1] for label in middle if label]
    assert "".join(dict.fromkeys(read)) == "".join(dict.fromkeys(text))


def test_every_sign_is_inside_its_picture() -> None:
    for text in (*WORDS, "0", "888"):
        picture = draw(Scene("white", sign=Sign(text, "black")), HEIGHT, WIDTH, random.Random(0))
        dark = picture.mean(-1) < 100
        assert dark.any(), text
        assert not dark[:, :2].any(), text
        assert not dark[:, -2:].any(), text
