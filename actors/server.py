"""Composes a server and runs it: load models, start actors, listen, and on a stop signal drain and leave.

Everything is made here and handed down; nothing below knows how it was configured. Read
`actors/http/routes.py` and `actors/http/realtime/websocket.py` for what clients see,
`actors/inference/engine.py` for what a model is made of.
"""

from __future__ import annotations

import errno
import logging
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import trio
from starlette.routing import Router

from ..engine.models.prompts import PromptBuilder
from ..media.speech.voice_activity import VoiceActivityModel
from ..protocols.server.front_tags import new_tag
from .config.network import ListenConfig
from .config.responses import ResponseConfig
from .config.server import ServerConfig
from .engines import Engines
from .errors import AddressError
from .fetching.dns import Names
from .fetching.fetcher import Fetcher
from .first_steps import first_steps
from .fronts.fronts import Fronts
from .fronts.listener import FrontListener, proxies_of
from .http.access_log import AccessLog, RefusalLog
from .http.api_keys import ApiKeys
from .http.pending_auth import PendingAuth
from .http.responses.sqlite_store import ResponseFile
from .http.responses.store import ResponseStore
from .http.routes import Gate, not_found, routes, sockets
from .http.service import ServedModel, Service
from .http.startup_app import HealthApp, StartupApp
from .inference.client import EngineClient
from .live.container_decoder import SoundActor
from .live.voice_activity import VoiceActivityActor
from .media_decoding.cache import MediaCache
from .media_decoding.memory_budget import MediaBudget
from .media_decoding.worker_pool import DecoderPool, MediaConfig
from .replicas.processes import ModelProcesses
from .served_model import LoadedModel
from .telemetry.collectors import FETCHES, MEDIA, MEDIA_CACHE, POSTING, SOUND
from .telemetry.metrics import Metrics
from .text.generation import TextModel
from .text.media_opening import FILES_AT_A_TIME, MediaLimits, media_bytes
from .text.media_urls import AddressBook
from .text.prompts import Prompter
from .transport.connection_limits import ConnectionLimits, Guard, connection_limits
from .transport.listener import open_listener, serve_connections
from .transport.refusals import Refusals
from .transport.trusted_proxies import TrustedProxies
from .transport.websocket import AsgiApp

logger = logging.getLogger(__name__)

_CLOSE_GRACE_S = 1.0
"""After draining, how long connections may take to say goodbye."""
_OF_PROBES = ConnectionLimits(max_connections=16, max_per_address=16, idle_s=5.0)
"""At the port for nothing but probes."""
_SWITCH_INTERVAL_S = 0.001
"""How long a thread that runs Python may keep others from it (Python's default: 5 ms). The device's thread
gives it up in each operation and then needs it back. Measured in `docs/performance/live.md` (24 streams)."""


StartEngines = Callable[[trio.Nursery, VoiceActivityModel], Awaitable[Sequence[LoadedModel[EngineClient]]]]
"""Starts the engines of a server in the nursery; gives their models in the order of the configuration."""


