"""Composes a server and runs it: load models, start actors, listen, and on a stop signal drain and leave.

Everything is made here and handed down; nothing below knows how it was configured. Read
`actors/http/routes.py` and `actors/http/websocket.py` for what clients see, `actors/engine/engine.py` for
what a model is made of.
"""

from __future__ import annotations

import gc
import logging
import socket
import time
from collections.abc import Callable
from functools import partial

import trio
from starlette.routing import Router

from ..media.decode import DecodeLimits
from ..media.voice_activity import VoiceActivityModel
from .config import FileConfig, ServerConfig
from .http.connections import AsgiApp, open_listener, serve_connections
from .http.routes import Gate, not_found, routes
from .http.service import ServedModel, Service
from .http.websocket import realtime_route
from .media import MediaActor, MediaConfig, MediaHandle
from .media_budget import MediaBudget
from .metrics import Metrics
from .models import LoadedModel, load_model
from .text.generation import TextModel
from .text.prompts import MediaLimits, Prompter

logger = logging.getLogger(__name__)

_CLOSE_GRACE_S = 3.0
"""After draining, how long connections may take to say goodbye."""


class AddressError(OSError):
    """The address cannot be listened on; the message is one line for a person."""


async def serve(
    config: ServerConfig,
    *,
    stop: trio.Event,
    on_ready: Callable[[str], None] = lambda _: None,
    task_status: trio.TaskStatus[Service] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until `stop` is set, then drain and return.

    `on_ready` gets the base URL when every model can take work. Raises AddressError and ModelLoadError before
    that. Cancelling ends everything at once.
    """
    listener = _listen(config)
    try:
        url = _url(listener)
        activity = await trio.to_thread.run_sync(VoiceActivityModel)
        metrics = Metrics()
        media = MediaActor(_media_config(config))
        budget = MediaBudget(max_bytes=config.files.media_bytes)
        async with trio.open_nursery() as actors:
            await actors.start(media.run)
            models = {}
            for name, model in zip(config.public_names, config.models, strict=True):
                loaded = await _start_model(actors, name, model, config, activity)
                text = _text_model(loaded, config.files, media.handle, budget)
                models[name] = ServedModel(name, loaded.engine, int(time.time()), loaded.speech, text)
                metrics.add_engine(name, models[name].engine.statistics)
            service = Service(config, models, media.handle, budget, activity, metrics)
            actors.start_soon(metrics.watch_loop)
            await actors.start(service.sessions.run)
            async with trio.open_nursery() as connections:
                closed = trio.Event()
                connections.start_soon(_listen_until, closed, service, listener)
                task_status.started(service)
                # What the models brought stays. Looking through it at each full collection holds the loop
                # for tens of milliseconds.
                gc.collect()
                gc.freeze()
                on_ready(url)
                await stop.wait()
                await _drain(service, config.listen.drain_s)
                closed.set()  # answers on their way have the grace time to arrive
            actors.cancel_scope.cancel()
    finally:
        listener.close()


def application(service: Service) -> AsgiApp:
    """The ASGI application of a service."""
    found = routes(service)
    router = Router([*found, realtime_route(service)], default=not_found, redirect_slashes=False)
    return Gate(router, service, frozenset(route.path for route in found))


async def _listen_until(closed: trio.Event, service: Service, listener: socket.socket) -> None:
    await serve_connections(
        application(service),
        listener,
        max_message_bytes=service.config.realtime.max_message_bytes,
        send_timeout_s=service.config.listen.send_timeout_s,
        stop=closed,
        grace_s=_CLOSE_GRACE_S,
    )


async def _start_model(
    actors: trio.Nursery, name: str, model: str, config: ServerConfig, activity: VoiceActivityModel
) -> LoadedModel:
    started = time.monotonic()
    work = partial(load_model, name, model, config.engine, activity, max_pixels=config.files.max_image_pixels)
    loaded = await trio.to_thread.run_sync(work)
    await actors.start(loaded.engine.run)
    logger.info("%s: ready after %.1f s", name, time.monotonic() - started)
    return loaded


def _text_model(
    loaded: LoadedModel, files: FileConfig, media: MediaHandle, budget: MediaBudget
) -> TextModel | None:
    if loaded.prompts is None:
        return None
    limits = MediaLimits(
        max_items=files.max_media_items,
        max_clip_s=files.max_clip_s,
        max_image_pixels=files.max_image_pixels or None,
    )
    prompter = Prompter(loaded.prompts, media, budget=budget, limits=limits)
    return TextModel(loaded.name, loaded.engine, prompter)


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
