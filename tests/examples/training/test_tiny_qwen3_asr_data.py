"""Batches of tiny-qwen3-asr: a step's batch depends on the step, rows fit the audio, answers the text."""

from pathlib import Path

import numpy as np
import pytest
import torch
from checkpoint_files import MESSAGE_END
from open_text import Kind, OpenText
from speech_grammar import LANGUAGES, Language
from speech_synthesis import VOICES
from spoken_clips import Clip, shard_path
from support.word_samples import open_text
from tiny_qwen3_asr_data import FIRST_SHARDS, STEPS_PER_UNIT, Batches, Pool
from tiny_qwen3_asr_model import LANGUAGE_NAMES, TEXT_TAG, AsrBatch, build_tokenizer
from tiny_whisper_data import NUM_MELS, SHARD_SIZE, write_shard
from tokenizers import Tokenizer

FRAMES_PER_BATCH = 3_000
WORDS = [("Good", 0.0, 0.3), ("morning.", 0.3, 0.8)]


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clips")
    generator = np.random.default_rng(0)
    for shard in range(2):
        languages = [LANGUAGES[index % 3] for index in range(SHARD_SIZE // 10)]
        made = [Clip(name, VOICES[name][i % 5], "words", 80 + i, WORDS) for i, name in enumerate(languages)]
        frames = [generator.uniform(-6, 1, (clip.num_frames, NUM_MELS)).astype(np.float16) for clip in made]
        write_shard(shard_path(folder, shard), zip(made, frames, strict=True))
    return folder


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return build_tokenizer(["Good morning. system user assistant language English Spanish German None"] * 50)


def batches(folder: Path, tokenizer: Tokenizer) -> Batches:
    texts: dict[Language, OpenText] = {language: open_text(language) for language in LANGUAGES}
    return Batches(Pool(folder, 2), texts, tokenizer, seed=0, frames_per_batch=FRAMES_PER_BATCH)


def same(one: AsrBatch, other: AsrBatch) -> bool:
    return (
        torch.equal(one.chunks, other.chunks)
        and torch.equal(one.inputs, other.inputs)
        and torch.equal(one.labels, other.labels)
    )


def test_a_steps_batch_depends_on_the_step_alone(clips: Path, tokenizer: Tokenizer) -> None:
    first, second = batches(clips, tokenizer), batches(clips, tokenizer)
    late = 3 * STEPS_PER_UNIT + 1
    expected = [first.batch(step) for step in (0, 1, late)]
    assert same(second.batch(late), expected[2])
    assert same(second.batch(1), expected[1])
    assert not same(expected[0], expected[1])


def test_rows_windows_and_answers_fit_the_audio(clips: Path, tokenizer: Tokenizer) -> None:
    made = batches(clips, tokenizer)
    misled: list[float] = []
    for step in range(3 * STEPS_PER_UNIT, 3 * STEPS_PER_UNIT + 8):
        batch = made.batch(step)
        assert len(batch.chunks) == sum(batch.window_chunks)
        assert int(batch.audio_mask.sum()) == sum(batch.window_rows)
        assert len(batch.utterance_windows) == len(batch.inputs) == len(batch.num_letters)
        assert len(batch.chunks) * 100 < 3 * FRAMES_PER_BATCH
        for inputs, labels in zip(batch.inputs, batch.labels, strict=True):
            answer = labels[labels != -100]
            text = tokenizer.decode(answer.tolist(), skip_special_tokens=False)
            header, _, said = text.partition(TEXT_TAG)
            assert header.removeprefix("language ") in (*LANGUAGE_NAMES.values(), "None")
            assert said.endswith(MESSAGE_END)
            assert (header == "language None") == (said == MESSAGE_END)
            # What is to be predicted is the next input, but for what is to mislead.
            places = (labels != -100).nonzero().flatten()
            differs = inputs[places[1:]] != answer[:-1]
            header_length = answer.tolist().index(tokenizer.token_to_id(TEXT_TAG)) + 1
            assert not differs[:header_length].any()
            misled.append(differs[header_length:].float().mean().item() if said != MESSAGE_END else 0.0)
    assert 0.4 < misled.count(0.0) / len(misled) < 0.9
    assert 0.05 < sum(misled) / (len(misled) - misled.count(0.0)) < 0.3


def test_later_units_draw_from_more_shards(clips: Path) -> None:
    pool = Pool(clips, FIRST_SHARDS + 5)
    assert [pool.shards_of(unit) for unit in (0, 2, 50)] == [FIRST_SHARDS, FIRST_SHARDS + 2, FIRST_SHARDS + 5]


def test_only_clips_of_the_wanted_kinds_are_drawn(clips: Path) -> None:
    some: list[tuple[list[Kind], int]] = [(["words"], 2 * SHARD_SIZE // 10), (["digits", "grammar"], 0)]
    for kinds, expected in some:
        pool = Pool(clips, 2, kinds)
        pool.load(0)
        places = pool.places(0)
        assert sum(len(group) for name, group in places.items() if name.startswith("language")) == expected
