"""Makes a failing run small: leaves out clients and faults, one after the other, for as long as it fails."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from simulation.scenario import Scenario
from simulation.simulate import Outcome, simulate


def shrunk(failed: Outcome) -> Outcome:
    """A run that breaks one of the same invariants, and none of whose parts can be left out."""
    best = failed
    is_smaller = True
    while is_smaller:
        is_smaller = False
        for candidate in _smaller(best.scenario):
            outcome = simulate(candidate)
            if outcome.kinds & failed.kinds:
                best, is_smaller = outcome, True
                break
    return best


def _smaller(scenario: Scenario) -> Iterator[Scenario]:
    """Without half of the clients, without each of them, without each fault, with a plainer client."""
    clients, faults = scenario.clients, scenario.faults
    if len(clients) > 3:
        half = len(clients) // 2
        yield replace(scenario, clients=clients[half:])
        yield replace(scenario, clients=clients[:half])
    for index in range(len(faults)):
        yield replace(scenario, faults=faults[:index] + faults[index + 1 :])
    for index, client in enumerate(clients):
        rest = clients[:index], clients[index + 1 :]
        yield replace(scenario, clients=rest[0] + rest[1])
        if client.leaves_s is not None:
            yield replace(scenario, clients=(*rest[0], replace(client, leaves_s=None), *rest[1]))
        for cut in range(len(client.cuts_s)):
            fewer = client.cuts_s[:cut] + client.cuts_s[cut + 1 :]
            yield replace(scenario, clients=(*rest[0], replace(client, cuts_s=fewer), *rest[1]))
    if scenario.is_apart and not any(fault.kind in ("process dies", "process stopped") for fault in faults):
        yield replace(scenario, is_apart=False)
