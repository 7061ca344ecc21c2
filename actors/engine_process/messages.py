"""What is said between those who ask engines and those who run them: calls, answers, and the state of things.

Plain data; `actors/inference/client.py` says what each means. Long tuples do not travel inside of a message,
whose decoding nobody can interrupt, but in slices behind it; features travel as they are. Authentication and
addresses are no business of this. Read `actors/engine_process/framing.py` for how messages become bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, Final, TypeVar, get_type_hints

import msgspec

from ...protocols import errors
from ...protocols.engine.messages import (
    AnyRequest,
    ContentHash,
    Features,
    FloatType,
    InputChunk,
    ItemKey,
    Lane,
    Outcome,
    SessionKey,
    TextGenerated,
    TransduceEvent,
    TransduceRequest,
)
from ...protocols.engine.statistics import EngineStatistics
from ..runtime.actor import InboxStatistics
from ..runtime.supervisor import Health
from ..telemetry.logs import LogContext
from .framing import Buffer

T = TypeVar("T", bound=msgspec.Struct)

NEWS: Final = 0
"""The number of what nobody asked for."""


class _Message(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A call or an answer."""


class Long(msgspec.Struct, frozen=True, array_like=True):
    """A tuple that travels behind its message: the field's path, and in how many slices."""

    path: tuple[str, ...]
    num_slices: int


class Shape(msgspec.Struct, frozen=True, array_like=True):
    """Features without their data, which travels behind."""

    shape: tuple[int, ...]
    grid: tuple[int, int, int] | None = None
    encoded: FloatType | None = None
    num_before: int = 0


class Hold(_Message, frozen=True):
    """`EngineClient.placed`: any number of `Missing`, then `Accepted`; it lasts until `Leave`."""

    model: int
    items: tuple[ItemKey, ...]
    lane: Lane
    log_context: LogContext = LogContext()


class Supply(_Message, frozen=True):
    """To a `Missing`: the features, in order; their data is in the buffers."""

    shapes: tuple[Shape, ...]


class Run(_Message, frozen=True):
    """`Place.run`. The answers: `Accepted` and texts if it samples, `Accepted` and what chunks brought if
    it is fed, else `Performed`."""

    model: int
    body: AnyRequest
    log_context: LogContext = LogContext()
    long: tuple[Long, ...] = ()


class Fork(_Message, frozen=True):
    """`FedRun.fork` of the request that the call `parent` runs; answered as its `Run` is."""

    model: int
    parent: int
    body: TransduceRequest
    log_context: LogContext = LogContext()


class Feed(_Message, frozen=True):
    """`FedRun.feed` of the request that the call `run` runs; the features' data is in the buffers.

    It is a call of its own, so that a refusal is an answer to it: `Accepted`, or `Failed`.
    """

    model: int
    run: int
    shape: Shape
    num_valid: int
    is_last: bool
    is_first: bool
    log_context: LogContext = LogContext()


class CloseSession(_Message, frozen=True):
    """`close_session`; it is not answered."""

    model: int
    session: SessionKey


class GetState(_Message, frozen=True):
    """Ask for a `State` of now."""


class Leave(_Message, frozen=True):
    """The caller of that number has left. It is answered in kind where an answer was broken off for that."""


class Accepted(_Message, frozen=True):
    """What was asked for is held, or queued."""


class Missing(_Message, frozen=True):
    """Features that must be sent."""

    hashes: tuple[ContentHash, ...]


class Text(_Message, frozen=True):
    """A piece of an answer, or all of it."""

    body: TextGenerated
    long: tuple[Long, ...] = ()


class Performed(_Message, frozen=True):
    """What became of a request that does not sample."""

    outcome: Outcome


class Brought(_Message, frozen=True):
    """What came of a request that is fed."""

    event: TransduceEvent


class Failed(_Message, frozen=True):
    """An error of `protocols/errors.py`, by the name of its class."""

    kind: str
    message: str
    code: str | None = None
    param: str | None = None
    retry_after_s: float | None = None


class ModelState(msgspec.Struct, frozen=True, array_like=True):
    """Of one engine."""

    health: Health
    statistics: EngineStatistics
    inboxes: tuple[InboxStatistics, ...]


class State(_Message, frozen=True):
    """Of all engines, in order."""

    models: tuple[ModelState, ...]


class Loading(_Message, frozen=True):
    """Said again and again by those who run engines, until all can take work: they are there."""


class CheckpointFiles(msgspec.Struct, frozen=True, array_like=True):
    """The small files of one model's folder (`small_files.py`), whose contents travel behind."""

    digest: str
    """Of names and contents."""
    names: tuple[str, ...] = ()
    """None where the other side has them: `Orders.known_checkpoints`."""


class Opened(_Message, frozen=True):
    """All engines can take work: of each model its `info_fields`, and the files its side is opened from."""

    models: tuple[dict[str, Any], ...]
    checkpoints: tuple[CheckpointFiles, ...]


