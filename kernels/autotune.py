"""Which of several ways an operation runs by, at one shape: the default, or what is faster on this machine.

A file with such ways (`kernels/linear/linear.py`, `kernels/attention/dense_attention.py`) makes a `Choice`
for each shape and asks it by the number of rows. `measure` times the candidates in turn, `decide` keeps the
default wherever no other is clearly faster. Two rules come before speed. float32 never changes. And where
results may not depend on how many rows there are (`alike_rows`), candidates serve side by side only if their
results are equal to the last bit, which is tried out. What was measured while others computed decides
nothing, and what differs from the default is looked at twice. Knows no clock: it is an argument.
`autotune_table.py` says where choices are kept; read it next.
"""

from __future__ import annotations

import statistics
from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

import torch
from torch import Tensor

Run = Callable[[], Tensor]
Clock = Callable[[], float]
"""Seconds from any beginning."""
Waited = Callable[[], float]
"""Seconds that threads of this process could have run and did not since others did, in sum; 0 where no one
knows."""
UseThreads = Callable[[int], None]
"""Sets torch's threads as for a step of so many rows."""


class Timed(NamedTuple):
    """Seconds of a few rounds. Others who compute make the median larger than the fastest, or make wait."""

    median: float
    fastest: float
    waited: float = 0.0
    """Seconds that threads waited in a second of these rounds."""

    def gain(self, other: Timed) -> float:
        """How many times as fast this is as another: at least, by either measure."""
        return min(other.median / self.median, other.fastest / self.fastest)


Times = dict[int, dict[str, Timed]]
"""Of each candidate, by rows."""

MARGIN: Final = 1.05
"""A candidate must be so many times as fast as the default, or noise would choose."""
_UNSTEADY: Final = 1.4
"""Median ÷ fastest from which times say more of other programs than of candidates."""
_CONTENDED: Final = 0.1
"""Share of the time waited from which times say more of others, too. Waking up takes some hundredths."""
_ROUNDS: Final = 5
_SAMPLE_S: Final = 200e-6
"""What is shorter is repeated within a round."""
_LONG_S: Final = 10e-3
"""What is longer is less disturbed, and has fewer rounds."""
_FEW_ROUNDS: Final = 3


@dataclass(slots=True, eq=False, weakref_slot=True)
class Choice:
    """One operation at one shape. `at` is asked in every step, from any thread."""

    operation: str
    shape: str
    candidates: tuple[str, ...]
    rows: tuple[int, ...]
    """Numbers of rows to measure, ascending. Each stands for those down to the one before, the last one for
    more as well."""
    default: Callable[[int], str]
    runs: Callable[[int], Mapping[str, Run]]
    """The candidates for so many rows, on data as a step has it."""
    cost: Callable[[int], tuple[float, float]]
    """Bytes to move and operations to do for so many rows: what bounds them from below."""
    probe: Callable[[], Callable[[str, int], Tensor]] | None = None
    """Makes what gives the first rows of always the same results, by a candidate; sums that differ show."""
    alike_rows: int = 0
    """Rows up to which a row's result must not depend on how many there are."""
    is_settled: bool = False
    chosen: tuple[str, ...] = field(init=False)
    """By `rows`."""

    def __post_init__(self) -> None:
        self.chosen = self.defaults

    @property
    def name(self) -> str:
        """What it is called in tables."""
        return f"{self.operation} {self.shape}"

    @property
    def defaults(self) -> tuple[str, ...]:
        """What is chosen without measuring."""
        return tuple(self.default(rows) for rows in self.rows)

    @property
    def tied_rows(self) -> tuple[int, ...]:
        """Of `rows` those whose results must be alike."""
        return tuple(rows for rows in self.rows if rows <= self.alike_rows)

    def at(self, rows: int) -> str:
        """The candidate for so many rows."""
        return self.chosen[bisect_left(self.rows, rows, hi=len(self.rows) - 1)]


_made: WeakValueDictionary[str, Choice] = WeakValueDictionary()


def shared_choice(choice: Choice) -> Choice:
    """The choice of this name that somebody has, or else this one. It lasts as long as somebody holds it."""
    return _made.setdefault(choice.name, choice)


def choices() -> list[Choice]:
    """All that somebody holds."""
    return list(_made.values())


def threads_of(choice: Choice, use_threads: UseThreads) -> str:
    """Threads that its rows are computed by, as `2`, or `1/2` where few rows take fewer."""
    counts: list[int] = []
    for rows in choice.rows:
        use_threads(rows)
        counts.append(torch.get_num_threads())
    return "/".join(map(str, sorted(set(counts))))


def no_waiting() -> float:
    """Where it is not known how long threads waited."""
    return 0.0


