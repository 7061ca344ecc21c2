"""What Ray runs on some machine of its cluster: an actor that has one engine, in a process of its own.

Ray starts it, and carries a few calls: where the engine listens, that it has ended, that it has to end. No
request passes through it. Its methods block, each in a thread of Ray's. Imports no trio and no torch. Read
`ray_launcher.py` for who calls, `pipe.py` for what its process is told.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, Literal

import msgspec

from ..library_defaults import set_library_defaults
from .pipe import EngineOrder, NotStarted, Start, Started, Stop, receive, send

COMMAND: Final = (sys.executable, "-P", "-m", "sensorium.actors.cluster")
MAX_CALLS: Final = 4
"""Calls at the same time: of `start`, `ended` and `stop` each is made once."""
Outcome = tuple[Literal["started", "model", "other"], str]
"""An address; or what cannot be loaded; or what else failed."""


class EngineActor:
    """One engine on this machine."""

    def __init__(self, order: bytes, *, needs_token: bool, command: Sequence[str] = ()) -> None:
        """`order` is an encoded `EngineOrder`. With `needs_token` it starts nothing where Ray lets anybody
        in."""
        self._order = msgspec.msgpack.decode(order, type=EngineOrder)
        self._needs_token = needs_token
        self._command = tuple(command) or COMMAND
        self._process: subprocess.Popen[bytes] | None = None
        self._ours: socket.socket | None = None

    def host(self) -> str:
        """The address of this machine, as Ray knows it."""
        import ray  # this is Ray's process

        return str(ray.util.get_node_ip_address())

    def start(self, host: str) -> Outcome:
        """Start the engine, and wait until it listens on a free port of `host`."""
        if self._needs_token and os.environ.get("RAY_AUTH_MODE", "").lower() != "token":
            return "other", (
                f"Ray runs without RAY_AUTH_MODE=token on {host}; allowed: `ray start` with it on every "
                "machine, or --allow-unauthenticated-ray"
            )
        ours = self._spawn()
        send(ours, Start(self._order, host))
        match receive(ours):
            case Started(address):
                return "started", address
            case NotStarted(reason, kind):
                self.ended()
                return kind, reason
        return (
            "other",
            f"its process ended with status {self.ended()} while it started; Ray's logs have more",
        )

    def ended(self) -> int:
        """The status of the engine's process, once it has ended; negative: the signal that ended it."""
        assert self._process is not None, "it was started"
        assert self._ours is not None
        status = self._process.wait()
        self._ours.close()
        return status

    def stop(self) -> int:
        """Have the engine finish what it does, and end; its status."""
        assert self._ours is not None, "it was started"
        with suppress(OSError):  # it has ended already
            send(self._ours, Stop())
        return self.ended()

    def _spawn(self) -> socket.socket:
        """Our end of the pair."""
        environment = dict(os.environ)
        set_library_defaults(environment)
        ours, theirs = socket.socketpair()
        with theirs:
            names = [each.name for each in self._order.orders.models]
            self._process = subprocess.Popen(
                [*self._command, str(theirs.fileno()), *names],
                stdin=subprocess.DEVNULL,
                stdout=2,
                pass_fds=[theirs.fileno()],
                env=environment,
            )
        self._ours = ours
        return ours
