"""Choices kept: a table in JSON for one kind of machine, in the user's cache or wherever an operator puts it.

A table fits where processor, what it can do, torch, and the kernels' sources are the same; each entry says
for how many threads it is. `settle` gives every `Choice` of the process what a table says, else what is
measured. The cache is a convenience: whatever is wrong with it is as if it were not there. A table that an
operator names must fit. Processes that write at once replace the file whole, and the next start measures
what was lost. Read `autotune.py` first.
"""

from __future__ import annotations

import hashlib
import logging
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import torch

from . import native
from .autotune import (
    Choice,
    Clock,
    Times,
    UseThreads,
    Waited,
    alike,
    choices,
    confirmed,
    decide,
    doubtful,
    is_steady,
    measure,
    no_waiting,
    threads_of,
)

logger = logging.getLogger(__name__)

MAX_TABLE_BYTES: Final = 1 << 20
BUDGET_S: Final = 3.0
"""For all that is measured at one start. What does not fit in is left to defaults, and to the next start."""
_MAX_UNSTEADY: Final = 2
"""Choices that other programs disturbed, after which nothing more is measured at this start."""
_LIMITS: Final = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY")
"""What oneDNN and torch themselves read, to leave instructions unused."""


class TableError(ValueError):
    """A table or a pin that does not fit; the message is one line for a person."""


