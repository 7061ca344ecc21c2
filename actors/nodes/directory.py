"""What a directory and the fronts that look engines up tell each other, and how: plain data on a stream.

The directory lists the engines that it has and the fronts that are connected, at every change and once a
second. A front reports what it sees of each engine, once a second: whether it can use it, how much there is
to do, how long requests waited; and where other fronts reach it. Read `actors/cluster/directory.py` for who
lists, `actors/replicas/discovered.py` for who looks engines up, `actors/fronts/fronts.py` for who looks up
fronts.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable
from typing import Final, Literal, TypeVar

import msgspec
import trio

from ...protocols.engine.histograms import Distribution
from ..config.validation import HostPort
from ..engine_process.multiplexer import Link, LinkLostError
from .connecting import AGAIN_S, connected
from .handshake import DIRECTORY

logger = logging.getLogger(__name__)

INTERVAL_S: Final = 1.0
SILENCE_S: Final = 10.0
"""A connection that has brought nothing for so long is given up."""
_CALL: Final = 1
"""Of a link: there is one thing to talk about."""


class ListedEngine(msgspec.Struct, frozen=True):
    """An engine that can be used."""

    address: str
    """HOST:PORT."""
    state: Literal["ready", "draining"] = "ready"
    """draining: it gets nothing new and ends soon."""


class ListedFront(msgspec.Struct, frozen=True):
    """A server that faces clients, for other servers that do."""

    tag: str
    """What the ids that it makes begin with (`protocols/server/front_tags.py`)."""
    address: str
    """HOST:PORT at which it takes what others relay to it."""


class Listing(msgspec.Struct, frozen=True):
    """All engines and fronts there are."""

    models: tuple[str, ...]
    """Public names of the models that each engine runs."""
    engines: tuple[ListedEngine, ...]
    fronts: tuple[ListedFront, ...] = ()
    """In the order in which they have connected."""


class SeenEngine(msgspec.Struct, frozen=True):
    """What one server sees of an engine."""

    address: str
    unusable_s: float
    """Seconds since it was last ready to be asked; 0.0: it is."""
    num_requests: int
    """Requests of all servers that run or wait there, as the engine says."""
    queue_s: Distribution
    """How long requests that somebody waits for have waited there, since the engine's start."""


class Report(msgspec.Struct, frozen=True):
    """What one connection has to say."""

    engines: tuple[SeenEngine, ...] = ()
    """What a front sees of all engines it knows."""
    front: ListedFront | None = None
    """The front itself; it announces itself on a separate connection, once it can answer."""


OutT = TypeVar("OutT", Listing, Report)
InT = TypeVar("InT", Listing, Report)


async def exchange(
    stream: trio.abc.Stream,
    say: Callable[[], OutT],
    kind: type[InT],
    take: Callable[[InT], None],
    changed: Callable[[], trio.Event] = trio.Event,
) -> None:
    """Say what there is to say, once a second and when the event of `changed` is set, and give what comes to
    `take`. `changed` gives the event of the next change.

    Returns when the other end is gone, silent for ten seconds, or makes no sense.
    """
    link = Link(stream)
    encode, decoder = msgspec.msgpack.encode, msgspec.msgpack.Decoder(kind)

    async def talk() -> None:
        while True:
            change = changed()
            link.send_nowait(_CALL, encode(say()))
            await link.settled(_CALL)
            with trio.move_on_after(INTERVAL_S):
                await change.wait()

    with trio.move_on_after(SILENCE_S) as scope:
        async with trio.open_nursery() as nursery:

            async def hear(_number: int, parts: list[bytes]) -> None:
                await trio.lowlevel.checkpoint()
                take(decoder.decode(parts[0]))
                scope.deadline = trio.current_time() + SILENCE_S

            nursery.start_soon(talk)
            nursery.start_soon(link.run_sending)
            try:
                await link.run_receiving(hear)
            except LinkLostError:
                pass
            except msgspec.DecodeError as error:
                logger.warning("the other end of a directory's connection makes no sense: %s", error)
            nursery.cancel_scope.cancel()


async def look_up(
    address: HostPort,
    secret: bytes,
    take: Callable[[Listing], None],
    report: Callable[[], Report],
    tls: ssl.SSLContext | None = None,
) -> None:
    """Give every listing of the directory at `address` to `take`, until cancelled. A connection that is lost
    is made again; until then the last listing holds."""
    name = f"directory at {address}"
    while True:
        stream = await connected(name, address, secret, tls, DIRECTORY)
        try:
            await exchange(stream, report, Listing, take)
        finally:
            await trio.aclose_forcefully(stream)
        logger.warning("the connection to the %s was lost; the engines it listed stay in use", name)
        await trio.sleep(AGAIN_S)
