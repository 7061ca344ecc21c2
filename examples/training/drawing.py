"""Draws scenes: Pillow's polygons on a ground, in slightly different colours, light and sharpness every time.

The random generator decides everything a scene leaves open, and once for all frames of a clip. Returns
pictures as the image processors take them; knows nothing of questions. Read `scenes.py` first.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont
from scenes import COLORS, SHAPES, Clip, Color, Ground, Scene, Shape, Thing

Pixels = npt.NDArray[np.uint8]
Labels = npt.NDArray[np.int64]
Point = tuple[float, float]
Rgb = tuple[int, int, int]

LETTERS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
"""Of signs."""
LABEL_SIZES: Final = [1 + len(COLORS), 1 + len(SHAPES), 1 + len(LETTERS)]
"""How many values each kind of label of a patch has."""
SUPERSAMPLING: Final = 3
"""Things are drawn this much larger and made smaller, so that their edges are smooth."""
_PAINTS: Final[dict[Color, Rgb]] = {
    "red": (215, 30, 35),
    "orange": (245, 135, 15),
    "yellow": (245, 225, 40),
    "green": (35, 155, 60),
    "blue": (35, 75, 205),
    "purple": (130, 50, 170),
    "black": (18, 18, 20),
    "white": (250, 250, 250),
}
_GROUNDS: Final[dict[Ground, Rgb]] = {
    "gray": (150, 150, 152),
    "pink": (245, 185, 200),
    "brown": (135, 92, 58),
    "white": (240, 240, 240),
    "black": (24, 24, 26),
}
_PAINT_SPREAD, _LIGHT_SPREAD, _NOISE_SPREAD = 14, 12, 7
"""Of colours, of the light from side to side, and of single pixels: up to so many of 256 steps."""
_RING_WIDTH: Final = 0.42
_SIGN_SHARE: Final = 0.88
"""Of a picture's width that a sign may take."""
_FONT_SHARE: Final = 0.62
"""Height of a sign's letters, as a share of the picture's, where the width allows."""


@dataclass(frozen=True, slots=True)
class _Look:
    """What the frames of a clip share: paint, light and the seed of their noise."""

    paints: dict[Color, Rgb]
    ground: Rgb
    light: npt.NDArray[np.float32]
    noise: float
    seed: int


def draw(scene: Scene, height: int, width: int, rng: random.Random) -> Pixels:
    """uint8 [height, width, 3]."""
    return draw_clip(Clip(scene), 1, height, width, rng)[0]


def draw_clip(clip: Clip, num_frames: int, height: int, width: int, rng: random.Random) -> list[Pixels]:
    """So many frames at equal distances, the first and the last at the clip's ends."""
    look = _look(clip.scene, height, width, rng)
    shares = [index / max(1, num_frames - 1) for index in range(num_frames)]
    return [_frame(clip.at(share), height, width, look, index) for index, share in enumerate(shares)]


