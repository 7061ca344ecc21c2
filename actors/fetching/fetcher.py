"""The one fetcher: an address that a client wrote → the bytes there, or a FetchError that says why not.

Every name is resolved once (`dns.py`), and the connection goes to an address that was vetted
(`actors/config/blocked_networks.py`): nothing resolves it again, whatever DNS says meanwhile. Each redirect
is a new address, vetted again. Time, bytes and redirects are bounded while they come; bodies are taken as
they are sent (nothing is unpacked, so nothing swells). Proxies of the environment are not used. HTTP itself
is `http_get.py`.
"""

from __future__ import annotations

import logging
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import httpx
import trio

from ...protocols.errors import FetchError
from ..config.fetching import FetchConfig
from ..config.urls import has_port, host_of, read_url
from ..runtime.byte_gatherer import gathered, gathering
from ..runtime.threads import in_thread
from .dns import Names
from .fair_slots import Places
from .http_get import BrokenError, Connections, Get, NoAddressError
from .local_files import read_local_file

logger = logging.getLogger(__name__)

_MAX_REDIRECTS: Final = 5
MAX_AT_ONCE: Final = 32
"""Files of all requests."""
_ATTEMPTS: Final = 3
_BACKOFF_S: Final = 0.25
"""Before the second attempt, doubled for each further one, less up to a half by chance."""
_MAX_WAIT_S: Final = 5.0
"""A host that asks to be left alone for longer is not asked again."""
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_WORTH_RETRYING: Final = frozenset({408, 425, 429, 500, 502, 503, 504})


@dataclass(slots=True)
class FetchStatistics:
    """Counters since start, and gauges now."""

    num_fetched: int = 0
    num_failed: int = 0
    """Ended in an error, also in ours; those that nobody waits for any more are counted nowhere."""
    num_retries: int = 0
    num_bytes: int = 0
    """Received, also of what failed."""
    num_running: int = 0
    num_waiting: int = 0


class _RetryableError(Exception):
    """It may work the next time; `final` is what is said when there is none."""

    def __init__(self, final: FetchError, *, wait_s: float = 0.0) -> None:
        super().__init__(final.message)
        self.final = final
        self.wait_s = wait_s


