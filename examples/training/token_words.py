"""What each token of a picture should say by itself: the words of what lies on it, for training only.

The colour, shape, size and place of the thing there, the word or the digit of a sign, or the background. A
picture's tokens that can be read through the output layer lie where the words of questions lie, so that the
decoder finds a thing by its name soon. Read `scenes.py` first; knows no pixels but where things are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
from drawing import LABEL_SIZES, LETTERS
from question_forms import PLACES
from scenes import COLORS, GROUNDS, NUM_CELLS, SHAPES, SIZES, WORDS, Scene, Thing
from tokenizers import Tokenizer

MAX_WORDS: Final = 6
"""Of a token; a place has up to two of them."""
_REACH: Final = 0.35
"""How far beyond its edge a thing belongs to a token, as a share of the token's side."""

BARE_WORDS: Final = (
    *(*COLORS, *SHAPES, *SIZES, *GROUNDS, *WORDS),
    *("top", "bottom", "left", "right", "middle", "center", "background", "nothing"),
)
"""Everything that can be said of a token, and should be a single one of the tokenizer's."""


class TokenWords:
    """Words of pictures' tokens as the tokenizer's ids."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._ids: dict[str, int] = {}
        for word in (*BARE_WORDS, *"0123456789"):
            written = word if word.isdigit() else f" {word}"
            ids = tokenizer.encode(written, add_special_tokens=False).ids
            if len(ids) != 1:
                raise ValueError(f"the tokenizer must have a token for {written!r}, it takes {len(ids)}")
            self._ids[word] = ids[0]

    def labels(
        self, scene: Scene, grid: tuple[int, int], patches: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        """Ids of the words of each token, -100 where there are fewer; int64 [tokens, MAX_WORDS]. `grid` is in
        tokens, `patches` are the labels of its patches, [patches, kinds] in merge order."""
        labels = np.full((grid[0] * grid[1], MAX_WORDS), -100, np.int64)
        blocks = patches.reshape(len(labels), -1, len(LABEL_SIZES))
        for index in range(len(labels)):
            middle = (index // grid[1] + 0.5) / grid[0], (index % grid[1] + 0.5) / grid[1]
            words = list(_words(scene, grid, middle, blocks[index]))
            labels[index, : len(words)] = [self._ids[word] for word in words]
        return labels


def _words(
    scene: Scene, grid: tuple[int, int], middle: tuple[float, float], block: npt.NDArray[np.int64]
) -> Iterator[str]:
    letters = block[:, 2][block[:, 2] > 0]
    thing = _nearest(scene, grid, middle)
    if scene.texture:
        yield "nothing"
    elif scene.sign is not None and len(letters):
        yield scene.sign.color
        if scene.sign.text.isdigit():
            yield from sorted({LETTERS[letter - 1] for letter in letters.tolist()})
        else:
            yield scene.sign.text
    elif thing is not None:
        yield from (thing.color, thing.shape, thing.size)
        yield from PLACES[thing.cell[0]][thing.cell[1]].split()
    else:
        row, column = (min(NUM_CELLS - 1, int(share * NUM_CELLS)) for share in middle)
        yield from ("background", scene.ground)
        yield from PLACES[row][column].split()


def _nearest(scene: Scene, grid: tuple[int, int], middle: tuple[float, float]) -> Thing | None:
    """The thing on the token, the one nearest to its middle where there are several."""
    found: list[tuple[float, Thing]] = []
    for thing in scene.things:
        down, across = (thing.y - middle[0]) * grid[0], (thing.x - middle[1]) * grid[1]
        if max(abs(down), abs(across)) < thing.radius * min(grid) + _REACH:
            found.append((down**2 + across**2, thing))
    return min(found, key=lambda pair: pair[0])[1] if found else None