def patch_labels(scene: Scene, height: int, width: int, patch: int) -> Labels:
    """What lies on the middle of each patch of the picture: colour, shape and letter, 0 where there is
    none; int64 [rows, columns, 3]."""
    labels = np.zeros((height // patch, width // patch, len(LABEL_SIZES)), np.int64)
    middles = [
        (row * patch + patch / 2, column * patch + patch / 2) for row, column in np.ndindex(labels.shape[:2])
    ]
    for thing in scene.things:
        radius = thing.radius * min(width, height)
        for y, x in middles:
            if math.hypot(x - thing.x * width, y - thing.y * height) <= max(radius, 0.6 * patch):
                labels[int(y // patch), int(x // patch), :2] = (
                    1 + COLORS.index(thing.color),
                    1 + SHAPES.index(thing.shape),
                )
    if scene.sign is not None:
        text, color = scene.sign.text, scene.sign.color
        font, left, top, bottom = _lettering(text, height, width)
        ends = [left + font.getlength(text[: index + 1]) for index in range(len(text))]
        for y, x in middles:
            if left <= x <= ends[-1] and top <= y <= bottom:
                letter = next(letter for letter, end in zip(text, ends, strict=True) if x <= end)
                labels[int(y // patch), int(x // patch)] = (
                    1 + COLORS.index(color),
                    0,
                    1 + LETTERS.index(letter),
                )
    return labels


def outline(thing: Thing, center: Point, radius: float) -> list[list[Point]]:
    """The polygons of a thing; a second one is a hole."""
    turned = math.radians(thing.angle)
    cos, sin = math.cos(turned) * radius, math.sin(turned) * radius
    return [
        [(center[0] + x * cos - y * sin, center[1] + x * sin + y * cos) for x, y in polygon]
        for polygon in _POLYGONS[thing.shape]
    ]


def _frame(scene: Scene, height: int, width: int, look: _Look, index: int) -> Pixels:
    if scene.texture:
        image = _texture(height, width, look.seed)
    else:
        image = Image.new("RGB", (width, height), look.ground)
        for thing in scene.things:
            _paste(image, thing, look)
        if scene.sign is not None:
            _write(image, scene.sign.text, look.paints[scene.sign.color])
    generator = np.random.default_rng((look.seed, index))
    grain = generator.standard_normal((height, width, 3), dtype=np.float32)
    shaded = np.asarray(image, np.float32) + look.light + look.noise * grain
    return np.clip(shaded, 0, 255).astype(np.uint8)


def _look(scene: Scene, height: int, width: int, rng: random.Random) -> _Look:
    def varied(color: Rgb) -> Rgb:
        red, green, blue = (
            min(255, max(0, value + rng.randint(-_PAINT_SPREAD, _PAINT_SPREAD))) for value in color
        )
        return red, green, blue

    across, down = rng.uniform(-1, 1), rng.uniform(-1, 1)
    slope = across * np.linspace(-1, 1, width)[None, :] + down * np.linspace(-1, 1, height)[:, None]
    return _Look(
        paints={color: varied(paint) for color, paint in _PAINTS.items()},
        ground=varied(_GROUNDS[scene.ground]),
        light=(_LIGHT_SPREAD / 2 * slope[..., None]).astype(np.float32),
        noise=rng.uniform(0, _NOISE_SPREAD),
        seed=rng.getrandbits(32),
    )


def _paste(image: Image.Image, thing: Thing, look: _Look) -> None:
    width, height = image.size
    radius = thing.radius * min(width, height)
    left, top = math.floor(thing.x * width - radius) - 1, math.floor(thing.y * height - radius) - 1
    side = math.ceil(2 * radius) + 3
    center = (
        (thing.x * width - left) * SUPERSAMPLING,
        (thing.y * height - top) * SUPERSAMPLING,
    )
    large = Image.new("L", (side * SUPERSAMPLING, side * SUPERSAMPLING))
    pen = ImageDraw.Draw(large)
    for index, polygon in enumerate(outline(thing, center, radius * SUPERSAMPLING)):
        pen.polygon(polygon, fill=0 if index else 255)
    mask = large.resize((side, side), Image.Resampling.BOX)
    image.paste(look.paints[thing.color], (left, top), mask)


def _write(image: Image.Image, text: str, paint: Rgb) -> None:
    """The text in the middle, as large as fits."""
    width, height = image.size
    font, left, _, _ = _lettering(text, height, width)
    ImageDraw.Draw(image).text((left, height / 2), text, fill=paint, font=font, anchor="lm")


def _lettering(text: str, height: int, width: int) -> tuple[ImageFont.FreeTypeFont, float, float, float]:
    """The font for a sign, and where the text begins on the left, at the top and at the bottom."""
    size = _FONT_SHARE * height
    wide = _font(size).getlength(text)
    font = _font(min(size, size * _SIGN_SHARE * width / wide))
    half = font.size * 0.4
    return font, (width - font.getlength(text)) / 2, height / 2 - half, height / 2 + half


@cache
def _font(size: float) -> ImageFont.FreeTypeFont:
    font = ImageFont.load_default(size)
    if not isinstance(font, ImageFont.FreeTypeFont):
        raise TypeError("Pillow was built without FreeType, and cannot write letters of any size")
    return font


def _texture(height: int, width: int, seed: int) -> Image.Image:
    """Soft clouds of colour, as a photograph out of focus."""
    generator = np.random.default_rng(seed)
    rows, columns = generator.integers(2, 9, 2)
    coarse = Image.fromarray(generator.integers(0, 256, (rows, columns, 3), dtype=np.uint8))
    return coarse.resize((width, height), Image.Resampling.BICUBIC)


def _arc(count: int, radius: float = 1.0, start: float = -math.pi / 2) -> list[Point]:
    turns = (start + 2 * math.pi * index / count for index in range(count))
    return [(radius * math.cos(turn), radius * math.sin(turn)) for turn in turns]


def _star() -> list[Point]:
    outer, inner = _arc(5, 1.08), _arc(5, 0.45, -math.pi / 2 + math.pi / 5)
    return [point for pair in zip(outer, inner, strict=True) for point in pair]


def _heart() -> list[Point]:
    turns = [2 * math.pi * index / 40 for index in range(40)]
    return [
        (
            math.sin(turn) ** 3,
            -(13 * math.cos(turn) - 5 * math.cos(2 * turn) - 2 * math.cos(3 * turn) - math.cos(4 * turn))
            / 15,
        )
        for turn in turns
    ]


def _cross() -> list[Point]:
    arm = 0.34
    corners: Sequence[Point] = ((arm, -1), (arm, -arm), (1, -arm))
    points: list[Point] = []
    for _ in range(4):
        points += corners
        corners = [(-y, x) for x, y in corners]
    return points


_POLYGONS: Final[dict[Shape, list[list[Point]]]] = {
    "circle": [_arc(36)],
    "square": [[(-0.88, -0.88), (0.88, -0.88), (0.88, 0.88), (-0.88, 0.88)]],
    "triangle": [_arc(3, 1.1)],
    "star": [_star()],
    "heart": [_heart()],
    "cross": [_cross()],
    "ring": [_arc(36), _arc(36, 1 - _RING_WIDTH)],
    "diamond": [[(0, -1.1), (0.72, 0), (0, 1.1), (-0.72, 0)]],
}
