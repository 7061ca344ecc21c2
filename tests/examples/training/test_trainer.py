"""Training can be stopped, continued and ended at any step."""

import weakref
from functools import partial
from pathlib import Path

import pytest
import torch
from trainer import (
    LOG_EVERY,
    PEAK_LEARNING_RATE,
    WARMUP_STEPS,
    Losses,
    Run,
    Training,
    cosine_rate,
    steady_rate,
    trained,
)

STEPS, DECAY = 1_000, 200


def test_the_steady_rate_rises_stays_and_falls() -> None:
    rates = [steady_rate(step, STEPS, DECAY) for step in range(STEPS)]
    assert rates[:WARMUP_STEPS] == sorted(rates[:WARMUP_STEPS])
    assert set(rates[WARMUP_STEPS : STEPS - DECAY]) == {PEAK_LEARNING_RATE}
    assert rates[STEPS - DECAY :] == sorted(rates[STEPS - DECAY :], reverse=True)
    assert 0 < rates[-1] < 0.02 * PEAK_LEARNING_RATE


def test_the_steady_rate_before_the_decay_does_not_depend_on_the_end() -> None:
    early = [steady_rate(step, STEPS, DECAY) for step in range(STEPS - DECAY)]
    assert early == [steady_rate(step, 10 * STEPS, DECAY) for step in range(STEPS - DECAY)]


def test_the_cosine_ends_near_zero() -> None:
    assert cosine_rate(STEPS - 1, STEPS) == pytest.approx(0.01 * PEAK_LEARNING_RATE, rel=0.02)


def steps(training: Training, model: torch.nn.Module, count: int) -> None:
    for _ in range(count):
        inputs = torch.randn(4, 8, generator=torch.Generator().manual_seed(training.step))
        training.take((model(inputs) ** 2).mean())


def fresh() -> tuple[torch.nn.Module, Training]:
    torch.manual_seed(0)
    matrix = torch.nn.Linear(8, 8)
    model = torch.nn.Sequential(matrix, torch.nn.GELU(), torch.nn.Linear(8, 2))
    rate = partial(steady_rate, num_steps=20, num_decaying=5)
    return model, Training(model, rate, matrices=[matrix.weight])


def test_a_continued_training_is_the_same_training(tmp_path: Path) -> None:
    model, training = fresh()
    steps(training, model, 4)
    training.save(tmp_path / "state.pt")
    steps(training, model, 4)
    continued, resumed = fresh()
    resumed.restore(tmp_path / "state.pt")
    assert resumed.step == 4
    steps(resumed, continued, 4)
    for (name, expected), weights in zip(model.named_parameters(), continued.parameters(), strict=True):
        assert torch.equal(expected, weights), name
        assert torch.equal(training.mean_weights()[name], resumed.mean_weights()[name]), name


class Figures(dict[str, float]):
    """Of one step; others than of this class could not be looked for."""


@pytest.mark.parametrize("rank", [0, 1])
def test_no_process_keeps_what_it_has_logged_or_will_not_log(rank: int, tmp_path: Path) -> None:
    model, training = fresh()
    made: list[weakref.ref[Figures]] = []

    def losses(batch: torch.Tensor) -> Losses:
        loss = (model(batch) ** 2).mean()
        figures = Figures(loss=loss.item())
        made.append(weakref.ref(figures))
        return loss, figures

    run = Run(tmp_path, num_processes=1, num_steps=3 * LOG_EVERY, num_decaying=5)
    for _ in trained(training, run, rank, lambda number: torch.full((4, 8), float(number)), losses):
        assert sum(each() is not None for each in made) <= LOG_EVERY
    assert training.step == len(made) == 3 * LOG_EVERY
