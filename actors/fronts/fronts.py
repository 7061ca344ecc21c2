"""The fronts of a cluster: the servers that face its clients, this one among them.

Each announces itself in the cluster's directory, with its tag and the address at which it takes what others
relay to it, as soon as it can answer. What a client names by an id with another front's tag only that front
has. A front that is listed no more counts for some seconds yet, for the directory may have begun anew and not
have heard of it; then its ids are as unknown as any, and what is relayed to it is given up. That is given up
sooner where it does not answer us, either: it hangs. While the directory cannot be reached, the last listing
holds.

Knows nothing of HTTP. Read next: `listener.py` for what comes in, `actors/http/fronts/relaying.py` for what
goes out.
"""

from __future__ import annotations

import hmac
import logging
import ssl
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

import trio

from ...protocols.server.front_tags import tag_of
from ..config.engine import ProcessConfig
from ..config.validation import HostPort, read_host_port
from ..errors import ConfigError
from ..nodes.connecting import AGAIN_S, connect_once, connected
from ..nodes.directory import ListedFront, Listing, Report, exchange
from ..nodes.entrance import Entrance
from ..nodes.handshake import DIRECTORY, FRONTS, HandshakeError, read_secret
from ..nodes.tls import tls_context
from ..relay.connections import ServerGoneError, is_refused_by_all, notice_loss, socket_of
from .listener import FrontListener

logger = logging.getLogger(__name__)

FORGET_S: Final = 30.0
"""How long a front counts that is not listed any more: a directory that begins anew hears of all within a few
seconds."""
_CONNECT_S: Final = 2.0
_CHECK_EVERY_S: Final = 1.0
_MAX_PENDING: Final = 256
"""Connections of others that have not proved who they are: as after a restart of a load balancer, when all
live sessions are resumed at once."""
_MAX_RELAYS: Final = 65_536
"""Connections of others; the process' limit of descriptors is lower."""
_ANYWHERE: Final = frozenset({"0.0.0.0", "::"})
"""Where a server listens at every address."""


class Front:
    """Another one."""

    def __init__(self, listed: ListedFront, secret: bytes, tls: ssl.SSLContext | None) -> None:
        self.tag = listed.tag
        self.address = read_host_port("front_listen", listed.address)
        self.unlisted_at: float | None = None
        """Since when the directory has not listed it; None: it does."""
        self._secret = secret
        self._tls = tls
        self._relays: set[trio.CancelScope] = set()

    def is_forgotten(self, now: float) -> bool:
        """Whether it counts no more."""
        return self.unlisted_at is not None and now - self.unlisted_at >= FORGET_S

    async def open(self) -> trio.abc.Stream:
        """A connection, on which the front has just proved who it is and that it lives. Raises
        ServerGoneError."""
        try:
            with trio.fail_after(_CONNECT_S):
                stream = await connect_once(self.address, self._secret, self._tls, FRONTS)
        except (OSError, trio.TooSlowError, trio.BrokenResourceError, HandshakeError) as error:
            logger.warning("the front at %s cannot be reached: %s", self.address, str(error) or "too slow")
            gone = ServerGoneError(f"cannot be reached: {str(error) or 'too slow'}")
            gone.is_refused = is_refused_by_all(error)
            raise gone from error
        notice_loss(stream)
        return stream

    @contextmanager
    def relaying(self) -> Iterator[trio.CancelScope]:
        """Something is relayed to it meanwhile; the scope is cancelled where the front is forgotten."""
        with trio.CancelScope() as scope:
            self._relays.add(scope)
            try:
                yield scope
            finally:
                self._relays.discard(scope)

    async def check(self) -> None:
        """Give up what is relayed to it where it cannot be reached now."""
        try:
            stream = await self.open()
        except ServerGoneError:
            self.give_up()
        else:
            await trio.aclose_forcefully(stream)

    @property
    def is_relaying(self) -> bool:
        """Whether anything is relayed to it."""
        return bool(self._relays)

    def give_up(self) -> None:
        """Cancel what is relayed to it."""
        for scope in tuple(self._relays):
            scope.cancel()


