"""How much memory there is, and how it is shared out: weights, encoder cache, key-value blocks.

Sizes are settled once, before a model is loaded, and said in one line; a model that could not serve a single
request is refused with the options that would let it. Read `actors/model_loading.py` for who asks.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from ...protocols.errors import ModelLoadError
from ..control_groups import control_groups
from ..memory_limits import limited_bytes
from ..planning.kv.groups import ONE_GROUP, PagedGroup

_MIB: Final = 1024**2
_GIB: Final = 1024**3
_UNITS: Final = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 1024, "MIB": _MIB, "GIB": _GIB}
_SIZE: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([KMG]i?B|B)?\s*", re.IGNORECASE)

DEFAULT_SHARE: Final = {"cpu": 0.25, "cuda": 0.9}
"""Of what is free after weights and encoder cache, for all models of a server together. A CPU's memory is
also everybody else's."""
_SHARE_FOR_ONE: Final = 0.5
"""What a CPU gives where a single request needs more than its share."""
_STATE_SHARE: Final = 0.5
"""Of what caches may take, the most for states of a model that keeps keys and values as well."""
_MAX_SLOTS_EACH: Final = 2
"""State slots for each running request: its own, and one for a snapshot."""
_NAMED_CONTEXTS: Final = 4
"""Of a model of states alone, full contexts for whose blocks there are names."""
_ENCODER_SHARE: Final = 0.1
"""Of what is free after the weights, for the encoder cache, up to the next constant."""
_MAX_ENCODER_BYTES: Final = _GIB