class Fetcher:
    """Fetches files for all requests of a server."""

    def __init__(self, config: FetchConfig, names: Names | None = None) -> None:
        """`names` resolves for others, too; one of its own if none is given."""
        self.config = config
        self._connections = Connections(names or Names(), config.networks)
        self._places = Places(MAX_AT_ONCE)
        self._reading = trio.CapacityLimiter(MAX_AT_ONCE)  # threads of its own: a disk may hang
        self._counted = FetchStatistics()

    async def fetch(self, url: str, take: Callable[[int], None], caller: str = "") -> bytes:
        """The bytes at an http:, https: or file: address; `caller` is who asks, empty where all are one.

        `take` is told of each piece's bytes before it is kept, and raises where there is no room.
        Raises FetchError; cancellation closes the connection.
        """
        try:
            data = await self._fetch(url, take, caller)
        except Exception:
            self._counted.num_failed += 1
            raise
        self._counted.num_fetched += 1
        return data

    def statistics(self) -> FetchStatistics:
        """Counters since start, and gauges now."""
        self._counted.num_running, self._counted.num_waiting = (
            self._places.num_taken,
            self._places.num_waiting,
        )
        return self._counted

    async def _fetch(self, url: str, take: Callable[[int], None], caller: str) -> bytes:
        if self.config.fetch_media == "off" and not url.startswith("file:"):
            raise FetchError("Addresses are not fetched here (--fetch-media off).", code="url_refused")
        async with self._places.taken(caller):
            try:
                with trio.fail_after(self.config.fetch_timeout_s):
                    if url.startswith("file:"):
                        return await self._read_file(url, take)
                    return await self._try(url, take, caller)
            except trio.TooSlowError:
                raise FetchError(
                    f"The file did not arrive within {self.config.fetch_timeout_s:g} s.", code="fetch_timeout"
                ) from None

    async def _read_file(self, url: str, take: Callable[[int], None]) -> bytes:
        read = partial(read_local_file, url, self.config.allowed_media_folder, self.config.max_fetch_bytes)
        data = await in_thread(read, abandon_on_cancel=True, limiter=self._reading)
        take(len(data))
        return data

    async def _try(self, url: str, take: Callable[[int], None], caller: str) -> bytes:
        """Again, where that is worth it; the time for all attempts is the caller's."""
        most = num_bytes = 0

        def take_more(count: int) -> None:
            """There is room for what an attempt before has brought."""
            nonlocal most, num_bytes
            num_bytes += count
            if num_bytes > most:
                take(num_bytes - most)
                most = num_bytes

        for attempt in range(_ATTEMPTS):
            num_bytes = 0
            try:
                return await self._follow(url, take_more, caller)
            except _RetryableError as error:
                if attempt == _ATTEMPTS - 1 or error.wait_s > _MAX_WAIT_S:
                    raise error.final from None
                self._counted.num_retries += 1
                pause = _BACKOFF_S * 2**attempt * random.uniform(0.5, 1.0)
                await trio.sleep(max(pause, error.wait_s))
        raise AssertionError("the last attempt raises")

    async def _follow(self, url: str, take: Callable[[int], None], caller: str) -> bytes:
        target = self._read(url)
        for _ in range(_MAX_REDIRECTS + 1):
            found = await self._get(target, take, caller)
            if isinstance(found, bytes):
                return found
            target = self._read(str(_joined(target, found)))
        raise FetchError(f"The address redirects more than {_MAX_REDIRECTS} times.", code="fetch_refused")

    def _read(self, url: str) -> httpx.URL:
        """The address in its parts. Raises FetchError."""
        target = read_url(url)
        if target is None:
            raise FetchError("The address cannot be read.", code="url_refused")
        if target.scheme not in ("http", "https") or not target.raw_host:
            raise FetchError("Only http: and https: addresses are fetched.", code="url_refused")
        if not has_port(target):
            raise FetchError("The address has a port that there is not.", code="url_refused")
        if target.userinfo:
            raise FetchError("An address with a user's name is not fetched.", code="url_refused")
        if not self.config.is_allowed_name(host_of(target).rstrip(".").lower()):
            raise FetchError("Files of that host are not fetched here.", code="url_refused")
        return target

    async def _get(self, target: httpx.URL, take: Callable[[int], None], caller: str) -> bytes | str:
        """The body, or where it is said to be."""
        try:
            async with self._connections.open(target, caller) as get:
                return await self._answer(get, take)
        except NoAddressError as error:
            raise FetchError(str(error), code="url_refused") from error
        except BrokenError as error:
            logger.info("fetching from %s failed: %r", host_of(target), error.__cause__ or error)
            raise _RetryableError(FetchError(str(error))) from error

    async def _answer(self, get: Get, take: Callable[[int], None]) -> bytes | str:
        head = await get.head()
        if head.status in _REDIRECTS and "location" in head.fields:
            return head.fields["location"]
        if head.status in _WORTH_RETRYING:
            final = FetchError(f"The host answered with status {head.status}.")
            raise _RetryableError(final, wait_s=_seconds(head.fields.get("retry-after", "")))
        if head.status != 200:
            raise FetchError(f"The host answered with status {head.status}.", code="fetch_refused")
        if head.fields.get("content-encoding", "identity").strip().lower() != "identity":
            raise FetchError(
                "The host compressed the file (Content-Encoding); only uncompressed files are accepted.",
                code="fetch_refused",
            )
        length = head.fields.get("content-length", "")
        if length.isdigit():
            self._check(int(length))
        body = gathering(length)

        def keep(piece: bytes) -> None:
            self._counted.num_bytes += len(piece)
            self._check(body.tell() + len(piece))
            take(len(piece))
            body.write(piece)

        await get.body(keep)
        return gathered(body)

    def _check(self, num_bytes: int) -> None:
        if num_bytes > self.config.max_fetch_bytes:
            raise FetchError(
                f"The file has more than {self.config.max_fetch_bytes:,} bytes.", code="file_too_large"
            )


def _joined(target: httpx.URL, location: str) -> httpx.URL:
    if any(not character.isprintable() or character in " \\" for character in location):
        raise FetchError("The address redirects to one that cannot be read.", code="fetch_refused")
    try:
        return target.join(location)
    except (httpx.InvalidURL, ValueError, UnicodeError):
        raise FetchError("The address redirects to one that cannot be read.", code="fetch_refused") from None


def _seconds(retry_after: str) -> float:
    """Of a header that gives them; a date is not waited for."""
    return float(retry_after) if re.fullmatch("[0-9]{1,4}", retry_after) else 0.0
