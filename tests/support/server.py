"""A real server for tests: `actors/server.py` on a free port of 127.0.0.1, in a thread of its own."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import trio
from sensorium.actors.config.server import (
    EngineConfig,
    FileConfig,
    ListenConfig,
    ProcessConfig,
    RealtimeConfig,
    ResponseConfig,
    ServerConfig,
)
from sensorium.actors.http.service import Service
from sensorium.actors.server import serve
from sensorium.actors.telemetry.loop_blocking import LoopHold
from sensorium.protocols.engine.statistics import EngineStatistics

START_S = 300.0
STOP_S = 180.0
MAX_HOLD_S = 0.05
"""Nobody may keep the loop longer, whatever a client sends. CPU time of the loop's own thread, so that a busy
machine changes little."""
NOTED_HOLD_S = 0.005
"""What we aim at; longer ones are printed."""


@dataclass
class Server:
    """A running server, seen from another thread."""

    url: str
    service: Service
    token: trio.lowlevel.TrioToken
    stop: trio.Event
    thread: threading.Thread
    errors: list[BaseException] = field(default_factory=list)

    @property
    def api(self) -> str:
        """Base URL for OpenAI clients."""
        return f"{self.url}/v1"

    @property
    def realtime(self) -> str:
        """URL of live sessions."""
        return f"ws{self.url.removeprefix('http')}/v1/realtime"

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self.url.rsplit(":", 1)[1])

    def statistics(self) -> EngineStatistics:
        """The first model's counters."""
        self.refresh()
        return next(iter(self.service.models.values())).engine.statistics()

    def is_quiet(self) -> bool:
        """Whether everything is back at its level without clients."""
        self.refresh()
        for model in self.service.models.values():
            now = model.engine.statistics()
            if now.num_waiting + now.num_running + now.num_cache_references:
                return False
            if now.num_free_blocks != now.num_total_blocks:
                return False
        return not self.service.sessions and not self.service.num_requests

    def wait_quiet(self, timeout_s: float = 180.0) -> None:
        """Return when nothing is held any more; AssertionError with the numbers otherwise."""
        wait_until(self.is_quiet, timeout_s=timeout_s, what=lambda: f"{self.statistics()} {self.service}")

    @contextmanager
    def free_loop(self) -> Iterator[None]:
        """AssertionError if tasks keep the loop longer than `MAX_HOLD_S` meanwhile: twice, or once for double
        that. Once may be the machine's, which counts its work on a large body's pages as ours."""
        hold = LoopHold(above_s=NOTED_HOLD_S)
        gc.collect()
        gc.freeze()  # a server's own process has none of what tests bring along, to be looked through
        self.run(lambda: trio.lowlevel.add_instrument(hold))
        try:
            yield
        finally:
            if self.thread.is_alive():
                self.run(lambda: trio.lowlevel.remove_instrument(hold))
        for each in hold.above:
            print(f"the loop was held for {1000 * each.seconds:.1f} ms by {each.task} ({each.waits_in})")
        assert hold.longest.seconds < 2 * MAX_HOLD_S, hold.longest
        assert sum(each.seconds >= MAX_HOLD_S for each in hold.above) < 2, hold.above

    @contextmanager
    def left_quiet(self) -> Iterator[None]:
        """AssertionError if the loop is held meanwhile, or anything else afterwards."""
        with self.free_loop():
            yield
        self.wait_quiet()

    def refresh(self) -> None:
        """Bring the engines' counters up to now."""
        trio.from_thread.run(self.service.refresh, trio_token=self.token)

    def run(self, function: Callable[[], object]) -> None:
        """Call `function` in the server's loop."""
        trio.from_thread.run_sync(function, trio_token=self.token)


def wait_until(
    condition: Callable[[], bool], *, timeout_s: float = 180.0, what: Callable[[], str] = lambda: ""
) -> None:
    """Poll until `condition` holds."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, what() or "timed out"
        time.sleep(0.01)


def make_config(
    *models: str,
    listen: ListenConfig | None = None,
    engine: EngineConfig | None = None,
    files: FileConfig | None = None,
    realtime: RealtimeConfig | None = None,
    process: ProcessConfig | None = None,
    responses: ResponseConfig | None = None,
) -> ServerConfig:
    """A configuration for tests: free port, one thread, float32."""
    return ServerConfig(
        models=models or ("tiny-whisper",),
        listen=listen or ListenConfig(port=0, drain_s=5.0),
        engine=engine or EngineConfig(device="cpu", dtype="float32", num_threads=1),
        files=files or FileConfig(decode_workers=1),
        # Clients that vanish are not waited for long: tests look at what is left.
        realtime=realtime or RealtimeConfig(resume_grace_s=1.0),
        process=process or ProcessConfig(engine_process="off"),  # so that tests can reach in
        responses=responses or ResponseConfig(),
    )


@contextmanager
def running_server(config: ServerConfig) -> Iterator[Server]:
    """Serve for the duration; every error of the server's is raised here."""
    started: list[Server] = []
    failed: list[BaseException] = []
    ready = threading.Event()

    async def main() -> None:
        stop = trio.Event()
        token = trio.lowlevel.current_trio_token()
        urls: list[str] = []
        announced = trio.Event()

        def announce(url: str) -> None:
            urls.append(url)
            announced.set()

        async with trio.open_nursery() as nursery:

            async def run(*, task_status: trio.TaskStatus[Service]) -> None:
                await serve(config, stop=stop, on_ready=announce, task_status=task_status)

            service = await nursery.start(run)
            await announced.wait()
            started.append(Server(urls[0], service, token, stop, thread))
            ready.set()

    def work() -> None:
        try:
            trio.run(main)
        except BaseException as error:
            failed.append(error)
        finally:
            ready.set()

    thread = threading.Thread(target=work, name="server under test", daemon=True)
    thread.start()
    assert ready.wait(START_S), "the server did not start"
    if failed:
        raise failed[0]
    server = started[0]
    try:
        yield server
    finally:
        with suppress(trio.RunFinishedError):  # it may have ended by itself
            server.run(server.stop.set)
        thread.join(STOP_S)
        assert not thread.is_alive(), "the server did not stop"
        if failed:
            raise failed[0]
