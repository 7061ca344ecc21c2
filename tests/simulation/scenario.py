"""What happens in one simulated run, as plain data: so it can be printed, repeated, and made smaller."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Final, Literal, get_args

from simulation.faults import KINDS, SUPERVISED, Fault
from simulation.server import ASR, CHAT, MODELS, WHISPER

Kind = Literal[
    "chat", "chat stream", "picture", "completion", "message", "response", "file", "file stream", "live",
    "talk", "probe",
]  # fmt: skip
CHATS: Final = frozenset({"chat", "chat stream", "picture", "completion", "message", "response", "talk"})
SOCKETS: Final = frozenset({"live", "talk"})
NUM_VARIANTS: Final = 8
"""Different questions, pictures, recordings of each kind: answers are compared with those of an undisturbed
run, which are found once."""
_SPAN_S: Final = 12.0
"""Clients come, and faults, within so many seconds."""
_IN_A_GROUP: Final = 8
"""Clients that come within that time in a run of hours."""


@dataclass(frozen=True)
class Client:
    """Somebody who comes at a time and wants something; the name is the request's id."""

    name: str
    kind: Kind
    at: float
    which: int = 0
    model: str = CHAT
    leaves_s: float | None = None
    """Seconds behind its coming at which it goes without a word; None: it waits for its answer."""
    cuts_s: tuple[float, ...] = ()
    """Seconds behind its coming at which a session's connection is lost; it comes back and goes on."""
    address: str = "10.0.0.1"


@dataclass(frozen=True)
class Scenario:
    """One run."""

    seed: int
    """Of the machine: order, durations, chance."""
    clients: tuple[Client, ...]
    faults: tuple[Fault, ...] = ()
    is_apart: bool = False
    """Whether the models run in a process of their own."""
    plans_in_flight: int = 1
    num_blocks: int = 96


def drawn(
    seed: int, *, num_clients: int | None = None, num_faults: int | None = None, span_s: float = _SPAN_S
) -> Scenario:
    """The run of a seed. A sixth of all runs have no fault: everybody must be answered in them."""
    rng = random.Random(seed)
    many = rng.choice([2, 4, 8, 12]) if num_clients is None else num_clients
    ill = rng.choice([0, 1, 1, 2, 3, 5]) if num_faults is None else num_faults
    is_apart = rng.random() < 0.5
    if span_s > _SPAN_S:
        return _long(rng, seed, many, ill, span_s, is_apart=is_apart)
    return Scenario(
        seed=seed,
        clients=tuple(_client(rng, f"c{number}", span_s) for number in range(many)),
        faults=tuple(_fault(rng, span_s, is_apart=is_apart) for _ in range(ill)),
        is_apart=is_apart,
        plans_in_flight=rng.choice([1, 2]),
        num_blocks=rng.choice([72, 96, 160]),
    )


def _long(rng: random.Random, seed: int, many: int, ill: int, span_s: float, *, is_apart: bool) -> Scenario:
    """Hours: clients and faults come in groups, with quiet between them. The server is not told to stop."""
    starts = [rng.uniform(0, span_s) for _ in range(max(1, many // _IN_A_GROUP))]

    def in_a_group(at: float) -> float:
        return rng.choice(starts) + at % _SPAN_S

    clients = (_client(rng, f"c{number}", _SPAN_S) for number in range(many))
    faults = (_fault(rng, _SPAN_S, is_apart=is_apart) for _ in range(ill))
    return Scenario(
        seed=seed,
        clients=tuple(replace(each, at=in_a_group(each.at)) for each in clients),
        faults=tuple(replace(each, at=in_a_group(each.at)) for each in faults if each.kind != "server stops"),
        is_apart=is_apart,
        plans_in_flight=rng.choice([1, 2]),
        num_blocks=rng.choice([72, 96, 160]),
    )


def _client(rng: random.Random, name: str, span_s: float) -> Client:
    kind = rng.choice((*get_args(Kind), "chat", "chat stream", "live", "live", "talk"))
    model = CHAT if kind in CHATS or kind == "probe" else rng.choice([WHISPER, ASR])
    may_leave = kind != "probe" and rng.random() < 0.25
    cuts: list[float] = []
    if kind in SOCKETS and rng.random() < 0.4:
        cuts = sorted(rng.uniform(0.05, 6.0) for _ in range(rng.randint(1, 3)))
    return Client(
        name,
        kind,
        at=rng.choice([0.0, rng.uniform(0, 1), rng.uniform(0, span_s)]),
        which=rng.randrange(NUM_VARIANTS),
        model=model,
        leaves_s=rng.choice([rng.uniform(0, 0.3), rng.uniform(0, 5)]) if may_leave else None,
        cuts_s=tuple(cuts),
        address=rng.choice(["10.0.0.1", "10.0.0.2", "10.0.0.3"]),
    )


def _fault(rng: random.Random, span_s: float, *, is_apart: bool) -> Fault:
    kinds = [
        kind for kind in KINDS if is_apart or kind not in ("process dies", "process stopped", "link slow")
    ]
    kind = rng.choice([each for each in kinds if each != "server stops" or rng.random() < 0.3])
    target, lasts_s = "", 0.0
    match kind:
        case "device raises" | "device hangs" | "device out of memory":
            target = rng.choice(MODELS)
        case "actor raises":
            target = rng.choice(SUPERVISED)
        case "actor slow":
            target, lasts_s = rng.choice((*SUPERVISED, "voice activity")), rng.uniform(0.05, 2.0)
        case "threads refused" | "disk full" | "link slow":
            lasts_s = rng.uniform(0.05, 7.0)
        case "process stopped":
            lasts_s = rng.choice([rng.uniform(0.1, 3.0), rng.uniform(3.0, 20.0)])
        case "clock set":
            lasts_s = rng.choice([-86_400.0, -3.0, 3.0, 3600.0, 86_400.0])
        case "loop held":
            lasts_s = rng.choice([rng.uniform(0.01, 1.0), rng.uniform(1.0, 30.0)])
    return Fault(kind, at=rng.uniform(0, span_s), target=target, lasts_s=lasts_s)
