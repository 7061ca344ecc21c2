"""Composes a server and runs it: load models, start actors, listen, and on a stop signal drain and leave.

Everything is made here and handed down; nothing below knows how it was configured. Read
`actors/http/routes.py` and `actors/http/websocket.py` for what clients see, `actors/engine/engine.py` for
what a model is made of.
"""

from __future__ import annotations

import gc
import logging
import socket
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import trio
from starlette.routing import Router

from ..engine.models.memory import MemoryPlan
from ..media.decode import DecodeLimits
from ..media.voice_activity import VoiceActivityModel
from ..protocols.errors import DeviceLostError
from .config import ServerConfig
from .engine.engine import Engine
from .http.access import AccessLog
from .http.door import Door
from .http.keys import ApiKeys
from .http.routes import Gate, not_found, routes
from .http.service import ServedModel, Service
from .http.websocket import realtime_route
from .kernel.nursery import first_error
from .live.hearing import VoiceActivityActor
from .media import MediaActor, MediaConfig, MediaHandle
from .media_budget import MediaBudget
from .metrics import Metrics
from .models import LoadedModel, load_model
from .option_checks import AddressError
from .text.generation import TextModel
from .text.prompts import MediaLimits, Prompter
from .wire.guard import ConnectionLimits, Guard, connection_limits
from .wire.listening import open_listener, serve_connections
from .wire.websocket import AsgiApp

logger = logging.getLogger(__name__)

_CLOSE_GRACE_S = 1.0
"""After draining, how long connections may take to say goodbye."""
_SWITCH_INTERVAL_S = 0.001
"""How long a thread that runs Python may keep others from it (Python's default: 5 ms). The device's thread
gives it up in each operation and then needs it back. Measured in `docs/performance.md` (24 streams)."""


