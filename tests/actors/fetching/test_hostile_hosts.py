"""Hosts that mean harm: each is refused by what it does, in time, and leads nowhere."""

from __future__ import annotations

import pytest
import trio
from sensorium.actors.config.fetching import FetchConfig
from sensorium.actors.fetching.dns import Names as Resolver
from sensorium.actors.fetching.fetcher import Fetcher
from sensorium.protocols.errors import FetchError
from support.file_host import answer, file_host
from support.hostile_hosts import ALLOWED, FORBIDDEN, GOOD, HostileHost, Names, hostile_hosts

pytestmark = pytest.mark.slow

CONFIG = FetchConfig(allowed_media_networks=(ALLOWED,), fetch_timeout_s=5.0, max_fetch_mib=1.0)


async def test_every_hostile_host_is_refused_and_a_good_one_is_not() -> None:
    fetcher = Fetcher(CONFIG, Resolver(Names()))
    wrong: list[str] = []

    async def fetch(each: HostileHost, places: trio.CapacityLimiter) -> None:
        async with places:
            try:
                await fetcher.fetch(each.url, lambda _: None)
                end = GOOD
            except FetchError as error:
                end = error.code
        if end not in each.ends:
            wrong.append(f"{each.name}: {end}, not {sorted(each.ends)}")

    with trio.fail_after(120):
        async with file_host() as host, file_host((FORBIDDEN, host.port)) as inside:
            places = trio.CapacityLimiter(16)
            async with trio.open_nursery() as nursery:
                for each in hostile_hosts(host, seed=3):
                    nursery.start_soon(fetch, each, places)
            host.answers["/good"] = answer(b"here")
            assert await fetcher.fetch(host.url("/good"), lambda _: None) == b"here"
    assert wrong == []
    assert inside.num_connections == 0
