"""Record what a scheduler is told, and replay it: the same calls give the same plans.

One JSON line a call, the bounds first. Of step results only what scheduling depends on is written (no
log-probabilities). For finding out later, on a desk, why a plan was what it was. Read
`engine/planning/scheduler.py` for what the calls do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import assert_never

import msgspec

from ...protocols.messages import Align, Features, Generate, RequestId, SessionKey
from .events import SchedulerEvent
from .limits import SchedulerConfig
from .plan import Plan, Slot, StepResult
from .scheduler import Scheduler


class _Begin(msgspec.Struct, frozen=True, tag="begin"):
    config: SchedulerConfig


class _Submit(msgspec.Struct, frozen=True, tag="submit"):
    generate: Generate
    slot: Slot | None
    media_slots: tuple[Slot, ...]


class _Align(msgspec.Struct, frozen=True, tag="align"):
    command: Align
    slot: Slot


class _Encode(msgspec.Struct, frozen=True, tag="encode"):
    slot: Slot
    features: Features


class _DropEncode(msgspec.Struct, frozen=True, tag="drop_encode"):
    slot: Slot


class _Free(msgspec.Struct, frozen=True, tag="free"):
    slot: Slot


class _Abort(msgspec.Struct, frozen=True, tag="abort"):
    request_id: RequestId


class _CloseSession(msgspec.Struct, frozen=True, tag="close_session"):
    key: SessionKey


class _Schedule(msgspec.Struct, frozen=True, tag="schedule"):
    pass


class _Update(msgspec.Struct, frozen=True, tag="update"):
    result: StepResult


_Call = _Submit | _Align | _Encode | _DropEncode | _Free | _Abort | _CloseSession | _Schedule | _Update
_encoder = msgspec.json.Encoder()
_decode_begin = msgspec.json.Decoder(_Begin).decode
_decode_call: Callable[[bytes], _Call] = msgspec.json.Decoder(_Call).decode


class RecordingScheduler(Scheduler):
    """A scheduler that hands each call that was not refused to `write`, as a line without its end."""

    def __init__(self, config: SchedulerConfig, write: Callable[[bytes], object]) -> None:
        super().__init__(config)
        self._write = write
        self._record(_Begin(config))

    def submit(
        self, generate: Generate, slot: Slot | None, media_slots: tuple[Slot, ...] = ()
    ) -> list[SchedulerEvent]:
        """See `Scheduler`, as for all methods here."""
        events = super().submit(generate, slot, media_slots)
        self._record(_Submit(generate, slot, media_slots))
        return events

    def align(self, command: Align, slot: Slot) -> None:
        super().align(command, slot)
        self._record(_Align(command, slot))

    def encode(self, slot: Slot, features: Features) -> None:
        super().encode(slot, features)
        self._record(_Encode(slot, features))

    def drop_encode(self, slot: Slot) -> list[SchedulerEvent]:
        self._record(_DropEncode(slot))
        return super().drop_encode(slot)

    def free(self, slot: Slot) -> list[SchedulerEvent]:
        self._record(_Free(slot))
        return super().free(slot)

    def abort(self, request_id: RequestId) -> bool:
        self._record(_Abort(request_id))
        return super().abort(request_id)

    def close_session(self, key: SessionKey) -> None:
        self._record(_CloseSession(key))
        super().close_session(key)

    def schedule(self) -> Plan:
        self._record(_Schedule())
        return super().schedule()

    def update(self, result: StepResult) -> list[SchedulerEvent]:
        sampled = tuple(
            msgspec.structs.replace(each, logprobs=(), top_logprobs=(), prompt_logprobs=None)
            for each in result.sampled
        )
        self._record(_Update(replace(result, sampled=sampled)))
        return super().update(result)

    def _record(self, call: _Begin | _Call) -> None:
        self._write(_encoder.encode(call))


def replay(lines: Iterable[bytes]) -> Iterator[Plan]:
    """The plans of a record, falsy ones included. Raises msgspec.DecodeError for what is not a record."""
    rest = iter(lines)
    scheduler = Scheduler(_decode_begin(next(rest)).config)
    for line in rest:
        call = _decode_call(line)
        match call:
            case _Submit(generate, slot, media_slots):
                scheduler.submit(generate, slot, media_slots)
            case _Align(command, slot):
                scheduler.align(command, slot)
            case _Encode(slot, features):
                scheduler.encode(slot, features)
            case _DropEncode(slot):
                scheduler.drop_encode(slot)
            case _Free(slot):
                scheduler.free(slot)
            case _Abort(request_id):
                scheduler.abort(request_id)
            case _CloseSession(key):
                scheduler.close_session(key)
            case _Schedule():
                yield scheduler.schedule()
            case _Update(result):
                scheduler.update(result)
            case _:
                assert_never(call)
