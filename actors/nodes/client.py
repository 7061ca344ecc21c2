"""One process of another machine that runs engines, as a server that faces clients sees it.

Nobody starts it from here: it is connected to, and again when the connection is lost, as long as the server
runs. Read `server.py` for the other end.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Sequence
from typing import Final

import trio

from ..config.validation import HostPort
from ..engine_process import messages
from ..engine_process.peer import EnginePeer, FilesChangedError
from ..runtime.supervisor import RestartPolicy
from .connecting import connected

_POLICY: Final = RestartPolicy(first_delay_s=0.1, max_restarts=2**62)
"""A machine may be away for as long as it likes."""


class EngineNode(EnginePeer):
    """The engines at one address, over all connections to them. Start `run`."""

    def __init__(
        self,
        address: HostPort,
        models: Sequence[str],
        secret: bytes,
        *,
        silence_s: float,
        left_out_s: float | None = None,
        has_others: Callable[[], bool] = lambda: False,
        tls: ssl.SSLContext | None = None,
        agree: Callable[[EngineNode, messages.Opened], None] = lambda *_: None,
    ) -> None:
        """See `EnginePeer`. `agree` is told what it runs, and raises FilesChangedError if others run
        something else."""
        super().__init__(
            f"engines at {address}",
            models,
            silence_s=silence_s,
            left_out_s=left_out_s,
            has_others=has_others,
            policy=_POLICY,
        )
        self.address = address
        self._secret = secret
        self._tls = tls
        self._models = tuple(models)
        self._agree = agree

    def pid(self) -> int | None:
        """It is no process of this machine's that anybody knows of."""
        return None

    def _where(self) -> str:
        return "another process"

    async def _run(self, *, task_status: trio.TaskStatus[None]) -> None:
        stream = await self._connected()
        self._loading_since = time.monotonic()
        try:
            await self._talk(stream, task_status, self._obituary)
        finally:
            await trio.aclose_forcefully(stream)

    def _check(self, opened: messages.Opened) -> None:
        names = tuple(str(fields["name"]) for fields in opened.models)
        if names != self._models:
            raise FilesChangedError(
                f"the {self.name} run {', '.join(names)}; this server has to serve {', '.join(self._models)}"
            )
        self._agree(self, opened)

    async def _connected(self) -> trio.abc.Stream:
        """Connected, and let in; tries until it is."""
        return await connected(self.name, self.address, self._secret, self._tls)

    async def _obituary(self) -> str:
        await trio.lowlevel.checkpoint()
        return f"the connection to the {self.name} was lost"
