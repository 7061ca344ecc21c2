"""Faults around a server: a full disk, and a network that loses or delays what is sent.

Both are the server's own, in namespaces (Linux): its temporary files lie on a small file system in memory,
and its clients reach it over a pair of virtual interfaces. Nothing of it is seen outside or outlives the run.
Who is not root needs unprivileged user namespaces; `refusal` says why there are none.
"""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

DISK_MIB: Final = 16
CLIENTS_ADDRESS: Final = "10.77.0.1"
SERVER_ADDRESS: Final = "10.77.0.2"
_MOST_LOST_S: Final = 5.0
_LOSE_ALL: Final = ("pfifo", "limit", "0")
"""A queue that nothing fits in: what is sent is lost, and no interface says so."""
_NARROW: Final = ("tbf", "rate", "256kbit", "burst", "2000", "limit", "6000")
"""Slow, and what does not fit into a queue of four packets is lost."""


def enter_command() -> list[str]:
    """What runs a command in namespaces of its own."""
    as_root = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *as_root, "--mount", "--net"]


def refusal() -> str | None:
    """Why there are no namespaces with what is needed here; None where there are."""
    mounts, joins = "mount -t tmpfs none /run", "ip netns add server && tc -V"
    try:
        tried = subprocess.run(
            [*enter_command(), "sh", "-c", f"{mounts} && {joins}"], capture_output=True, text=True
        )
    except FileNotFoundError as error:
        return str(error)
    return None if tried.returncode == 0 else tried.stderr.strip()


class Surroundings:
    """A disk and a network for a server, in the namespaces that this process has entered."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        """For the server's temporary files."""
        self.lost_until = 0.0
        """When the network was last whole again, on the monotonic clock."""
        _do("mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "none", str(folder))
        _do("mount", "-t", "tmpfs", "none", "/run")  # where `ip` keeps its names
        _do("ip", "netns", "add", "server")
        _do("ip", "link", "add", "clients", "type", "veth", "peer", "name", "server")
        _do("ip", "link", "set", "server", "netns", "server")
        for name, address in (("clients", CLIENTS_ADDRESS), ("server", SERVER_ADDRESS)):
            _do(*_at(name), "ip", "address", "add", f"{address}/24", "dev", name)
            _do(*_at(name), "ip", "link", "set", name, "up")
            _do(*_at(name), "ip", "link", "set", "lo", "up")

    def command(self, command: Sequence[str]) -> list[str]:
        """What runs a command where the server is."""
        return [*_at("server"), *command]

    def fill_disk(self, chance: random.Random) -> str | None:
        """Leave next to no room for a while."""
        spare, lasts_s = chance.choice((0, 4096, 100_000)), chance.uniform(0.1, 3.0)
        fill = self.folder / "fill"
        system = os.statvfs(self.folder)
        try:
            with fill.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, max(1, system.f_bavail * system.f_frsize - spare))
            time.sleep(lasts_s)
        except OSError:  # a client's file came in between: it is fuller than that
            return None
        finally:
            fill.unlink(missing_ok=True)
        return "disk full"

    def lose_network(self, chance: random.Random) -> str | None:
        """Lose all that is sent, both ways or one."""
        ends = chance.choice((("clients", "server"), ("clients",), ("server",)))
        lasts_s = chance.uniform(0.1, _MOST_LOST_S)
        self.lost_until = time.monotonic() + lasts_s
        self._queue(ends, _LOSE_ALL, lasts_s)
        return f"network lost, {'both ways' if len(ends) == 2 else f'from the {ends[0]}'}"

    def narrow_network(self, chance: random.Random) -> str | None:
        """A slow network with losses."""
        self._queue(("clients", "server"), _NARROW, chance.uniform(0.1, _MOST_LOST_S))
        return "network narrow"

    def _queue(self, ends: Sequence[str], kind: Sequence[str], lasts_s: float) -> None:
        try:
            for end in ends:
                _do(*_at(end), "tc", "qdisc", "replace", "dev", end, "root", *kind)
            time.sleep(lasts_s)
        finally:
            for end in ends:
                _do(*_at(end), "tc", "qdisc", "delete", "dev", end, "root")


def _at(end: str) -> list[str]:
    """What runs a command at that end."""
    return ["nsenter", "--net=/run/netns/server"] if end == "server" else []


def _do(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")