async def serve(
    config: ServerConfig,
    *,
    stop: trio.Event,
    on_ready: Callable[[str], None] = lambda _: None,
    processes: ModelProcesses | None = None,
    start: StartEngines | None = None,
    task_status: trio.TaskStatus[Service] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until `stop` is set, then drain and return.

    `on_ready` gets the base URL when every model can take work. `processes` run the engines, where they
    were started already; `start` gives engines in place of those that the configuration names. Raises
    ConfigError, AddressError and ModelLoadError before that, and DeviceLostError, after draining, when a
    device does nothing more for this process. Cancelling ends everything at once.
    """
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    engines = Engines(config, stop.set, processes=processes)
    listen, keys = config.listen, ApiKeys(config.listen)
    limits = connection_limits(
        listen.max_connections, listen.max_connections_per_address, idle_s=listen.keep_alive_s
    )
    startup_app, listeners = StartupApp(), [_listen(listen, listen.port, "--port")]
    url = _url(listeners[0])
    try:
        if listen.health_port:
            listeners.append(_listen(listen, listen.health_port, "--health-port"))
        async with trio.open_nursery() as actors:
            async with trio.open_nursery() as connections:
                closed = trio.Event()
                guard, refusals = Guard(limits), Refusals(RefusalLog(config.logs))
                serving = partial(
                    serve_connections,
                    max_message_bytes=config.realtime.max_message_bytes,
                    send_timeout_s=listen.send_timeout_s,
                    stop=closed,
                    grace_s=_CLOSE_GRACE_S,
                    refusals=refusals,
                    proxies=TrustedProxies(listen.proxy_networks, listen.caller_secret),
                )
                connections.start_soon(
                    partial(serving, AccessLog(startup_app, config.logs), listeners[0], guard=guard)
                )
                for listener in listeners[1:]:
                    probed, few = AccessLog(HealthApp(startup_app), config.logs), Guard(_OF_PROBES)
                    connections.start_soon(partial(serving, probed, listener, guard=few))
                service = await _load(config, keys, engines, actors, limits, start or engines.start)
                app = application(service)
                if service.fronts is not None:
                    await actors.start(
                        service.fronts.run, _front_listener(app, service.fronts, config, limits)
                    )
                service.metrics.add_connections(lambda: guard.statistics, lambda: refusals.num_by_status)
                startup_app.open(app)
                task_status.started(service)
                on_ready(url)
                for line in first_steps(service, url):
                    logger.info("%s", line)
                await stop.wait()
                await _drain(service, listen.drain_s)
                service.give_up_requests()
                closed.set()  # answers on their way have the grace time to arrive
            actors.cancel_scope.cancel()
        if engines.lost is not None:
            raise engines.lost
    finally:
        for listener in listeners:
            listener.close()


async def _load(
    config: ServerConfig,
    keys: ApiKeys,
    engines: Engines,
    actors: trio.Nursery,
    limits: ConnectionLimits,
    start: StartEngines,
) -> Service:
    """Start everything that requests need, in `actors`."""
    file = await _response_file(config.responses)
    fronts = await _fronts(config, file)
    responses = ResponseStore(file)
    activity = await trio.to_thread.run_sync(VoiceActivityModel, abandon_on_cancel=True)
    metrics = Metrics()
    media = DecoderPool(_media_config(config))
    budget = MediaBudget(max_bytes=config.files.media_bytes)
    cache = MediaCache(config.files.media_cache_bytes, media_bytes)
    metrics.add(MEDIA_CACHE, cache.statistics)
    await actors.start(media.run)
    metrics.add(MEDIA, media.handle.statistics)
    names = Names()
    fetcher = Fetcher(config.fetch, names)
    metrics.add(FETCHES, fetcher.statistics)
    prompter = partial(
        Prompter,
        opener=media.handle,
        budget=budget,
        limits=_media_limits(config),
        fetcher=fetcher,
        cache=cache,
    )
    models: dict[str, ServedModel] = {}
    served = await start(actors, activity)
    if engines.processes is not None:
        engines.processes.add_metrics(metrics)
    for loaded in served:
        metrics.add_engine(
            loaded.name, loaded.engine.statistics, loaded.engine.inboxes, kv_dtype=loaded.info.kv_dtype
        )
        if loaded.speech is not None:
            metrics.add_speech(loaded.name, loaded.speech.statistics)
        text = _text_model(loaded, config, prompter)
        models[loaded.name] = ServedModel(
            loaded.name, loaded.engine, int(time.time()), loaded.speech, text, loaded.embeds
        )
    voice_activity = VoiceActivityActor(activity)
    await actors.start(voice_activity.run)
    sound = SoundActor()
    await actors.start(sound.run)
    metrics.add(SOUND, sound.statistics)
    service = Service(
        config,
        models,
        media.handle,
        budget,
        AddressBook(budget, fetcher),
        names,
        voice_activity.open_vad_stream,
        sound.open_sound,
        metrics,
        keys,
        responses=responses,
        fronts=fronts,
        pending_auth=PendingAuth(limits.max_per_address),
    )
    actors.start_soon(metrics.watch_loop)
    actors.start_soon(keys.watch)
    await actors.start(service.sessions.run)
    await actors.start(service.posting.run)
    metrics.add(POSTING, service.posting.statistics)
    await actors.start(service.mcp.run)
    await actors.start(service.responses.run)
    return service


async def _response_file(config: ResponseConfig) -> ResponseFile | None:
    """Raises ConfigError."""
    if config.response_store is None:
        return None
    opened = partial(ResponseFile, max_bytes=config.store_bytes, kept_s=config.response_store_days * 86_400)
    return await trio.to_thread.run_sync(partial(opened, config.response_store, now=time.time()))


async def _fronts(config: ServerConfig, file: ResponseFile | None) -> Fronts | None:
    """The servers of the cluster, if this is one's. Raises ConfigError."""
    if not config.process.cluster:
        return None
    tag = new_tag() if file is None else await trio.to_thread.run_sync(file.front_tag)
    return Fronts(config.process, tag)


def _front_listener(
    app: AsgiApp, fronts: Fronts, config: ServerConfig, limits: ConnectionLimits
) -> FrontListener:
    return FrontListener(
        AccessLog(app, config.logs),
        fronts.entrance,
        proxies_of(fronts.caller_secret),
        limits,
        config.realtime.max_message_bytes,
        config.listen.send_timeout_s,
        Refusals(RefusalLog(config.logs)),
    )


def application(service: Service) -> AsgiApp:
    """The ASGI application of a service."""
    found = routes(service)
    paths = frozenset(route.path for route in found)
    router = Router([*found, *sockets(service)], default=not_found(paths), redirect_slashes=False)
    return Gate(router, service, found)


def _media_limits(config: ServerConfig) -> MediaLimits:
    return MediaLimits(
        max_items=config.files.max_media_items,
        max_clip_s=config.files.max_clip_s,
        max_image_pixels=config.files.max_image_pixels or None,
        background=config.files.background,
        takes_embeds=config.files.enable_mm_embeds,
    )


def _text_model(
    loaded: LoadedModel[EngineClient], config: ServerConfig, prompter: Callable[[PromptBuilder], Prompter]
) -> TextModel | None:
    if loaded.prompts is None:
        return None
    return TextModel(
        loaded.name,
        loaded.engine,
        prompter(loaded.prompts),
        num_ngram_drafts=config.engine_of(loaded.name).ngram_drafts,
    )


async def _drain(service: Service, deadline_s: float) -> None:
    """Refuse new work, let turns and requests finish, for at most `deadline_s`."""
    service.is_draining = True
    logger.info("stopping: %d sessions, %d requests", len(service.sessions), service.num_requests)
    with trio.move_on_after(deadline_s):
        for drain in tuple(service.on_drain):
            drain()
        for session in service.sessions:
            session.drain()
        await service.wait_quiet()


def _listen(listen: ListenConfig, port: int, option: str) -> socket.socket:
    host = listen.host
    try:
        return open_listener(host, port, send_timeout_s=listen.send_timeout_s)
    except OSError as error:
        hint = f"; say another {option}" if error.errno == errno.EADDRINUSE else ""
        raise AddressError(f"cannot listen on {host}:{port}: {error.strerror or error}{hint}") from error


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _media_config(config: ServerConfig) -> MediaConfig:
    files = config.files
    return MediaConfig(
        max_workers=files.decode_workers,
        max_waiting=files.max_requests * FILES_AT_A_TIME,
        deadline_s=files.decode_timeout_s,
        cpu_s=files.decode_timeout_s,
    )