class Entry(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A choice at one shape and number of threads. Keys are rows, as in `Choice.rows`."""

    chosen: dict[int, str]
    alike: list[set[str]] = []
    """Candidates with the same bits, where that matters."""
    times_us: dict[int, dict[str, tuple[float, float]]] = {}
    """Median and fastest of a few rounds."""


class Table(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Choices of one kind of machine. `processors` are the names it goes by: others may be added by hand."""

    processors: list[str]
    flags: str
    torch: str
    kernels: str
    choices: dict[str, Entry] = {}


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of a process' choices: how many of each kind."""

    measured: int = 0
    found: int = 0
    left: int = 0
    """There was no time to measure them, or other programs took it."""


def this_machine() -> Table:
    """The table of this machine, empty."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    facts = dict(line.split(":", 1) for line in reversed(lines) if ":" in line)
    facts = {key.strip(): value.strip() for key, value in facts.items()}
    # Of x86 what products are made with: hypervisors show more or fewer of the others.
    flags = [
        each for each in facts.get("flags", "").split() if each.startswith(("avx", "amx", "fma", "f16c"))
    ]
    limits = [f"{name}={os.environ[name]}" for name in _LIMITS if name in os.environ]
    name = facts.get("model name") or facts.get("CPU part") or "unknown"
    wanted = sorted(flags or facts.get("Features", "").split())
    return Table([name], " ".join([*wanted, *limits]), str(torch.__version__), _sources())


def _sources() -> str:
    folder = Path(__file__).parent
    digest = hashlib.sha256()
    for path in sorted([*folder.rglob("*.py"), *native.SOURCES.iterdir()]):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:32]


def read_table(path: Path, here: Table) -> Table:
    """A table for this machine. Raises TableError that says why it is none."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_TABLE_BYTES + 1)
        if len(content) > MAX_TABLE_BYTES:
            raise TableError(f"{path} is larger than {MAX_TABLE_BYTES} bytes")
        table = msgspec.json.decode(content, type=Table)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise TableError(f"{path} is not a table of kernels: {error}") from None
    if here.processors[0] not in table.processors:
        names = ", ".join(table.processors)
        raise TableError(f"{path} is for processors {names}; this one is {here.processors[0]}")
    for field in ("flags", "torch", "kernels"):
        theirs, ours = getattr(table, field), getattr(here, field)
        if theirs != ours:
            raise TableError(f"{path} was made where {field} is {theirs!r}; here it is {ours!r}")
    return table


def write_table(path: Path, table: Table) -> None:
    """Whole or not at all. Raises OSError."""
    content = msgspec.json.format(msgspec.json.encode(table), indent=1)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        own = Path(folder) / path.name
        own.write_bytes(content)
        os.replace(own, path)


def key_of(choice: Choice, use_threads: UseThreads) -> str:
    """What a table calls it."""
    return f"{choice.name}, threads {threads_of(choice, use_threads)}"


def apply(choice: Choice, entry: Entry) -> bool:
    """Choose as a table says; False if that is not for this choice, or breaks one of its rules."""
    chosen = tuple(entry.chosen.get(rows, "") for rows in choice.rows)
    tied = {name for name, rows in zip(chosen, choice.rows, strict=True) if rows <= choice.alike_rows}
    is_same = chosen[: len(choice.tied_rows)] == choice.defaults[: len(choice.tied_rows)]
    keeps_bits = is_same or not tied or any(tied <= names for names in entry.alike)
    if set(entry.chosen) != set(choice.rows) or not set(chosen) <= set(choice.candidates) or not keeps_bits:
        return False
    choice.chosen, choice.is_settled = chosen, True
    return True


MeasureRows = Callable[[Mapping[int, set[str]]], Times | None]
"""Measures so many rows of these candidates; None if there is no time."""


def entry_of(
    choice: Choice, times: Times, use_threads: UseThreads, measure_rows: MeasureRows
) -> Entry | None:
    """Decide by what was measured, and by measuring again what differs from the default, and choose so. None,
    and nothing chosen, if others disturbed either measurement or there was no time for the second."""
    if not is_steady(times):
        return None
    could_be = decide(choice, times, [set(choice.candidates)])
    groups = [] if could_be == choice.defaults else alike(choice, use_threads)
    decided = decide(choice, times, groups)
    if among := doubtful(choice, decided):
        second = measure_rows(among)
        if second is None or not is_steady(second):
            return None
        decided = confirmed(choice, decided, second)
    chosen = dict(zip(choice.rows, decided, strict=True))
    in_us = {
        rows: {name: (round(each.median * 1e6, 2), round(each.fastest * 1e6, 2)) for name, each in by.items()}
        for rows, by in times.items()
    }
    entry = Entry(chosen, groups, in_us)
    assert apply(choice, entry), "what was decided keeps the rules"
    return entry


def pin(pins: Mapping[str, str]) -> None:
    """Settle operations by name, wherever their candidate exists and nothing is settled yet. Raises
    TableError."""
    every = choices()
    for operation, candidate in pins.items():
        known = {each.operation: each.candidates for each in every}
        if operation not in known:
            allowed = ", ".join(sorted(known)) or "none, there is nothing to choose"
            raise TableError(f"{operation}={candidate} pins no operation; allowed: {allowed}")
        of = [each for each in every if each.operation == operation]
        if not any(candidate in each.candidates for each in of):
            allowed = ", ".join(sorted({name for each in of for name in each.candidates}))
            raise TableError(f"{operation}={candidate} pins no candidate; allowed: {allowed}")
        for each in of:
            if candidate in each.candidates and not each.is_settled:
                each.chosen, each.is_settled = (candidate,) * len(each.rows), True


def settle(
    use_threads: UseThreads, clock: Clock, *, waited: Waited = no_waiting, table: Path | None = None
) -> Settled:
    """Settle what is not settled yet by a table, or by the cache and measuring. Raises TableError.

    What has one way only is left alone.
    """
    open_choices = [each for each in choices() if not each.is_settled and len(each.candidates) > 1]
    if not open_choices:
        return Settled()
    here = this_machine()
    if table is not None:
        return _settle_by(read_table(table, here), table, open_choices, use_threads)
    kept = _read_cache(_cache_path(here), here)
    unknown = [each for each in open_choices if not _apply_kept(each, kept, use_threads)]
    end = clock() + BUDGET_S
    fresh: dict[str, Entry] = {}
    num_unsteady = 0
    for choice in unknown:
        if num_unsteady == _MAX_UNSTEADY:
            break
        measure_rows = partial(measure, choice, clock, use_threads, end=end, waited=waited)
        times = measure_rows()
        if times is None:  # a smaller one may still fit in
            continue
        entry = entry_of(choice, times, use_threads, measure_rows)
        if entry is not None:
            fresh[key_of(choice, use_threads)] = entry
        else:
            num_unsteady += 1
    if fresh:
        remember(fresh, here)
    return Settled(len(fresh), len(open_choices) - len(unknown), len(unknown) - len(fresh))


def _apply_kept(choice: Choice, kept: Mapping[str, Entry], use_threads: UseThreads) -> bool:
    entry = kept.get(key_of(choice, use_threads))
    return entry is not None and apply(choice, entry)


def _settle_by(table: Table, path: Path, open_choices: Sequence[Choice], use_threads: UseThreads) -> Settled:
    for choice in open_choices:
        key = key_of(choice, use_threads)
        entry = table.choices.get(key)
        if entry is None or not apply(choice, entry):
            raise TableError(f"{path} has no usable choice of {key}")
    return Settled(found=len(open_choices))


def remember(fresh: Mapping[str, Entry], here: Table) -> None:
    """Add to the cache; where that cannot be, the next start measures again."""
    cache = _cache_path(here)
    if cache is None:
        return
    both = {**_read_cache(cache, here), **fresh}
    try:
        write_table(cache, msgspec.structs.replace(here, choices=both))
    except OSError as error:
        logger.info("choices of kernels are not kept: %s", error)


def _cache_path(here: Table) -> Path | None:
    folder = native.user_cache()
    identity = hashlib.sha256(msgspec.json.encode(here)).hexdigest()[:32]
    return None if folder is None else folder / f"choices-{identity}.json"


def _read_cache(path: Path | None, here: Table) -> dict[str, Entry]:
    if path is None or not path.exists():
        return {}
    try:
        return read_table(path, here).choices
    except TableError as error:
        logger.info("kept choices of kernels are not used: %s", error)
        return {}