async def serve(
    config: ServerConfig,
    *,
    stop: trio.Event,
    on_ready: Callable[[str], None] = lambda _: None,
    task_status: trio.TaskStatus[Service] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until `stop` is set, then drain and return.

    `on_ready` gets the base URL when every model can take work. Raises ConfigError, AddressError and
    ModelLoadError before that, and DeviceLostError, after draining, when a device does nothing more for this
    process. Cancelling ends everything at once.
    """
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    engines = _Engines(stop)
    keys = ApiKeys(config.listen)
    listener = _listen(config)
    url, door = _url(listener), Door()
    try:
        async with trio.open_nursery() as actors:
            async with trio.open_nursery() as connections:
                closed = trio.Event()
                guard = Guard(_connection_limits(config))
                connections.start_soon(_listen_until, closed, door, config, listener, guard)
                service = await _load(config, keys, engines, actors)
                service.metrics.add_connections(lambda: guard.statistics)
                door.open(application(service))
                task_status.started(service)
                # What the models brought stays. Looking through it at each full collection holds the loop
                # for tens of milliseconds.
                gc.collect()
                gc.freeze()
                on_ready(url)
                await stop.wait()
                await _drain(service, config.listen.drain_s)
                service.give_up_requests()
                closed.set()  # answers on their way have the grace time to arrive
            actors.cancel_scope.cancel()
        if engines.lost is not None:
            raise engines.lost
    finally:
        listener.close()
        gc.unfreeze()


async def _load(config: ServerConfig, keys: ApiKeys, engines: _Engines, actors: trio.Nursery) -> Service:
    """Start everything that requests need, in `actors`."""
    activity = await trio.to_thread.run_sync(VoiceActivityModel, abandon_on_cancel=True)
    metrics = Metrics()
    media = MediaActor(_media_config(config))
    budget = MediaBudget(max_bytes=config.files.media_bytes)
    await actors.start(media.run)
    metrics.add_media(media.handle.statistics)
    models: dict[str, ServedModel] = {}
    plans: list[MemoryPlan] = []
    for name, model in zip(config.public_names, config.models, strict=True):
        loaded = await _start_engine(actors, engines, name, model, config, activity, plans)
        plans.append(loaded.memory)
        metrics.add_engine(name, loaded.engine.statistics, loaded.engine.inboxes)
        text = _text_model(loaded, config, media.handle, budget)
        models[name] = ServedModel(name, loaded.engine, int(time.time()), loaded.speech, text)
    hearing = VoiceActivityActor(activity)
    await actors.start(hearing.run)
    service = Service(config, models, media.handle, budget, hearing.open_ear, metrics, keys)
    actors.start_soon(metrics.watch_loop)
    actors.start_soon(keys.watch)
    await actors.start(service.sessions.run)
    return service


def application(service: Service) -> AsgiApp:
    """The ASGI application of a service."""
    found = routes(service)
    router = Router([*found, realtime_route(service)], default=not_found, redirect_slashes=False)
    return Gate(router, service, frozenset(route.path for route in found))


async def _listen_until(
    closed: trio.Event, app: AsgiApp, config: ServerConfig, listener: socket.socket, guard: Guard
) -> None:
    await serve_connections(
        AccessLog(app, config.logs),
        listener,
        guard=guard,
        max_message_bytes=config.realtime.max_message_bytes,
        send_timeout_s=config.listen.send_timeout_s,
        stop=closed,
        grace_s=_CLOSE_GRACE_S,
    )


@dataclass(slots=True)
class _Engines:
    """Runs engines. One that loses its device stops the server: what others do is finished, and it leaves."""

    stop: trio.Event
    lost: DeviceLostError | None = None

    async def run(self, engine: Engine, *, task_status: trio.TaskStatus[None]) -> None:
        """Run one, `started` when it is ready; raises what its first start raised."""
        is_ready = False
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(engine.run)
                is_ready = True
                task_status.started()
        except* DeviceLostError as group:
            if not is_ready:
                raise
            error = first_error(group)
            assert isinstance(error, DeviceLostError)
            logger.critical("%s: %s; stopping, only a new process can use it", engine.name, error)
            self.lost = error
            self.stop.set()


async def _start_engine(
    actors: trio.Nursery,
    engines: _Engines,
    name: str,
    model: str,
    config: ServerConfig,
    activity: VoiceActivityModel,
    beside: Sequence[MemoryPlan],
) -> LoadedModel:
    started = time.monotonic()
    work = partial(
        load_model,
        name,
        model,
        config.engine_of(name),
        activity,
        max_pixels=config.files.max_image_pixels,
        beside=tuple(beside),
        num_to_come=len(config.models) - len(beside) - 1,
    )
    loaded = await trio.to_thread.run_sync(work, abandon_on_cancel=True)
    await actors.start(engines.run, loaded.engine)
    logger.info("%s: ready after %.1f s", name, time.monotonic() - started)
    return loaded


def _text_model(
    loaded: LoadedModel, config: ServerConfig, media: MediaHandle, budget: MediaBudget
) -> TextModel | None:
    if loaded.prompts is None:
        return None
    limits = MediaLimits(
        max_items=config.files.max_media_items,
        max_clip_s=config.files.max_clip_s,
        max_image_pixels=config.files.max_image_pixels or None,
    )
    prompter = Prompter(loaded.prompts, media, budget=budget, limits=limits)
    return TextModel(
        loaded.name, loaded.engine, prompter, num_ngram_drafts=config.engine_of(loaded.name).ngram_drafts
    )


async def _drain(service: Service, deadline_s: float) -> None:
    """Refuse new work, let turns and requests finish, for at most `deadline_s`."""
    service.is_draining = True
    logger.info("stopping: %d sessions, %d requests", len(service.sessions), service.num_requests)
    with trio.move_on_after(deadline_s):
        for session in service.sessions:
            await session.drain()
        await service.wait_quiet()


def _listen(config: ServerConfig) -> socket.socket:
    host, port = config.listen.host, config.listen.port
    try:
        return open_listener(host, port, send_timeout_s=config.listen.send_timeout_s)
    except OSError as error:
        raise AddressError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error


def _connection_limits(config: ServerConfig) -> ConnectionLimits:
    listen = config.listen
    return connection_limits(
        listen.max_connections, listen.max_connections_per_address, idle_s=listen.keep_alive_s
    )


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _media_config(config: ServerConfig) -> MediaConfig:
    files = config.files
    return MediaConfig(
        max_workers=files.decode_workers,
        max_waiting=files.max_requests,
        deadline_s=files.decode_timeout_s,
        limits=DecodeLimits(max_bytes=files.max_upload_bytes, max_seconds=files.max_audio_s),
    )
