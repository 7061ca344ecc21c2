"""Faults at seeded moments under load, at a real server: of its processes, its limits, its disk, its network.

In `tests/`: `python -m reliability.chaos --seconds 60 --seed 1`. Files are transcribed and live turns are
spoken meanwhile, and `/live` is probed. Each request ends within its time with an answer or a named
error, no live turn is lost, and at the end the server answers as before, holds nothing of its clients and no
more descriptors than before. Faults of processes and faults around them come in two lanes, one after another
in each, so that one of both may hold at a time.

Read `chaos_clients.py` beside it for the clients, `process_faults.py` and `surroundings.py` for the faults.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import httpx
from reliability.chaos_clients import DEADLINE_S, Clients
from reliability.process_faults import ProcessFaults, open_files
from reliability.surroundings import SERVER_ADDRESS, Surroundings, enter_command, refusal

SPARE_DESCRIPTORS: Final = 8
_INSIDE: Final = "CHAOS_INSIDE"

Deed = Callable[[random.Random], str | None]
"""Does one fault, until it is over, and gives its name; None where there was nothing to hit."""


def run(seconds: float, seed: int, surroundings: Surroundings | None) -> int:
    """How many laws were broken."""
    command = [sys.executable, "-m", "sensorium", "serve", "tiny-whisper", "--port", "0"]
    environment = dict(os.environ)
    if surroundings is not None:
        command = surroundings.command([*command, "--host", SERVER_ADDRESS])
        environment["TMPDIR"] = str(surroundings.folder)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as server:
        try:
            assert server.stdout is not None
            url = server.stdout.readline().split()[2]
            clients = Clients(url) if surroundings is None else Clients(url, lambda: surroundings.lost_until)
            before = open_files(server.pid)
            processes = ProcessFaults(server.pid, lambda: clients.num_answers)
            lanes: list[tuple[Deed, ...]] = [
                (processes.send_signal, processes.refuse_memory, processes.refuse_descriptors)
            ]
            if surroundings is not None:
                around = (surroundings.fill_disk, surroundings.lose_network, surroundings.narrow_network)
                lanes.append(around)
            began, done = time.monotonic(), Counter[str]()
            with clients.at_work(), ThreadPoolExecutor() as pool:
                chances = [random.Random(f"{seed}/{lane}") for lane in range(len(lanes))]
                for met in pool.map(partial(do_harm, server, seconds), lanes, chances):
                    done += met
            took_s = time.monotonic() - began
            clients.broken += broken_at_rest(server, clients, before)
        finally:
            server.terminate()
    print(f"seed {seed}: {done.total()} faults in {took_s:.0f} s {dict(sorted(done.items()))}")
    print(f"  met {dict(sorted(clients.counts.items()))}")
    for law in clients.broken:
        print(f"BROKEN {law}")
    return len(clients.broken)


def do_harm(
    server: subprocess.Popen[str], seconds: float, deeds: Sequence[Deed], chance: random.Random
) -> Counter[str]:
    """Faults of one lane, one after another, and how often each was done."""
    began, done = time.monotonic(), Counter[str]()
    while (now_s := time.monotonic() - began) < seconds and server.poll() is None:
        time.sleep(chance.uniform(0.2, 1.5))
        if (name := chance.choice(deeds)(chance)) is not None:
            done[name] += 1
            print(f"{now_s:.1f} s: {name}", file=sys.stderr, flush=True)
    return done


def broken_at_rest(server: subprocess.Popen[str], clients: Clients, before: Counter[str]) -> list[str]:
    """What is wrong when no client is there any more, once what lingers had its time."""
    if server.poll() is not None:
        return [f"the server ended with status {server.returncode}"]
    if not patiently(lambda: clients.upload() == "file answered"):
        return ["the server does not answer again"]
    broken = []
    if not patiently(lambda: not clients.held()):
        broken.append("the metrics say that something is held without clients")
    if not patiently(lambda: open_files(server.pid).total() <= before.total() + SPARE_DESCRIPTORS):
        broken.append(f"descriptors {open_files(server.pid)} after {before}")
    return broken


def patiently(condition: Callable[[], bool]) -> bool:
    """Whether it holds within a time. A request that fails is one that does not hold."""
    until = time.monotonic() + DEADLINE_S
    while time.monotonic() < until:
        with suppress(httpx.HTTPError):
            if condition():
                return True
        time.sleep(0.5)
    return False


def main() -> None:
    """Run it once; the exit status tells whether all held."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if _INSIDE not in os.environ:
        if (why := refusal()) is None:
            command = [*enter_command(), sys.executable, "-m", "reliability.chaos", *sys.argv[1:]]
            os.execvpe(command[0], command, os.environ | {_INSIDE: "1"})
        print(f"no full disk and no loss of network is tried: there are no namespaces here ({why})")
        sys.exit(bool(run(options.seconds, options.seed, None)))
    with tempfile.TemporaryDirectory() as folder:
        surroundings = Surroundings(Path(folder))
        try:
            is_broken = bool(run(options.seconds, options.seed, surroundings))
        finally:
            subprocess.run(["umount", "--lazy", folder], check=True)
    sys.exit(is_broken)


if __name__ == "__main__":
    main()
