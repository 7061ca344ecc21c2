"""By which ways a model's operations run: settled when its weights are read, or shown by `sensorium kernels`.

Here are the clock and what an operator says (`--kernels`, `--pin-kernels`); `kernels/autotune.py` measures
and decides, `kernels/autotune_table.py` keeps.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import torch
from msgspec.structs import replace as replace_fields

from ..engine.control_groups import num_cores
from ..engine.execution.runner import Runner
from ..engine.models.registry import embedded_models, open_model
from ..kernels.autotune import Choice, Clock, Times, choices, is_steady, measure
from ..kernels.autotune_table import (
    Entry,
    TableError,
    entry_of,
    key_of,
    pin,
    remember,
    settle,
    this_machine,
    write_table,
)
from ..protocols.errors import ModelLoadError
from .config.engine import EngineConfig
from .config.validation import read_pins
from .errors import ConfigError

logger = logging.getLogger(__name__)

_CLOCK: Final[Clock] = time.perf_counter
_READ_BYTES: Final = 1 << 28
_SIDE: Final = 1024
"""Of the square product whose rate is a ceiling."""
_ROUNDS: Final = 5
_TRIES: Final = 3


def settle_kernels(name: str, runner: Runner, config: EngineConfig) -> None:
    """Settle what the model `name`, whose weights `runner` has, brought. In the device's thread.

    Raises ModelLoadError naming the option whose table or pin does not fit.
    """
    begin = _CLOCK()
    try:
        pin(read_pins(config.pin_kernels))
    except TableError as error:
        raise ModelLoadError(f"{name}: --pin-kernels: {error}") from None
    if config.kernels == "default":
        return
    try:
        table = None if config.kernels == "auto" else Path(config.kernels)
        settled = settle(runner.use_threads, _CLOCK, waited=_waited, table=table)
    except TableError as error:
        raise ModelLoadError(f"{name}: --kernels: {error}") from None
    if settled.measured or settled.left:
        left = f", {settled.left} left for another start" if settled.left else ""
        took = _CLOCK() - begin
        logger.info("%s: %d choices of kernels measured in %.1f s%s", name, settled.measured, took, left)


def show_kernels(model: str, config: EngineConfig, save: Path | None) -> Iterator[str]:
    """Lines that say what was measured for a model and what runs. What is measured here is what servers use
    from then on, unless `config` names a table or pins; `save` is a file for the choices.

    Raises ModelLoadError, and ConfigError if `save` cannot be written.
    """
    is_embedded = model in embedded_models()
    dtype = "float32" if config.dtype == "auto" and is_embedded else config.dtype
    source = open_model(model, device="cpu", dtype=dtype, quantization=config.quantization)
    num_threads = config.num_threads or (1 if is_embedded else num_cores())
    runner = Runner(source.load(), num_blocks=2, num_threads=num_threads)
    is_auto = config.kernels == "auto"
    settle_kernels(model, runner, replace(config, kernels="default") if is_auto else config)
    here = this_machine()
    entries: dict[str, Entry] = {}
    runner.use_threads(_SIDE)
    read, product = _ceilings(source.dtype)
    yield f"{here.processors[0]}: reads {read / 1e9:.1f} GB/s, multiplies {product / 1e9:.0f} GFLOP/s"
    is_busy = False
    if not choices():
        kind = str(source.dtype).removeprefix("torch.")
        yield f"Nothing to choose: in {kind} every operation has one way here."
    for choice in choices():
        measure_rows = partial(measure, choice, _CLOCK, runner.use_threads, waited=_waited)
        times = _steady_times(measure_rows)
        key = key_of(choice, runner.use_threads)
        is_busy |= not is_steady(times)
        if is_auto and not choice.is_settled:
            entry = entry_of(choice, times, runner.use_threads, measure_rows)
            if entry is not None:
                entries[key] = entry
            is_busy |= entry is None
        yield from ("", key, *_rows_of(choice, times, read, product))
    if is_auto and entries:
        remember(entries, here)
    if is_busy:
        yield "\nOther programs disturbed some of this: such times change no choice, and nothing is saved."
    elif save is not None:
        try:
            write_table(save, replace_fields(here, choices=entries))
        except OSError as error:
            raise ConfigError(f"--save is {str(save)!r}, which cannot be written: {error.strerror}") from None


def _waited() -> float:
    """Seconds that threads of this process waited for a processor, where the kernel counts that."""
    waited = 0
    for task in Path("/proc/self/task").glob("*/schedstat"):
        with suppress(OSError, ValueError, IndexError):  # a thread may end, a kernel may not count
            waited += int(task.read_text().split()[1])
    return waited * 1e-9


def _steady_times(measure_rows: Callable[[], Times | None]) -> Times:
    """Of the first try that nobody disturbed, or of the last one."""
    times: Times = {}
    for _ in range(_TRIES):
        times = measure_rows() or {}
        if is_steady(times):
            break
    return times


def _rows_of(choice: Choice, times: Times, read: float, product: float) -> Iterator[str]:
    """A table; times in microseconds, the share of the floor is that of what runs."""
    widths = [max(10, len(name)) for name in choice.candidates]
    names = "  ".join(name.rjust(width) for name, width in zip(choice.candidates, widths, strict=True))
    yield f"  {'rows':>6}  {names}  {'of floor':>8}  runs"
    for rows, chosen in zip(choice.rows, choice.chosen, strict=True):
        num_bytes, operations = choice.cost(rows)
        share = max(num_bytes / read, operations / product) / times[rows][chosen].median
        cells = "  ".join(
            f"{times[rows][name].median * 1e6:{width}.1f}"
            for name, width in zip(choice.candidates, widths, strict=True)
        )
        yield f"  {rows:>6}  {cells}  {share:>8.0%}  {chosen}"


def _ceilings(dtype: torch.dtype) -> tuple[float, float]:
    """Bytes read and operations of a large product in a second, at the fastest of a few times."""
    large = torch.ones(_READ_BYTES // 4, dtype=torch.int32)
    square = torch.randn(_SIDE, _SIDE).to(dtype)
    return _READ_BYTES / _fastest(lambda: large.sum(dtype=torch.int32)), 2.0 * _SIDE**3 / _fastest(
        lambda: square @ square
    )


def _fastest(run: Callable[[], object]) -> float:
    seconds: list[float] = []
    for _ in range(_ROUNDS):
        begin = _CLOCK()
        run()
        seconds.append(_CLOCK() - begin)
    return min(seconds)
