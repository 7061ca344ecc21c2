"""A cluster whose engines run in this process: found, lost, replaced, drained; with real sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pytest
import trio
from sensorium.actors.cluster.cluster import Cluster, LostEngineError
from sensorium.actors.cluster.directory import Directory, directory_listener
from sensorium.actors.config.cluster import ClusterConfig
from sensorium.actors.config.engine import ProcessConfig
from sensorium.actors.config.server import ServerConfig
from sensorium.actors.config.validation import HostPort, read_host_port
from sensorium.actors.errors import ConfigError
from sensorium.actors.inference.engine import Engine
from sensorium.actors.nodes.directory import ListedEngine, Listing, Report, SeenEngine, look_up
from sensorium.actors.nodes.server import run_node
from sensorium.actors.replicas.discovered import DiscoveredEngines
from sensorium.actors.worker_config import Orders
from sensorium.engine.models.info import ModelInfo
from sensorium.protocols.engine.histograms import Distribution
from sensorium.protocols.errors import ModelLoadError
from support.cutting_proxy import CuttingProxy
from support.fake_engine import make_fake_engine, request, run_whole
from support.fake_process import orders
from support.fake_runner import INFO, answer_alone

SECRET = b"0123456789abcdef"
NAME = INFO.name


@dataclass(frozen=True)
class Opened:
    engine: Engine
    info: ModelInfo


@dataclass
class LocalEngine:
    """See `LaunchedEngine`: a node of this process, reached through a proxy that can be cut."""

    proxy: CuttingProxy | None = None
    is_started: trio.Event = field(default_factory=trio.Event)
    is_stopped: trio.Event = field(default_factory=trio.Event)
    has_ended: trio.Event = field(default_factory=trio.Event)
    error: Exception | None = None

    async def started(self) -> str:
        if self.error is not None:
            raise self.error
        await self.is_started.wait()
        assert self.proxy is not None
        return self.proxy.url.removeprefix("http://")

    async def ended(self) -> str:
        await self.has_ended.wait()
        return "with status 0"

    async def stop(self, drain_s: float) -> None:
        self.is_stopped.set()
        await self.has_ended.wait()


class LocalLauncher:
    """See `Launcher`."""

    def __init__(self) -> None:
        self.engines: list[LocalEngine] = []
        self.errors: list[Exception] = []

    @asynccontextmanager
    async def launched(self) -> AsyncIterator[LocalEngine]:
        engine = LocalEngine()
        self.engines.append(engine)
        if self.errors:
            engine.error = self.errors.pop(0)
            yield engine
            return
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._run, engine)
            yield engine
            nursery.cancel_scope.cancel()
        if engine.proxy is not None:
            engine.proxy.close()

    async def _run(self, engine: LocalEngine) -> None:
        def announce(where: str) -> None:
            engine.proxy = CuttingProxy(read_host_port("listen", where).port)
            engine.is_started.set()

        def open_next(_: Orders, __: Sequence[Opened]) -> Opened:
            return Opened(make_fake_engine(), replace(INFO, name=NAME))

        await run_node(
            orders("fake"),
            HostPort("127.0.0.1", 0),
            SECRET,
            open_next,
            stop=engine.is_stopped,
            drain_s=0.0,
            on_ready=announce,
        )
        engine.has_ended.set()


@dataclass
class Running:
    cluster: Cluster
    launcher: LocalLauncher
    directory: Directory
    address: HostPort
    stop: trio.Event
    nursery: trio.Nursery


@asynccontextmanager
async def running(launcher: LocalLauncher | None = None, **fields: float) -> AsyncIterator[Running]:
    config = ClusterConfig(max_replicas=3, lost_s=2.0, **fields)  # type: ignore[arg-type]
    launcher, directory, stop = launcher or LocalLauncher(), Directory([NAME], SECRET), trio.Event()
    cluster = Cluster(launcher, directory, config, drain_s=0.1)
    async with trio.open_nursery() as nursery:
        address = await nursery.start(directory.run, directory_listener(HostPort("127.0.0.1", 0)))
        await nursery.start(cluster.run, stop)
        yield Running(cluster, launcher, directory, address, stop, nursery)
        nursery.cancel_scope.cancel()


def front_config(tmp_path: Path, address: HostPort) -> ServerConfig:
    (tmp_path / "secret").write_bytes(SECRET)
    process = ProcessConfig(cluster=str(address), engine_secret_file=tmp_path / "secret")
    return ServerConfig(models=(NAME,), process=process)


async def front(tmp_path: Path, running: Running) -> DiscoveredEngines:
    """A server's engines, ready."""
    engines = DiscoveredEngines(front_config(tmp_path, running.address))
    with trio.fail_after(30):
        await running.nursery.start(engines.run)
    engines.set_info(0, INFO)
    return engines


async def until(condition: Callable[[], bool]) -> None:
    with trio.fail_after(30):
        while not condition():  # noqa: ASYNC110 (of connections)
            await trio.sleep(0.01)


async def ask(engines: DiscoveredEngines, name: str) -> None:
    with trio.fail_after(30):
        answer = await run_whole(engines.engines[0], request(name))
    assert answer.token_ids == answer_alone(request(name))[0]


async def test_any_number_of_servers_find_all_engines(tmp_path: Path) -> None:
    async with running(min_replicas=2) as cluster:
        fronts = [await front(tmp_path, cluster) for _ in range(2)]
        for number, each in enumerate(fronts):
            (engine,) = each.engines
            await until(lambda engine=engine: len(engine.available()) == 2)  # type: ignore[misc]
            for name in range(4):
                await ask(each, f"{number} {name}")
            assert [engine.router.num_placed(index) for index in range(2)] == [2, 2]
        await until(lambda: cluster.directory.num_servers == 2)


