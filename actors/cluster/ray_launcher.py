"""Starts engines on the machines of a Ray cluster, by the resources that each needs.

Ray is the control plane only: it finds a machine, starts an actor there and says when it is gone. This is the
only file that imports it, when it is needed, as `sensorium[cluster]`. Read `ray_actor.py` for what runs on
the machine, `cluster.py` for who wants engines.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import msgspec
import trio

from ...protocols.errors import ModelLoadError
from ..config.cluster import ClusterConfig
from ..errors import ConfigError
from .cluster import LostEngineError
from .pipe import EngineOrder
from .ray_actor import MAX_CALLS, EngineActor

logger = logging.getLogger(__name__)

LOCAL: Final = "127.0.0.1"
_KILL_S: Final = 5.0
_PENDING_S: Final = 30.0
"""An engine that has no machine for so long is worth a line in the log."""

NOT_INSTALLED: Final = "sensorium cluster needs Ray, which is not installed: pip install 'sensorium[cluster]'"
NO_TOKEN: Final = (
    "RAY_AUTH_MODE is {mode!r}; allowed: token. Without it, every program that reaches Ray's ports can run "
    "code on its machines. Run `ray get-auth-token --generate` once, copy ~/.ray/auth_token to all machines, "
    "and set RAY_AUTH_MODE=token for `ray start` on each and for this command; on a network that only "
    "trusted machines reach, --allow-unauthenticated-ray does without"
)


def check_authentication(config: ClusterConfig, mode: str) -> None:
    """Raise ConfigError unless Ray asks for a token, which `mode`, of RAY_AUTH_MODE, says."""
    if mode.lower() != "token" and not config.allow_unauthenticated_ray:
        raise ConfigError(NO_TOKEN.format(mode=mode))


def connect(config: ClusterConfig) -> Any:  # noqa: ANN401 (Ray's module, which has no types)
    """Ray, connected to its cluster. For the main thread, ahead of trio, whose signal handlers are to hold.

    Raises ConfigError where Ray is not installed, or there is no such cluster.
    """
    try:
        import ray
    except ImportError:
        raise ConfigError(NOT_INSTALLED) from None
    local: dict[str, Any] = {"include_dashboard": False, "_node_ip_address": LOCAL}
    try:
        ray.init(
            address=config.address,
            namespace="sensorium",
            log_to_driver=False,
            logging_level=logging.ERROR,
            **(local if config.address == "local" else {}),
        )
    except Exception as error:  # also a bare one, where a local node does not start in time
        raise ConfigError(
            f"--address is {config.address!r}: {_first_line(error)}; allowed: auto where `ray start` has run "
            "on this machine, HOST:PORT of its head, or local"
        ) from None
    return ray


class RayLauncher:
    """See `Launcher`."""

    def __init__(self, ray: Any, config: ClusterConfig, order: EngineOrder) -> None:  # noqa: ANN401
        self._ray = ray
        self._config = config
        self._order = msgspec.msgpack.encode(order)
        self._actor_class = ray.remote(EngineActor)

    @asynccontextmanager
    async def launched(self) -> AsyncIterator[RayEngine]:
        """See `Launcher.launched`."""
        actor = self._actor_class.options(
            num_cpus=self._config.num_cpus,
            num_gpus=self._config.num_gpus,
            max_restarts=0,  # where another one starts is decided here
            max_concurrency=MAX_CALLS,
            scheduling_strategy="SPREAD",
        ).remote(self._order, needs_token=not self._config.allow_unauthenticated_ray)
        try:
            host = LOCAL if self._config.address == "local" else ""
            yield RayEngine(self._ray, actor, self._resources(), host)
        finally:
            with trio.CancelScope(shield=True), trio.move_on_after(_KILL_S):
                await trio.to_thread.run_sync(self._kill, actor, abandon_on_cancel=True)

    def _kill(self, actor: Any) -> None:  # noqa: ANN401
        with suppress(self._ray.exceptions.RayError, ValueError):
            self._ray.kill(actor)

    def _resources(self) -> str:
        gpus = f" and {self._config.num_gpus:g} GPUs" if self._config.num_gpus else ""
        return f"{self._config.num_cpus:g} processors{gpus}"


class RayEngine:
    """See `LaunchedEngine`."""

    def __init__(self, ray: Any, actor: Any, resources: str, host: str) -> None:  # noqa: ANN401
        """It listens on `host`; empty: on the address of its machine."""
        self._host = host
        self._ray = ray
        self._actor = actor
        self._resources = resources

    async def started(self) -> str:
        """See `LaunchedEngine.started`."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._report_pending)
            host = await self._got(self._actor.host.remote())
            nursery.cancel_scope.cancel()
        kind, text = await self._got(self._actor.start.remote(self._host or host))
        match kind:
            case "started":
                return str(text)
            case "model":
                raise ModelLoadError(text)
        raise LostEngineError(text)

    async def ended(self) -> str:
        """See `LaunchedEngine.ended`."""
        try:
            status = await self._got(self._actor.ended.remote())
        except LostEngineError as error:
            return error.message
        return f"by signal {-status}" if status < 0 else f"with status {status}"

    async def stop(self, drain_s: float) -> None:
        """See `LaunchedEngine.stop`."""
        with trio.move_on_after(drain_s + _KILL_S), suppress(LostEngineError):
            await self._got(self._actor.stop.remote())

    async def _report_pending(self) -> None:
        while True:
            await trio.sleep(_PENDING_S)
            logger.warning("no machine has %s free for an engine; Ray is waited for", self._resources)

    async def _got(self, reference: Any) -> Any:  # noqa: ANN401
        """What a call returns. Raises LostEngineError where the actor is gone."""
        token, done = trio.lowlevel.current_trio_token(), trio.Event()

        def wake(_: object) -> None:
            with suppress(trio.RunFinishedError):
                token.run_sync_soon(done.set)

        future = reference.future()
        future.add_done_callback(wake)
        await done.wait()
        try:
            return future.result()
        except self._ray.exceptions.RayError as error:
            raise LostEngineError(_first_line(error)) from None


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0].rstrip(".") if lines else type(error).__name__
