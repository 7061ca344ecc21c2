"""The SDK through a gateway in front of real servers: cuts, one that is drained, and one that is gone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import anyio
import pytest
from sensorium.actors.config.gateway import GatewayConfig
from sensorium.actors.config.server import ListenConfig, RealtimeConfig
from sensorium.client import AsyncClient, Client, Completed, Delta, Event, Reopened, Resumed
from support.both_loops import both_loops
from support.cutting_proxy import CuttingProxy, cutting_proxy
from support.gateways import running_gateway
from support.raw_socket import pcm, silence
from support.server import Server, make_config, running_server, wait_until

pytestmark = pytest.mark.slow

WAIT_S = 60.0
"""Longer than a busy machine takes for any one step."""


@dataclass
class Place:
    """Two servers behind a gateway, each reached by a way that can be cut."""

    url: str
    servers: list[Server]
    proxies: list[CuttingProxy]

    def holder(self) -> int:
        """Which server has the one live session."""
        wait_until(lambda: bool(self._holders()), timeout_s=WAIT_S)
        return self._holders()[0]

    def _holders(self) -> list[int]:
        return [i for i, server in enumerate(self.servers) if len(server.service.sessions)]

    def lose(self, number: int) -> None:
        """As if its machine was gone."""
        self.proxies[number].refusing = True
        self.proxies[number].cut()


@contextmanager
def two_servers(*, can_be_cut: bool) -> Iterator[Place]:
    with ExitStack() as stack:
        # A server that ends waits for clients that were cut off, as those of a lost one are to the end.
        config = make_config(
            listen=ListenConfig(port=0, drain_s=0.1 if can_be_cut else 60.0),
            realtime=RealtimeConfig(resume_grace_s=WAIT_S, release_delay="low"),
        )
        servers = [stack.enter_context(running_server(config)) for _ in range(2)]
        proxies = [stack.enter_context(cutting_proxy(server.port)) for server in servers if can_be_cut]
        urls = tuple(each.url for each in proxies or servers)
        gateway = GatewayConfig(servers=urls, health_interval_s=0.2, dead_after_s=WAIT_S)
        yield Place(stack.enter_context(running_gateway(gateway)), servers, proxies)


@pytest.fixture
def place() -> Iterator[Place]:
    with two_servers(can_be_cut=True) as found:
        yield found


def chunks(lights: bytes) -> list[bytes]:
    """The sentence twice, with pauses, in pieces of 100 ms."""
    audio = (pcm(lights) + silence(1.0)) * 2
    return [audio[start : start + 3_200] for start in range(0, len(audio), 3_200)]


def check(events: list[Event], num_turns: int, *, kinds: type[Event]) -> None:
    """Every turn is there once, whole; what came again is named."""
    finals = [event for event in events if isinstance(event, Completed)]
    assert [event.transcript for event in finals] == ["Set the kitchen lights to ninety percent."] * num_turns
    void = {name for event in events if isinstance(event, Reopened) for name in event.item_ids}
    for final in finals:
        assert final.item_id not in void
        deltas = [
            event.delta for event in events if isinstance(event, Delta) and event.item_id == final.item_id
        ]
        assert "".join(deltas) == final.transcript
    assert sum(isinstance(event, kinds) for event in events) == 1


def disturbed(parts: list[bytes], at: int, act: object) -> Iterator[bytes]:
    for number, part in enumerate(parts):
        if number == at:
            assert callable(act)
            act()
        yield part


def test_a_cut_session_goes_on_with_nothing_lost(place: Place, lights: bytes) -> None:
    parts = chunks(lights)
    with Client(place.url, timeout=WAIT_S) as client, client.realtime(sample_rate=16_000) as session:
        cut = disturbed(parts, len(parts) // 2 + 8, lambda: place.proxies[place.holder()].cut())
        events = list(session.transcribe(cut, speed=4.0))
    check(events, 2, kinds=Resumed)


@pytest.mark.parametrize("at", [8, 40])
def test_a_session_whose_server_is_gone_begins_again_elsewhere(place: Place, lights: bytes, at: int) -> None:
    parts = chunks(lights)
    with Client(place.url, timeout=WAIT_S) as client, client.realtime(sample_rate=16_000) as session:
        events = list(session.transcribe(disturbed(parts, at, lambda: place.lose(place.holder())), speed=4.0))
    check(events, 2, kinds=Reopened)


@both_loops
async def test_it_does_so_under_both_libraries(place: Place, lights: bytes) -> None:
    parts = chunks(lights)
    async with (
        AsyncClient(place.url, timeout=WAIT_S) as client,
        client.realtime(sample_rate=16_000) as session,
    ):
        lossy = disturbed(parts, 40, lambda: place.lose(place.holder()))
        with anyio.fail_after(3 * WAIT_S):
            events = [event async for event in session.transcribe(lossy, speed=4.0)]
    check(events, 2, kinds=Reopened)


def test_a_committed_turn_is_not_lost_with_its_server(place: Place, lights: bytes) -> None:
    with (
        Client(place.url, timeout=WAIT_S) as client,
        client.realtime(sample_rate=16_000, turn_detection=None) as session,
    ):
        for _ in range(2):
            session.send(pcm(lights))
            session.commit()
        place.lose(place.holder())
        session.send(pcm(lights))
        session.finish()
        events = list(session)
    check(events, 3, kinds=Reopened)


def test_a_drained_server_answers_what_it_has(lights: bytes) -> None:
    """SIGTERM in the middle of a turn: it is heard out there, and the next one is another server's."""
    parts = chunks(lights)
    with (
        two_servers(can_be_cut=False) as place,
        Client(place.url, timeout=WAIT_S) as client,
        client.realtime(sample_rate=16_000) as session,
    ):

        def drain() -> None:
            server = place.servers[place.holder()]
            server.run(server.stop.set)

        events = list(session.transcribe(disturbed(parts, 8, drain), speed=1.0))
    check(events, 2, kinds=Reopened)