@torch.inference_mode()
def measure(
    choice: Choice,
    clock: Clock,
    use_threads: UseThreads,
    among: Mapping[int, Collection[str]] | None = None,
    *,
    end: float = float("inf"),
    waited: Waited = no_waiting,
) -> Times | None:
    """Medians of a few rounds, candidates in turn; None if that would not be over at `end`. `among` says
    which rows and candidates, unless it is all of them."""
    times: Times = {}
    for rows in choice.rows if among is None else among:
        if clock() >= end:
            return None
        use_threads(rows)
        runs = {name: run for name, run in choice.runs(rows).items() if among is None or name in among[rows]}
        once = {name: _time(run, 2, clock) for name, run in runs.items()}  # the first call sets up
        repeats = {name: max(1, min(16, int(_SAMPLE_S / max(once[name], 1e-9)))) for name in runs}
        rounds = _FEW_ROUNDS if max(once.values()) > _LONG_S else _ROUNDS
        if clock() + rounds * sum(once[name] * repeats[name] for name in runs) > end:
            return None
        samples: dict[str, list[float]] = {name: [] for name in runs}
        begin, waited_before = clock(), waited()
        for _ in range(rounds):
            for name, run in runs.items():
                samples[name].append(_time(run, repeats[name], clock))
        share = (waited() - waited_before) / max(clock() - begin, 1e-9)
        times[rows] = {
            name: Timed(statistics.median(each), min(each), share) for name, each in samples.items()
        }
    return times


def is_steady(times: Times) -> bool:
    """Whether these are times of a machine that had nothing else to do."""
    every = [each for by in times.values() for each in by.values()]
    waited = sum(each.waited * each.median for each in every) / max(sum(each.median for each in every), 1e-9)
    return waited < _CONTENDED and statistics.median(each.median / each.fastest for each in every) < _UNSTEADY


def _time(run: Run, repeats: int, clock: Clock) -> float:
    begin = clock()
    for _ in range(repeats):
        run()
    return (clock() - begin) / repeats


@torch.inference_mode()
def alike(choice: Choice, use_threads: UseThreads) -> list[set[str]]:
    """Candidates in groups whose results are equal to the last bit, for every number of rows up to
    `alike_rows`. What is not even like itself is in none."""
    if choice.probe is None:
        return []
    use_threads(choice.alike_rows)
    probe = choice.probe()
    groups: list[tuple[Tensor, set[str]]] = []
    for candidate in choice.candidates:
        use_threads(choice.alike_rows)
        whole = probe(candidate, choice.alike_rows)
        few = sorted({1, 2, 3, 5, 7, 12, choice.alike_rows - 1, *choice.tied_rows})
        if not all(_is_like(whole, rows, partial(probe, candidate), use_threads) for rows in few):
            continue
        for other, names in groups:
            if torch.equal(other, whole):
                names.add(candidate)
                break
        else:
            groups.append((whole, {candidate}))
    return [names for _, names in groups]


def _is_like(whole: Tensor, rows: int, of: Callable[[int], Tensor], use_threads: UseThreads) -> bool:
    use_threads(rows)
    return torch.equal(of(rows), whole[:rows])


def decide(choice: Choice, times: Times, groups: list[set[str]]) -> tuple[str, ...]:
    """What to run, by `choice.rows`. `groups` are those of `alike`."""
    default = dict(zip(choice.rows, choice.defaults, strict=True))
    tied = choice.tied_rows
    chosen = {rows: _fastest(times[rows], set(choice.candidates), default[rows]) for rows in choice.rows}
    chosen |= {rows: default[rows] for rows in tied}
    needed = {default[rows] for rows in tied}
    plans = [{rows: _fastest(times[rows], names, default[rows]) for rows in tied} for names in groups]
    for names, plan in zip(groups, plans, strict=True):
        if needed <= names:
            chosen |= plan  # faster somewhere, and no bit differs
    for plan in plans:
        if tied and _gain(times, plan, chosen) >= MARGIN:
            chosen |= plan
    return tuple(chosen[rows] for rows in choice.rows)


def doubtful(choice: Choice, chosen: Sequence[str]) -> dict[int, set[str]]:
    """What a second look is at: where another than the default was chosen, these two."""
    pairs = zip(choice.rows, chosen, choice.defaults, strict=True)
    return {rows: {name, default} for rows, name, default in pairs if name != default}


def confirmed(choice: Choice, chosen: Sequence[str], second: Times) -> tuple[str, ...]:
    """What is left of it after a second look: what is still clearly faster. Rows whose results must be alike
    stay together or return to the default together."""
    default = dict(zip(choice.rows, choice.defaults, strict=True))
    plan = dict(zip(choice.rows, chosen, strict=True))
    tied = {rows: plan[rows] for rows in second if rows in choice.tied_rows}
    is_left = not tied or _gain(second, tied, default) >= MARGIN
    for rows in second:
        is_faster = second[rows][plan[rows]].gain(second[rows][default[rows]]) >= MARGIN
        if not (is_left if rows in tied else is_faster):
            plan[rows] = default[rows]
    return tuple(plan[rows] for rows in choice.rows)


def _fastest(times: Mapping[str, Timed], names: set[str], default: str) -> str:
    best = min(names, key=lambda name: (times[name].median, name))
    if default in names and times[best].gain(times[default]) < MARGIN:
        return default
    return best


def _gain(times: Times, plan: Mapping[int, str], chosen: Mapping[int, str]) -> float:
    """How many times as fast, in the geometric mean over rows."""
    return statistics.geometric_mean(times[rows][plan[rows]].gain(times[rows][chosen[rows]]) for rows in plan)
