"""Rows that teach to go on with a word of the prompt: only how told words go on is to be predicted."""

from __future__ import annotations

import random

import pytest
import torch
from open_text import OpenText
from recall import MAX_GAP, ROWS, RecallBatch, recall_batch
from speech_grammar import LANGUAGES, Language
from support.word_samples import open_text
from tiny_qwen3_asr_model import AUDIO_END, AUDIO_START, Shape, TrainedAsr, build_tokenizer, model_config
from tokenizers import Tokenizer


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return build_tokenizer(["Good morning. system user assistant language English Spanish German None"] * 50)


def made(tokenizer: Tokenizer, seed: int) -> RecallBatch:
    texts: dict[Language, OpenText] = {language: open_text(language) for language in LANGUAGES}

    def encoded(text: str) -> list[int]:
        return list(tokenizer.encode(text, add_special_tokens=False).ids)

    def parts(context: str, language: Language) -> tuple[list[int], list[int]]:
        return encoded(AUDIO_START + context), encoded(AUDIO_END)

    return recall_batch(texts, parts, encoded, random.Random(seed))


def test_only_how_words_of_the_prompt_go_on_is_predicted(tokenizer: Tokenizer) -> None:
    gaps = set[int]()
    for seed in range(5):
        batch = made(tokenizer, seed)
        assert batch.inputs.shape == batch.positions.shape == batch.labels.shape
        assert len(batch.inputs) == ROWS
        for inputs, positions, labels in zip(batch.inputs, batch.positions, batch.labels, strict=True):
            places = (labels != -100).nonzero().flatten().tolist()
            assert places
            # A label is what follows, and in the prompt it follows the same.
            follows = [*inputs.tolist()[1:], None]
            assert all(follows[place] in (labels[place].item(), 0, None) for place in places)
            end = inputs.tolist().index(tokenizer.token_to_id(AUDIO_END))
            assert set(labels[places].tolist()) <= set(inputs[1:end].tolist())
            assert min(places) > end, "of the first word the first token is not to be predicted"
            gaps.add(int(positions[end] - positions[end - 1]) - 1)
    assert len(gaps) > ROWS
    assert all(0 <= gap <= MAX_GAP for gap in gaps)


def test_the_loss_looks_at_what_went_before_and_at_nothing_else(tokenizer: Tokenizer) -> None:
    """Neither at what is behind, nor does a gap in the positions hide the prompt."""
    torch.manual_seed(0)
    model = TrainedAsr(model_config(tokenizer, Shape(tower_layers=1, decoder_mlp=32)))
    batch = made(tokenizer, 1)
    row = 0
    last = int((batch.labels[row] != -100).nonzero().max())

    def loss(inputs: torch.Tensor) -> float:
        labels = torch.full_like(batch.labels, -100)
        labels[row, last] = batch.labels[row, last]
        return model.recalled(RecallBatch(inputs, batch.positions, labels)).item()

    truth = loss(batch.inputs)
    for place, matters in ((last + 1, False), (1, True), (last, True)):
        changed = batch.inputs.clone()
        if place < changed.shape[1]:
            changed[row, place] = (changed[row, place] + 1) % 300
            assert (loss(changed) != truth) is matters