Message = (
    Hold | Supply | Run | Fork | Feed | CloseSession | GetState | Leave
    | Accepted | Missing | Text | Performed | Brought | Failed | State | Loading | Opened
)  # fmt: skip

Lengthy = Run | Text
"""What may be long: `body` then lacks the `long` tuples, which travel behind."""

_DECODER: Final = msgspec.msgpack.Decoder(Message)
_ENCODER: Final = msgspec.msgpack.Encoder()


def encode(message: Message) -> bytes:
    """A message's bytes. Longer than `frames.MAX_FRAME` only where a text in it is."""
    return _ENCODER.encode(message)


def decode(data: bytes) -> Message:
    """The message in some bytes. Raises msgspec.ValidationError or DecodeError."""
    message: Message = _DECODER.decode(data)
    return message


def failed(error: errors.SensoriumError) -> Failed:
    """An error as data: of the nearest class that everybody knows."""
    kind = next(each.__name__ for each in type(error).mro() if hasattr(errors, each.__name__))
    return Failed(kind, error.message, error.code, error.param, error.retry_after_s)


def raised(failed: Failed) -> errors.SensoriumError:
    """The error again."""
    kind = getattr(errors, failed.kind, errors.InternalError)
    named: dict[str, Any] = {"code": failed.code, "param": failed.param}
    if failed.retry_after_s is not None and issubclass(kind, errors.OverloadedError):
        named["retry_after_s"] = failed.retry_after_s
    error: errors.SensoriumError = kind(failed.message, **named)
    return error


def shapes_of(features: Sequence[Features]) -> tuple[Supply, list[Buffer]]:
    """Features as a message and buffers."""
    return Supply(tuple(map(_shape, features))), [each.data for each in features]


def features_of(supply: Supply, buffers: Sequence[bytes]) -> tuple[Features, ...]:
    """And back."""
    return tuple(_features(each, data) for each, data in zip(supply.shapes, buffers, strict=True))


def feed_of(model: int, run: int, chunk: InputChunk, log_context: LogContext) -> tuple[Feed, list[Buffer]]:
    """A chunk as a message and buffers."""
    shape = _shape(chunk.features)
    feed = Feed(model, run, shape, chunk.num_valid, chunk.is_last, chunk.is_first, log_context)
    return feed, [chunk.features.data]


def chunk_of(feed: Feed, buffers: Sequence[bytes]) -> InputChunk:
    """And back."""
    (data,) = buffers
    return InputChunk(_features(feed.shape, data), feed.num_valid, feed.is_last, feed.is_first)


def _shape(features: Features) -> Shape:
    return Shape(features.shape, features.grid, features.encoded, features.num_before)


def _features(shape: Shape, data: bytes) -> Features:
    return Features(shape.shape, data, shape.grid, shape.encoded, shape.num_before)


_FLAT: Final = 8192
"""Numbers in a slice; one takes some 0.1 ms to encode or decode."""
_NESTED: Final = 256
"""Tuples in one."""


def detached(value: T) -> tuple[T, tuple[Long, ...], list[tuple[object, ...]]]:
    """`value` without its long tuples; where they belong; their slices in order."""
    found = list(_long_tuples(value, ()))
    slices: list[tuple[object, ...]] = []
    places: list[Long] = []
    for path, members in found:
        size = _slice_size(members)
        cut = [members[start : start + size] for start in range(0, len(members), size)]
        value = replaced(value, path, ())
        places.append(Long(path, len(cut)))
        slices += cut
    return value, tuple(places), slices


def encode_slice(members: tuple[object, ...]) -> bytes:
    """A slice's bytes."""
    return _ENCODER.encode(members)


def decode_slice(data: bytes, body: msgspec.Struct, path: tuple[str, ...]) -> tuple[object, ...]:
    """A slice of the field at `path` of `body`. Raises AttributeError for a path that there is not."""
    *outer, name = path
    for each in outer:
        body = getattr(body, each)
    members: tuple[object, ...] = _slice_decoder(type(body), name).decode(data)
    return members


def _long_tuples(
    value: msgspec.Struct, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], tuple[object, ...]]]:
    for name in value.__struct_fields__:
        member = getattr(value, name)
        if isinstance(member, tuple):
            if len(member) > _NESTED and len(member) > _slice_size(member):
                yield (*path, name), member
        elif isinstance(member, msgspec.Struct):
            yield from _long_tuples(member, (*path, name))


def _slice_size(members: tuple[object, ...]) -> int:
    return _NESTED if isinstance(members[0], tuple | msgspec.Struct) else _FLAT


def replaced(value: T, path: tuple[str, ...], members: tuple[object, ...]) -> T:
    """`value` with other members of the tuple at `path`."""
    name, *deeper = path
    new = replaced(getattr(value, name), tuple(deeper), members) if deeper else members
    return msgspec.structs.replace(value, **{name: new})


@cache
def _slice_decoder(kind: type[msgspec.Struct], name: str) -> msgspec.msgpack.Decoder[Any]:
    """For members of one field. Raises KeyError for a field that there is not."""
    return msgspec.msgpack.Decoder(get_type_hints(kind)[name])