class Fronts:
    """All of them, as one of them knows them. Start `run` once it can answer."""

    def __init__(self, config: ProcessConfig, tag: str) -> None:
        """`tag` is this front's. Raises ConfigError for the secret and the certificates."""
        assert config.engine_secret_file is not None, "checked with the address"
        self.tag = tag
        self._secret = read_secret("engine_secret_file", config.engine_secret_file)
        files = config.engine_tls_cert, config.engine_tls_key, config.engine_tls_ca
        self._tls = tls_context(*files, prefix="engine-tls", is_server=False)
        self.entrance = Entrance(
            self._secret,
            tls_context(*files, prefix="engine-tls", is_server=True),
            FRONTS,
            max_pending=_MAX_PENDING,
            max_callers=_MAX_RELAYS,
            log=logging.DEBUG,
        )
        """Where others come in."""
        self.caller_secret = hmac.digest(self._secret, b"callers of fronts", "sha256").hex()
        """What fronts sign with whom they relay for (`protocols/server/signed_caller.py`)."""
        self._directory = read_host_port("cluster", config.cluster)
        self._listen = (
            read_host_port("front_listen", config.front_listen, lowest_port=0)
            if config.front_listen
            else None
        )
        self._others: dict[str, Front] = {}
        self._announced: ListedFront | None = None
        self._has_twin = False
        self._is_listed = trio.Event()

    def elsewhere(self, name: str | None) -> Front | None:
        """The other front that has what an id names; None where it is this one, or none that is known."""
        front = None if name is None else self._others.get(tag_of(name))
        return None if front is None or front.is_forgotten(trio.current_time()) else front

    def share(self, bound: int) -> int:
        """This front's part of a bound that holds for all together; one at least.

        The parts of all fronts add up to the bound, unless there are more fronts than it has.
        """
        now = trio.current_time()
        tags = sorted([self.tag, *(tag for tag, each in self._others.items() if not each.is_forgotten(now))])
        return max(1, bound // len(tags) + (tags.index(self.tag) < bound % len(tags)))

    @property
    def num_others(self) -> int:
        """How many others there are."""
        now = trio.current_time()
        return sum(not each.is_forgotten(now) for each in self._others.values())

    async def run(
        self, listener: FrontListener, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Announce this front, follow the directory's listings, and serve at `listener`; until cancelled.

        `started` once the directory lists it. Raises AddressError.
        """
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._follow, listener, nursery)
            nursery.start_soon(self._check_unlisted)
            await self._is_listed.wait()
            task_status.started()

    async def _check_unlisted(self) -> None:
        """Find out which of the fronts that are not listed hang."""
        while True:
            await trio.sleep(_CHECK_EVERY_S)
            async with trio.open_nursery() as nursery:
                for front in self._others.values():
                    if front.unlisted_at is not None and front.is_relaying:
                        nursery.start_soon(front.check)

    async def _follow(self, listener: FrontListener, nursery: trio.Nursery) -> None:
        name = f"directory at {self._directory}"
        while True:
            stream = await connected(name, self._directory, self._secret, self._tls, DIRECTORY)
            try:
                if self._announced is None:
                    ours = HostPort(socket_of(stream).getsockname()[0], 0)
                    port = listener.open(self._listen or ours)
                    nursery.start_soon(listener.run)
                    self._announced = ListedFront(self.tag, str(self._address(ours.host, port)))
                    logger.info("other fronts reach this one, %s, at %s", self.tag, self._announced.address)
                report = Report(front=self._announced)
                await exchange(stream, lambda report=report: report, Listing, self.take)  # type: ignore[misc]
            finally:
                await trio.aclose_forcefully(stream)
            logger.warning("the connection to the %s was lost; the fronts it listed stay known", name)
            await trio.sleep(AGAIN_S)

    def _address(self, ours: str, port: int) -> HostPort:
        """Where others reach this one; `ours` is the address by which it reaches the directory."""
        is_any = self._listen is None or self._listen.host in _ANYWHERE
        return HostPort(ours if is_any or self._listen is None else self._listen.host, port)

    def take(self, listing: Listing) -> None:
        """These are the fronts by now."""
        now = trio.current_time()
        listed = {each.tag: each for each in listing.fronts}  # of two with one tag the newer one
        if (ours := listed.pop(self.tag, None)) is not None:
            self._is_listed.set()
            self._note_twin(ours)
        for tag, each in listed.items():
            known = self._others.get(tag)
            if known is None or str(known.address) != each.address:
                try:
                    self._others[tag] = Front(each, self._secret, self._tls)
                except ConfigError as error:
                    logger.error("the directory lists a front that cannot be used: %s", error)
                    continue
                logger.info("the front %s of the cluster is at %s", tag, each.address)
                if known is not None:
                    known.give_up()
            else:
                known.unlisted_at = None
        self._forget(self._others.keys() - listed.keys(), now)

    def _note_twin(self, listed: ListedFront) -> None:
        """Log where the front that has this one's tag is another one."""
        has_twin = self._announced is not None and listed.address != self._announced.address
        if has_twin and not self._has_twin:
            logger.error(
                "the front at %s has the tag of this one, %s, as its --response-store file is a copy; others "
                "do not find what this front has until one of the two is started with another file",
                listed.address,
                self.tag,
            )
        self._has_twin = has_twin

    def _forget(self, tags: Iterable[str], now: float) -> None:
        """Those that are not listed."""
        for tag in tags:
            front = self._others[tag]
            if front.unlisted_at is None:
                front.unlisted_at = now
                logger.info("the front %s at %s is not listed any more", tag, front.address)
            elif front.is_forgotten(now):
                del self._others[tag]
                front.give_up()
