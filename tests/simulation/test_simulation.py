"""The simulation: some seeds, what it once found, and that it finds what is planted. Thousands of seeds are
run by hand: `docs/reliability.md`."""

from __future__ import annotations

import pytest
from sensorium.actors.inference.detokenizer import DetokenizerHandle
from sensorium.actors.inference.encoder_cache import EncoderCacheHandle
from simulation.faults import Fault
from simulation.regressions import REGRESSIONS
from simulation.scenario import Client, Scenario, drawn
from simulation.server import ASR, CHAT
from simulation.shrink import shrunk
from simulation.simulate import simulate

_SEEDS = range(1, 3)


@pytest.mark.parametrize("seed", _SEEDS)
def test_a_seed(seed: int) -> None:
    assert not simulate(drawn(seed, num_clients=3)).problems


@pytest.mark.parametrize("scenario", REGRESSIONS, ids=lambda each: f"seed {each.seed}")
def test_what_was_found_once(scenario: Scenario) -> None:
    assert not simulate(scenario).problems


def test_a_seed_always_gives_the_same_run() -> None:
    scenario = drawn(1, num_clients=3, num_faults=2)
    first, second = simulate(scenario), simulate(scenario)
    assert first.endings == second.endings
    assert first.digest == second.digest


def test_another_order_gives_the_same_answers() -> None:
    clients = (Client("c0", "chat", 0.0), Client("c1", "talk", 0.0, 3), Client("c2", "file", 0.0, model=ASR))
    runs = [simulate(Scenario(seed, clients)) for seed in (1, 2)]
    assert runs[0].digest != runs[1].digest
    answers = [[run.endings[each.name].text for each in clients] for run in runs]
    assert answers[0] == answers[1]
    assert not runs[0].problems + runs[1].problems


def test_a_leak_is_found_and_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    clients = (Client("c0", "chat", 0.0), Client("c1", "picture", 0.0), Client("c2", "probe", 0.5, 1))
    scenario = Scenario(3, clients, (Fault("clock set", 0.1, lasts_s=3600.0),))
    assert not simulate(scenario).problems
    monkeypatch.setattr(EncoderCacheHandle, "release", lambda *_, **__: None)
    small = shrunk(simulate(scenario))
    assert "engines_hold_nothing" in small.kinds
    assert [client.kind for client in small.scenario.clients] == ["picture"]
    assert not small.scenario.faults


def test_an_answer_that_never_comes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = Scenario(4, (Client("c0", "chat", 0.0, model=CHAT),))
    assert not simulate(scenario).problems
    monkeypatch.setattr(DetokenizerHandle, "decode", lambda *_: None)
    assert "every_client_ends_once" in simulate(scenario).kinds


def test_an_error_without_a_fault_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = Scenario(5, (Client("c0", "completion", 0.0),))
    simulate(scenario)  # what it should be answered

    def fail(*_: object) -> None:
        raise KeyError("planted")

    monkeypatch.setattr(DetokenizerHandle, "open", fail)
    assert {"who_is_not_touched_is_answered", "no_unforeseen_error_is_logged"} <= simulate(scenario).kinds
