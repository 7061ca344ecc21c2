"""Asks each server how it is and which models it has, and follows the file of servers."""

from __future__ import annotations

import logging
import math
from typing import Any, Final

import h11
import msgspec
import trio

from ..config.gateway import GatewayConfig, ListedServer
from ..errors import ConfigError
from ..relay.connections import ServerGoneError
from ..runtime.threads import in_thread
from .servers import Server
from .state import GatewayState

logger = logging.getLogger(__name__)

_ANSWER_S: Final = 2.0
_MAX_LIST_BYTES: Final = 4 * 1024 * 1024
_MODELS_EVERY_S: Final = 10.0
_FILE_EVERY_S: Final = 1.0


class _List(msgspec.Struct):
    data: list[dict[str, Any]]


class Prober:
    """Of one gateway: a task for each server."""

    def __init__(self, state: GatewayState, server_api_key: str) -> None:
        self._state = state
        self._key = server_api_key
        self._scopes: dict[Server, trio.CancelScope] = {}
        self._disk = trio.CapacityLimiter(1)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Until cancelled. It has started once every server has been asked for the first time."""
        config = self._state.config
        async with trio.open_nursery() as nursery:
            first = [self._follow(server) for server in self._state.servers.take(config.listed())[0]]
            async with trio.open_nursery() as asking:
                for each in first:
                    asking.start_soon(nursery.start, each)
            task_status.started()
            await self._follow_file(config, nursery)

    async def _follow_file(self, config: GatewayConfig, nursery: trio.Nursery) -> None:
        listed, problem = config.listed(), ""
        while config.servers_file is not None:
            await trio.sleep(_FILE_EVERY_S)
            try:
                now: tuple[ListedServer, ...] = await in_thread(
                    config.listed, limiter=self._disk, max_wait_s=math.inf
                )
            except ConfigError as error:
                if str(error) != problem:
                    problem = str(error)
                    logger.error("%s; the servers of before hold", problem)
                continue
            problem = ""
            if now == listed:
                continue
            listed = now
            new, gone = self._state.servers.take(now)
            for server in new:
                logger.info("the server %s is new", server.name)
                nursery.start_soon(self._follow(server))
            for server in gone:
                logger.info("the server %s is not used any more", server.name)
                self._scopes.pop(server).cancel()

    def _follow(self, server: Server) -> Any:  # noqa: ANN401 (a function for a nursery)
        async def follow(*, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
            with trio.CancelScope() as self._scopes[server]:
                interval_s, models_at, path = self._state.config.health_interval_s, -math.inf, "/health"
                while True:
                    server.probe_soon = trio.Event()
                    status = await self._probe(server, path)
                    if path == "/health" and status in (404, 405):
                        path = "/v1/models"  # another kind of server
                        continue
                    was_up = server.health.state == "up"
                    self._judge(server, status)
                    if server.health.state == "up" and (
                        not was_up
                        or server.models is None
                        or trio.current_time() - models_at > _MODELS_EVERY_S
                    ):
                        models_at = trio.current_time()
                        await self._list_models(server)
                    task_status.started()
                    task_status = trio.TASK_STATUS_IGNORED
                    with trio.move_on_after(interval_s):
                        await server.probe_soon.wait()
                        await trio.sleep(interval_s / 10)

        return follow

    @staticmethod
    def _judge(server: Server, status: int) -> None:
        if 200 <= status < 300 or status in (401, 403):  # it lives, and knows nobody without a key
            server.note(server.health.succeeded)
        elif status:
            server.note(server.health.refused)
        else:
            server.note(server.health.failed)

    async def _probe(self, server: Server, path: str) -> int:
        """The status of an answer; 0: there was none."""
        with trio.move_on_after(_ANSWER_S):
            try:
                return (await self._get(server, path))[0]
            except ServerGoneError:
                return 0
        return 0

    async def _list_models(self, server: Server) -> None:
        with trio.move_on_after(_ANSWER_S):
            try:
                status, body = await self._get(server, "/v1/models")
                if status == 200:
                    found = msgspec.json.decode(body, type=_List).data
                    server.models = {str(each.get("id")): each for each in found}
            except (ServerGoneError, msgspec.DecodeError):
                return

    async def _get(self, server: Server, path: str) -> tuple[int, bytes]:
        """Over a fresh connection: whether one can be had is part of the answer."""
        headers = [
            ("host", server.address.authority),
            ("user-agent", "sensorium-gateway"),
            ("connection", "close"),
        ]
        if self._key:
            headers.append(("authorization", f"Bearer {self._key}"))
        connection = await server.connections.take(is_fresh=True)
        try:
            request = h11.Request(method="GET", target=server.address.prefix + path, headers=headers)
            await connection.send(request, h11.EndOfMessage())
            head = await connection.head()
            return head.status_code, await connection.body(_MAX_LIST_BYTES)
        finally:
            connection.close()
