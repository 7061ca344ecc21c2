"""Words of a picture's tokens: what lies on them, where it is, or the background."""

import random

import pytest
from drawing import draw, patch_labels
from question_forms import PLACES
from scenes import Scene, Sign, Thing, drawn_scene
from tiny_qwen3_vl_data import merge_order
from tiny_qwen3_vl_model import CELL, PATCH
from token_words import BARE_WORDS, TokenWords
from tokenizers import Tokenizer
from tokenizers.models import BPE
from train_tiny_qwen3_vl import built_tokenizer


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return built_tokenizer(0, num_scenes=40)


def words_of(scene: Scene, grid: tuple[int, int], tokenizer: Tokenizer) -> list[set[str]]:
    height, width = grid[0] * CELL, grid[1] * CELL
    patches = merge_order(patch_labels(scene, height, width, PATCH))
    assert draw(scene, height, width, random.Random(0)).shape == (height, width, 3)
    labels = TokenWords(tokenizer).labels(scene, grid, patches)
    return [{tokenizer.decode([each]).strip() for each in row if each >= 0} for row in labels.tolist()]


def test_each_token_of_three_by_three_says_its_cell(tokenizer: Tokenizer) -> None:
    for seed in range(20):
        scene = drawn_scene(random.Random(seed))
        there = {thing.cell: thing for thing in scene.things}
        for index, words in enumerate(words_of(scene, (3, 3), tokenizer)):
            cell = divmod(index, 3)
            thing = there.get(cell)
            what = {thing.color, thing.shape, thing.size} if thing else {"background", scene.ground}
            assert words == what | set(PLACES[cell[0]][cell[1]].split())


def test_a_large_thing_is_on_all_tokens_it_covers(tokenizer: Tokenizer) -> None:
    scene = Scene("gray", (Thing("star", "red", "large", 0.5, 0.5, 0.15),))
    said = words_of(scene, (4, 4), tokenizer)
    assert [index for index, words in enumerate(said) if "star" in words] == [5, 6, 9, 10]
    assert said[5] == {"red", "star", "large", "center"}


def test_signs_and_textures(tokenizer: Tokenizer) -> None:
    word = words_of(Scene("gray", sign=Sign("zebra", "red")), (3, 4), tokenizer)
    assert {"red", "zebra"} in word
    number = words_of(Scene("gray", sign=Sign("407", "blue")), (3, 4), tokenizer)
    assert set().union(*number) >= {"blue", "4", "0", "7"}
    assert words_of(Scene("gray", texture=True), (3, 3), tokenizer) == [{"nothing"}] * 9


def test_a_tokenizer_must_know_every_word() -> None:
    with pytest.raises(ValueError, match=f"a token for ' {BARE_WORDS[0]}'"):
        TokenWords(Tokenizer(BPE()))
