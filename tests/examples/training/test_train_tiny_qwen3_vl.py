"""Training tiny-qwen3-vl: stopped, it ends where it would have ended unstopped; its export can be asked."""

import random
from pathlib import Path

import pytest
import tiny_qwen3_vl_evaluation
from clip_questions import CLIP_KINDS
from still_questions import STILL_KINDS
from tiny_qwen3_vl_evaluation import Respondent, clip_question, evaluate, still_question
from tiny_qwen3_vl_model import TrainedVl, export, model_config
from train_tiny_qwen3_vl import Options, Trainer, built_tokenizer

FIRST_STEP, NUM_STEPS, NUM_DECAYING = 7, 3, 1


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained export."""
    folder = tmp_path_factory.mktemp("start") / "model"
    tokenizer = built_tokenizer(0, num_scenes=400)
    export(TrainedVl(model_config(tokenizer)).vl.state_dict(), tokenizer, folder)
    return folder


def options(work: Path, start: Path) -> Options:
    return Options(
        command="train",
        work=work,
        output=None,
        start=start,
        first_step=FIRST_STEP,
        seed=0,
        num_processes=1,
        num_steps=FIRST_STEP + NUM_STEPS,
        num_decaying=NUM_DECAYING,
        num_rows=4,
        num_held_out=1,
    )


def test_a_stopped_training_ends_where_an_unstopped_one_does(tmp_path: Path, start: Path) -> None:
    Trainer(options(tmp_path, start), 0).run()
    exported = tmp_path / "model" / "model.safetensors"
    whole = exported.read_bytes()
    assert whole != (start / "model.safetensors").read_bytes()
    # As if it had been stopped when the decay began.
    (tmp_path / "decaying.pt").unlink()
    exported.unlink()
    Trainer(options(tmp_path, start), 0).run()
    assert exported.read_bytes() == whole


def test_every_kind_is_asked_about(start: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiny_qwen3_vl_evaluation, "MAX_NEW_TOKENS", 3)
    lines = evaluate(start, 1, 0).splitlines()
    shown = [line[:12].strip() for line in lines[1:]]
    assert shown == [*STILL_KINDS, *CLIP_KINDS, "stills", "motion", "talk"]
    assert all(line.endswith("0.0%") for line in lines[1:]), "three tokens are no answer"


def test_a_right_answer_is_counted(start: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def knows(_: Respondent, question: tiny_qwen3_vl_evaluation.Question) -> str:
        return question.turn.answer

    monkeypatch.setattr(Respondent, "answer", knows)
    assert all(line.endswith("100.0%") for line in evaluate(start, 1, 0).splitlines()[1:])


def test_pictures_and_clips_that_are_asked_about_have_their_sizes() -> None:
    rng = random.Random(0)
    for held_out in (True, False):
        still = still_question("color", rng, held_out=held_out)
        assert len(still.patches) == 1
        assert still.patches[0].shape == (4 * still.grid[0] * still.grid[1], 1536)
        clip = clip_question("order", rng, held_out=held_out)
        assert len(clip.patches) == len(clip.times_s) > 2