@dataclass(frozen=True, slots=True)
class MemorySize:
    """A number of bytes, or a share (0 to 1) of what is free."""

    amount: float
    unit: Literal["bytes", "share"]

    @classmethod
    def parse(cls, text: str) -> MemorySize:
        """`2GiB`, `512MiB`, `1.5GB`, a plain number of bytes, or a share as `0.5`. Raises ValueError."""
        match = _SIZE.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is not a size")
        amount, unit = float(match[1]), (match[2] or "").upper()
        if not unit and amount <= 1:
            return cls(amount, "share")
        return cls(int(amount * _UNITS[unit if unit != "B" else ""]), "bytes")

    def of(self, free_bytes: int) -> int:
        """In bytes, where so many are free."""
        return int(self.amount if self.unit == "bytes" else self.amount * max(0, free_bytes))


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRequest:
    """What a model needs, and what the operator asked for (None: to be chosen)."""

    device: Literal["cpu", "cuda"]
    weight_bytes: int
    token_bytes: int
    """Key-value memory of one token of a block (`CacheLayout.token_bytes`): where all layers share one table,
    of all layers."""
    kv_dtype: str = ""
    """What it is kept as, to be told."""
    model_context: int
    """The model's own limit of prompt and answer, in tokens."""
    block_size: int
    max_running: int
    groups: tuple[PagedGroup, ...] = ONE_GROUP
    """Layers that share a block table."""
    max_tokens_per_step: int = 1
    """Tokens of a request in one step, by which it needs more than a window for a while."""
    state_bytes: int = 0
    """What a sequence's states take (`CacheLayout.state_bytes`); 0 for a model without."""
    max_context: int | None = None
    kv_memory: MemorySize | None = None
    num_blocks: int | None = None
    activation_bytes: int = 0
    """What encoding the largest image takes while it lasts."""
    encoding_bytes: int = 0
    """What the smallest encoding takes: Whisper's are all of a window. 0: nothing is encoded."""
    encoder_memory: MemorySize | None = None
    promised_bytes: int = 0
    """What other models were given and have not touched yet, so that it still looks free."""
    promised_kv_bytes: int = 0
    """Of it, what is for keys and values."""
    num_models: int = 1
    """Models that have been given nothing yet, this one included: they share the default."""

    @property
    def context(self) -> int:
        """Tokens of prompt and answer that are served."""
        return min(self.max_context or self.model_context, self.model_context)

    def blocks_of(self, num_tokens: int, max_tokens_per_step: int | None = None) -> int:
        """The most blocks that a request of so many tokens holds, fed so many at once."""
        size, most = self.block_size, max_tokens_per_step or self.max_tokens_per_step
        return sum(each.max_blocks(num_tokens, size, most) for each in self.groups)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """What was settled. `str` says it in one line."""

    free_bytes: int
    weight_bytes: int
    encoder_bytes: int
    activation_bytes: int
    num_blocks: int
    block_size: int
    block_bytes: int
    context: int
    context_blocks: int
    """Blocks that a request holds at the end of the full context, while it is fed token by token."""
    num_state_slots: int = 0
    """Slots for states of sequences and for snapshots of them."""
    state_bytes: int = 0
    """Of one slot."""
    device: Literal["cpu", "cuda"] = "cpu"
    kv_dtype: str = ""

    @property
    def promised_bytes(self) -> int:
        """What is not taken at once but will be: on a CPU memory is taken where it is written to."""
        return self.promised_kv_bytes + self.encoder_bytes if self.device == "cpu" else 0

    @property
    def promised_kv_bytes(self) -> int:
        """Of it, what is for keys, values and states."""
        return self.num_blocks * self.block_bytes + self.all_state_bytes if self.device == "cpu" else 0

    @property
    def all_state_bytes(self) -> int:
        """What the states of all slots take."""
        return self.num_state_slots * self.state_bytes

    @property
    def num_tokens(self) -> int:
        """Tokens the key-value memory holds, of requests of the full context: of shorter ones windows keep a
        larger part."""
        least = -(-self.context // self.block_size)
        return self.num_blocks * self.block_size * least // self.context_blocks

    def __str__(self) -> str:
        encoder = f", encoder cache {show(self.encoder_bytes)}" if self.encoder_bytes else ""
        if self.activation_bytes:
            encoder += f", encoding the largest image {show(self.activation_bytes)}"
        if show(self.all_state_bytes) != show(0):
            encoder = (
                f", states {show(self.all_state_bytes)} = {self.num_state_slots} of "
                f"{show(self.state_bytes)}{encoder}"
            )
        context = f", {self.context} tokens of context" if self.context > 1 else ""
        if not self.block_bytes:
            free = show(self.free_bytes)
            return f"weights {show(self.weight_bytes)}, no KV{encoder}{context}; {free} were free"
        num_requests = self.num_blocks / self.context_blocks
        return (
            f"weights {show(self.weight_bytes)}, KV {show(self.num_blocks * self.block_bytes)}"
            f"{' of ' + self.kv_dtype if self.kv_dtype else ''} = "
            f"{self.num_tokens} tokens = {num_requests:.1f} requests of the full context "
            f"({self.context} tokens){encoder}; {show(self.free_bytes)} were free"
        )


def show(num_bytes: float) -> str:
    """As GiB or MiB, for people."""
    return f"{num_bytes / _GIB:.2f} GiB" if num_bytes >= _GIB / 10 else f"{num_bytes / _MIB:.1f} MiB"


def plan_memory(request: MemoryRequest, free_bytes: int) -> MemoryPlan:
    """Share out `free_bytes`, less what was promised to others.

    Raises ModelLoadError, naming sizes and options, if the weights do not fit, if more was asked for than
    there is, or if not even one request of the full (or shortened) context would fit.
    """
    free_bytes = max(0, free_bytes - request.promised_bytes)
    left = free_bytes - request.weight_bytes
    if left < 0:
        raise ModelLoadError(
            f"the weights take {show(request.weight_bytes)}, and {show(free_bytes)} of memory are free; take "
            "a smaller model, or fewer bytes per number (--dtype)"
        )
    left -= request.activation_bytes
    if left < 0:
        raise ModelLoadError(
            f"encoding the largest image takes {show(request.activation_bytes)}, and after the weights "
            f"({show(request.weight_bytes)}) {show(left + request.activation_bytes)} are free; lower "
            "--max-image-pixels"
        )
    encoder_bytes = _encoder_bytes(request, left)
    block_bytes = request.token_bytes * request.block_size
    after_encoder = left - encoder_bytes
    num_slots = _num_state_slots(request, after_encoder)
    num_blocks = _num_blocks(request, after_encoder, num_slots * request.state_bytes)
    needed = request.blocks_of(request.context)
    plan = MemoryPlan(
        free_bytes=free_bytes,
        weight_bytes=request.weight_bytes,
        encoder_bytes=encoder_bytes,
        activation_bytes=request.activation_bytes,
        num_blocks=num_blocks,
        block_size=request.block_size,
        block_bytes=block_bytes,
        context=request.context,
        context_blocks=request.blocks_of(request.context, 1),
        num_state_slots=num_slots,
        state_bytes=request.state_bytes,
        device=request.device,
        kv_dtype=request.kv_dtype,
    )
    if block_bytes and num_blocks < needed:
        raise ModelLoadError(_too_small(request, plan, needed, after_encoder))
    if num_blocks * block_bytes + plan.all_state_bytes > after_encoder:
        states = f" and {num_slots} states {show(plan.all_state_bytes)}" if num_slots else ""
        raise ModelLoadError(
            f"{num_blocks} blocks of KV memory take {show(num_blocks * block_bytes)}{states}, and "
            f"{show(max(0, after_encoder))} are free after the weights ({show(request.weight_bytes)}) and "
            f"the encoder cache ({show(encoder_bytes)}); lower --kv-memory or --num-blocks"
        )
    return plan


def _encoder_bytes(request: MemoryRequest, left: int) -> int:
    least = request.encoding_bytes
    if not least:
        return 0
    if request.encoder_memory is None:
        return max(least, min(int(_ENCODER_SHARE * left), _MAX_ENCODER_BYTES))
    num_bytes = request.encoder_memory.of(left)
    if num_bytes < least:
        raise ModelLoadError(
            f"the encoder cache has {show(num_bytes)}, and one encoding takes {show(least)}; "
            f"--encoder-memory {_up(least)} would do for one at a time"
        )
    return num_bytes


def _cache_bytes(request: MemoryRequest, free_bytes: int) -> int:
    """What keys, values and states may take where blocks are not counted."""
    if request.kv_memory is not None:
        return request.kv_memory.of(free_bytes)
    everybodys = DEFAULT_SHARE[request.device] * (free_bytes + request.promised_kv_bytes)
    return int(max(0.0, everybodys - request.promised_kv_bytes) / request.num_models)


def _num_state_slots(request: MemoryRequest, free_bytes: int) -> int:
    if not request.state_bytes:
        return 0
    if request.state_bytes > free_bytes:
        raise ModelLoadError(
            f"the states of one request take {show(request.state_bytes)}, and {show(max(0, free_bytes))} are "
            f"free after the weights ({show(request.weight_bytes)}); take a smaller model"
        )
    share = _STATE_SHARE if request.token_bytes else 1.0
    num_slots = int(share * _cache_bytes(request, free_bytes)) // request.state_bytes
    return max(1, min(_MAX_SLOTS_EACH * request.max_running, num_slots))


def _num_blocks(request: MemoryRequest, free_bytes: int, all_state_bytes: int) -> int:
    block_bytes = request.token_bytes * request.block_size
    each = request.blocks_of(request.context)
    if not block_bytes:
        # Of no bytes. They name prefixes that have a snapshot; without states an engine has one at least.
        return request.num_blocks or (_NAMED_CONTEXTS * each if request.state_bytes else 1)
    if request.num_blocks is not None:
        return request.num_blocks
    num_blocks = (_cache_bytes(request, free_bytes) - all_state_bytes) // block_bytes
    if request.kv_memory is None and request.device == "cpu":
        if num_blocks < each <= (_SHARE_FOR_ONE * free_bytes - all_state_bytes) // block_bytes:
            return each
        num_blocks = min(num_blocks, request.max_running * each)
    return num_blocks


def _too_small(request: MemoryRequest, plan: MemoryPlan, needed: int, free_bytes: int) -> str:
    """Why not one request fits, and what would help."""
    fits = bisect_right(range(request.context + 1), plan.num_blocks, key=request.blocks_of) - 1
    remedies = [f"--max-context {fits}"] if fits else []
    needed_bytes = needed * plan.block_bytes
    if request.num_blocks is not None and needed_bytes + plan.all_state_bytes <= free_bytes:
        remedies.append(f"--num-blocks {needed}")
    elif request.num_blocks is None and (wanted := _with_states(request, needed_bytes)) <= free_bytes:
        remedies.append(f"--kv-memory {_up(wanted)}")
    elif request.encoder_memory is not None and plan.encoder_bytes > needed_bytes - free_bytes:
        remedies.append("a smaller --encoder-memory")
    remedy = " or ".join(remedies) if remedies else "a smaller model"
    return (
        f"one request of {plan.context} tokens takes {show(needed_bytes)} of KV memory, and there is "
        f"room for {fits} tokens ({show(plan.num_blocks * plan.block_bytes)}; weights "
        f"{show(plan.weight_bytes)}, encoder cache {show(plan.encoder_bytes)}, {show(plan.free_bytes)} were "
        f"free); {remedy} would fit"
    )


def _with_states(request: MemoryRequest, num_bytes: int) -> int:
    """What leaves so many bytes for keys and values."""
    most = _MAX_SLOTS_EACH * request.max_running * request.state_bytes
    return num_bytes + max(request.state_bytes, min(num_bytes, most))


def _up(num_bytes: int) -> str:
    """A value for an option that is at least `num_bytes`."""
    return f"{-(-num_bytes // _MIB)}MiB"


def host_bytes() -> int:
    """Memory of the host that may be taken: what machine, control groups and limits of the process leave."""
    free = _available_bytes()
    limits = [limited_bytes(), *(_limit_left(folder) for folder in control_groups("memory"))]
    return max(0, min([free, *(limit for limit in limits if limit is not None)]))


def _available_bytes(meminfo: Path = Path("/proc/meminfo")) -> int:
    try:
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass  # not Linux
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def _limit_left(folder: Path) -> int | None:
    """What one control group lets its processes still take, None if it says nothing."""
    for limit_file, usage_file in (
        ("memory.max", "memory.current"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        try:
            limit = (folder / limit_file).read_text().strip()
            usage = int((folder / usage_file).read_text())
            statistics = (folder / "memory.stat").read_text()
        except (OSError, ValueError):
            continue
        if limit == "max":
            return None
        # Files' pages count as used but are given back when needed. Version 1 has a total with subgroups.
        cached = re.findall(r"^(?:total_)?inactive_file (\d+)", statistics, re.MULTILINE)
        return int(limit) - usage + max(map(int, cached), default=0)
    return None
