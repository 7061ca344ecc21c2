"""Faults at seeded moments under load: processes of a real server are killed, stopped and crashed.

In `tests/`: `python -m reliability.chaos --seconds 60 --seed 1`. Files are transcribed and live turns are
spoken meanwhile, and `/live` is probed. Each request ends within its time with an answer or a named
error, no live turn is lost, and at the end the server answers as before and holds no more descriptors.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import httpx
from support.raw_socket import pcm, raw_session

DEADLINE_S: Final = 90.0
LIGHTS: Final = (Path(__file__).parents[2] / "examples" / "data" / "kitchen_lights.wav").read_bytes()
SPARE_DESCRIPTORS: Final = 8
LEAST_BETWEEN_ENDS_S: Final = 25.0
"""Between two ends of the models' process: after more than five in a minute of service it is given up."""
KINDS: Final = ("models", "decoder")
DEEDS: Final = (signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGSTOP)


class Clients:
    """What clients do, and what they have met."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.counts = Counter[str]()
        self.faults: list[str] = []
        self._is_over = threading.Event()
        self.text: str = self._transcribe().json()["text"]

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Two send files, two speak, one probes."""
        tasks = (self.upload, self.upload, self.talk, self.talk, self.probe)
        threads = [threading.Thread(target=self._keep, args=(one,), daemon=True) for one in tasks]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._is_over.set()
            for thread in threads:
                thread.join(4 * DEADLINE_S)
                if thread.is_alive():
                    self.faults.append("a client hangs")

    def _keep(self, one: Callable[[], str]) -> None:
        while not self._is_over.is_set():
            try:
                self.counts[one()] += 1
            except Exception as error:  # any is a fault, and is told at the end
                self.faults.append(f"{type(error).__name__}: {error}")

    def _transcribe(self) -> httpx.Response:
        files = {"file": ("a.wav", LIGHTS)}
        return httpx.post(f"{self.url}/v1/audio/transcriptions", files=files, timeout=DEADLINE_S)

    def upload(self) -> str:
        """A file, which is answered as before, or 503."""
        answer = self._transcribe()
        if answer.status_code == 200:
            assert answer.json()["text"] == self.text, "another text"
            return "file answered"
        assert answer.status_code == 503, answer.text
        time.sleep(0.2)
        return f"file {answer.json()['error']['code']}"

    def talk(self) -> str:
        """Three live turns, none of which may be lost."""
        with raw_session(f"ws{self.url.removeprefix('http')}/v1/realtime") as session:
            session.configure()
            for _ in range(3):
                session.append(pcm(LIGHTS))
                session.commit()
                assert session.until("completed", timeout_s=DEADLINE_S)["transcript"] == self.text
        return "three live turns answered"

    def probe(self) -> str:
        """Ask whether the server lives."""
        began = time.monotonic()
        status = httpx.get(f"{self.url}/live", timeout=DEADLINE_S).status_code
        is_soon = time.monotonic() - began < 1.0
        time.sleep(0.05)
        return f"/live {status} {'within' if is_soon else 'after'} 1 s"


def children(parent: int, kind: str) -> list[int]:
    """Processes of the server: the models', or those that decode."""
    marks = {"models": "actors.engine_process", "decoder": "spawn_main"}
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rsplit(")", 1)[1].split()
            command = (path.parent / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if int(fields[1]) == parent and marks[kind] in command:
            found.append(int(path.parent.name))
    return found


def run(seconds: float, seed: int) -> int:
    """How many laws were broken."""
    command = [sys.executable, "-m", "sensorium", "serve", "tiny-whisper", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = server.stdout.readline().split()[2]
        try:
            clients, before = Clients(url), descriptors(server.pid)
            with clients.at_work():
                deeds = do_harm(server, seconds, random.Random(seed))
            if server.poll() is not None:
                clients.faults.append(f"the server ended with status {server.returncode}")
            elif not patiently(lambda: clients.upload() == "file answered"):
                clients.faults.append("the server does not answer again")
            elif not patiently(lambda: descriptors(server.pid) <= before + SPARE_DESCRIPTORS):
                clients.faults.append(f"{descriptors(server.pid)} descriptors after {before}")
        finally:
            server.terminate()
    print(f"seed {seed}: {deeds.total()} faults {dict(deeds)}; met {dict(clients.counts)}")
    for fault in clients.faults:
        print(f"BROKEN {fault}")
    return len(clients.faults)


def do_harm(server: subprocess.Popen[str], seconds: float, chance: random.Random) -> Counter[str]:
    """Deeds against the server's processes, and how often each was done.

    The models' process ends no more often than a server starts it again.
    """
    until, next_end, deeds = time.monotonic() + seconds, 0.0, Counter[str]()
    while time.monotonic() < until and server.poll() is None:
        time.sleep(chance.uniform(0.5, 3.0))
        kind, deed, stopped_s = chance.choice(KINDS), chance.choice(DEEDS), chance.uniform(0.1, 3.0)
        if kind == "models" and deed is not signal.SIGSTOP:
            if time.monotonic() < next_end:
                continue
            next_end = time.monotonic() + LEAST_BETWEEN_ENDS_S
        for process in children(server.pid, kind)[:1]:
            os.kill(process, deed)
            deeds[f"{kind} {deed.name}"] += 1
            if deed is signal.SIGSTOP:
                time.sleep(stopped_s)
                os.kill(process, signal.SIGCONT)
    return deeds


def descriptors(process: int) -> int:
    """Open ones of a process."""
    return len(os.listdir(f"/proc/{process}/fd"))


def patiently(condition: Callable[[], bool]) -> bool:
    """Whether it holds within a time."""
    until = time.monotonic() + DEADLINE_S
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.5)
    return True


def main() -> None:
    """Run it once; the exit status tells whether all held."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    sys.exit(bool(run(asked.seconds, asked.seed)))


if __name__ == "__main__":
    main()
