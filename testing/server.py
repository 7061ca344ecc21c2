"""A real server in a thread: `actors/server.py` on a free port of 127.0.0.1, for the length of a block."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

import trio

from ..actors.config.server import (
    EngineConfig,
    FileConfig,
    ListenConfig,
    ProcessConfig,
    RealtimeConfig,
    ResponseConfig,
    ServerConfig,
)
from ..actors.http.service import Service
from ..actors.runtime.nursery import open_work
from ..actors.server import StartEngines, serve

START_S: Final = 300.0
"""Longest start: the C kernels are compiled once per machine."""
STOP_S: Final = 180.0


@dataclass(frozen=True)
class Server:
    """A running server, seen from another thread."""

    url: str
    service: Service
    token: trio.lowlevel.TrioToken
    stop: trio.Event
    thread: threading.Thread

    @property
    def api(self) -> str:
        """Base URL for OpenAI's clients."""
        return f"{self.url}/v1"

    @property
    def realtime(self) -> str:
        """URL of live sessions."""
        return f"ws{self.url.removeprefix('http')}/v1/realtime"

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self.url.rsplit(":", 1)[1])

    def run(self, function: Callable[[], object]) -> None:
        """Call `function` in the server's event loop."""
        trio.from_thread.run_sync(function, trio_token=self.token)


def make_config(
    *models: str,
    listen: ListenConfig | None = None,
    engine: EngineConfig | None = None,
    files: FileConfig | None = None,
    realtime: RealtimeConfig | None = None,
    process: ProcessConfig | None = None,
    responses: ResponseConfig | None = None,
) -> ServerConfig:
    """A small server: a free port, float32 on one thread, the engine in this process. `models` are embedded
    names, folders or Hugging Face ids; without any, `tiny-whisper`."""
    return ServerConfig(
        models=models or ("tiny-whisper",),
        listen=listen or ListenConfig(port=0, drain_s=5.0),
        engine=engine or EngineConfig(device="cpu", dtype="float32", num_threads=1),
        files=files or FileConfig(decode_workers=1),
        # Sessions whose client is gone end soon, so that tests can look at what is left.
        realtime=realtime or RealtimeConfig(resume_grace_s=1.0),
        process=process or ProcessConfig(engine_process="off"),  # tests can reach in
        responses=responses or ResponseConfig(),
    )


@contextmanager
def running_server(config: ServerConfig, *, start: StartEngines | None = None) -> Iterator[Server]:
    """Serve for the length of the block. What ends the server early is raised here.

    `start` gives other engines than those of the configuration's models.
    """
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

        async with open_work() as nursery:

            async def run(*, task_status: trio.TaskStatus[Service]) -> None:
                await serve(config, stop=stop, on_ready=announce, start=start, task_status=task_status)

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