async def test_an_engine_that_no_server_can_use_is_replaced(tmp_path: Path) -> None:
    """Its process runs on: nothing but what servers see tells that it is lost."""
    async with running(min_replicas=2) as cluster:
        engines = await front(tmp_path, cluster)
        (engine,) = engines.engines
        await until(lambda: len(engine.available()) == 2)
        lost = cluster.launcher.engines[0].proxy
        assert lost is not None
        lost.stall()
        await until(lambda: len(engine.available()) == 1)
        await ask(engines, "meanwhile")
        await until(lambda: len(cluster.launcher.engines) == 3 and len(engine.available()) == 2)
        await ask(engines, "after")
        assert len(engines.processes) <= 3, "a slot that is free is taken again"


async def test_an_engine_that_one_server_can_use_is_not_lost(tmp_path: Path) -> None:
    async with running() as cluster:
        engines = await front(tmp_path, cluster)
        blind: list[Listing] = []

        def report() -> Report:
            """As of a server that cannot reach any."""
            listed = blind[-1].engines if blind else ()
            return Report(tuple(SeenEngine(each.address, 99.0, 0, Distribution()) for each in listed))

        cluster.nursery.start_soon(look_up, cluster.address, SECRET, blind.append, report)
        await until(lambda: len(blind) >= 4)
        (engine,) = blind[-1].engines
        assert sorted(each.unusable_s for each in cluster.directory.seen(engine.address)) == [0.0, 99.0]
        assert len(cluster.launcher.engines) == 1
        await ask(engines, "a")


async def test_an_engine_whose_process_ends_is_replaced_at_once(tmp_path: Path) -> None:
    async with running() as cluster:
        engines = await front(tmp_path, cluster)
        await ask(engines, "a")
        cluster.launcher.engines[0].is_stopped.set()
        await until(lambda: len(cluster.launcher.engines) == 2)
        await until(lambda: bool(engines.engines[0].available()))
        await ask(engines, "b")


async def test_servers_go_on_without_the_directory(tmp_path: Path) -> None:
    async with running() as cluster:
        proxy = CuttingProxy(cluster.address.port)
        through = replace(cluster, address=read_host_port("engines", proxy.url.removeprefix("http://")))
        engines = await front(tmp_path, through)
        await until(lambda: cluster.directory.num_servers == 1)
        proxy.refusing = True
        proxy.cut()
        await until(lambda: cluster.directory.num_servers == 0)
        await ask(engines, "a")
        proxy.refusing = False
        await until(lambda: cluster.directory.num_servers == 1)
        proxy.close()


async def test_a_wrong_secret_gets_no_list(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with running() as cluster:
        found: list[Listing] = []
        cluster.nursery.start_soon(
            look_up, cluster.address, b"another secret of that size", found.append, lambda: Report(())
        )
        await until(lambda: "its secret is another one; it is tried again" in caplog.text)
        assert not found
        assert cluster.directory.num_servers == 0


async def test_the_end_drains_every_engine(tmp_path: Path) -> None:
    async with running(min_replicas=2) as cluster:
        await front(tmp_path, cluster)
        await until(lambda: cluster.cluster.num_ready == 2)
        cluster.stop.set()
        await until(lambda: all(each.is_stopped.is_set() for each in cluster.launcher.engines))
        await until(lambda: cluster.cluster.num_ready == 0)


async def test_a_start_that_fails_is_tried_again_but_not_what_cannot_be_loaded() -> None:
    launcher = LocalLauncher()
    launcher.errors = [LostEngineError("the machine is gone")]
    async with running(launcher) as cluster:
        assert cluster.cluster.num_ready == 1
        assert len(launcher.engines) == 2
    launcher = LocalLauncher()
    launcher.errors = [ModelLoadError("fake: no such folder")]
    with pytest.RaisesGroup(pytest.RaisesExc(ModelLoadError), flatten_subgroups=True):
        async with running(launcher):
            pytest.fail("it cannot be ready")


async def test_a_change_is_listed_at_once() -> None:
    directory, found = Directory([NAME], SECRET), list[Listing]()
    async with trio.open_nursery() as nursery:
        address = await nursery.start(directory.run, directory_listener(HostPort("127.0.0.1", 0)))
        nursery.start_soon(partial(look_up, address, SECRET, found.append, lambda: Report(())))
        await until(lambda: bool(found))
        for state in ("ready", "draining"):
            engines = (ListedEngine("10.0.0.2:9000", state),)
            directory.show(engines)
            await until(lambda engines=engines: found[-1] == Listing((NAME,), engines))  # type: ignore[misc]
        nursery.cancel_scope.cancel()


def test_what_is_not_allowed_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--max-replicas is 1 and --min-replicas 2; allowed: 2 or more"):
        ClusterConfig(min_replicas=2)
    with pytest.raises(ConfigError, match="--cluster is 'nowhere'; allowed: HOST:PORT"):
        ProcessConfig(cluster="nowhere", engine_secret_file=tmp_path)
    with pytest.raises(ConfigError, match="--cluster needs --engine-secret-file"):
        ProcessConfig(cluster="10.0.0.1:9100")
    with pytest.raises(ConfigError, match="--engines and --cluster are both given"):
        ProcessConfig(cluster="10.0.0.1:9100", engines=("10.0.0.2:9000",), engine_secret_file=tmp_path)
