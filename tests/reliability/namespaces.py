"""A cluster of two machines, as network namespaces: a cut link, a lost machine, wrong secrets.

Needs root, `ip` (iproute2) and `pip install 'sensorium[cluster]'`; takes some five minutes:

    sudo python tests/reliability/namespaces.py [FOLDER_FOR_LOGS]

Machine A has the head of Ray, `sensorium cluster` and a server; machine B is one more node of Ray. Each has
room for one engine. Between them is a switch, in a namespace of its own: a cut takes a cable out of it, so
that packets vanish without a sign at either end. While all of this happens a client transcribes, again and
again. Prints a line for each event, with its time, and fails where something does not come about.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import httpx

A, B, SWITCH = "sensorium-a", "sensorium-b", "sensorium-switch"
ADDRESSES: Final = {A: "10.77.0.1", B: "10.77.0.2"}
MODEL: Final = "tiny-qwen3-asr"
SPEECH: Final = Path(__file__).parents[2] / "examples" / "data" / "kitchen_lights.wav"
_NEW_NETWORK: Final = 0x40000000  # CLONE_NEWNET of setns(2)
_PYTHON: Final = Path(sys.executable)
_RAY: Final = str(_PYTHON.with_name("ray"))
_ROOM: Final = ("--num-cpus", "1", "--object-store-memory", "80000000", "--disable-usage-stats")
_LONG_S: Final = 180.0


def ip(*arguments: str) -> None:
    """Run `ip`."""
    subprocess.run(["ip", *arguments], check=True)


@contextmanager
def network() -> Iterator[None]:
    """The namespaces, and cables between both machines and a switch."""
    names = (A, B, SWITCH)
    for name in names:
        subprocess.run(["ip", "netns", "del", name], check=False, stderr=subprocess.DEVNULL)
    try:
        for name in names:
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        ip("-n", SWITCH, "link", "add", "br0", "type", "bridge")
        ip("-n", SWITCH, "link", "set", "br0", "up")
        for name, address in ADDRESSES.items():
            cable = f"to-{name[-1]}"
            ip("-n", SWITCH, "link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", name)
            ip("-n", SWITCH, "link", "set", cable, "master", "br0", "up")
            ip("-n", name, "address", "add", f"{address}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", name, "route", "add", "default", "dev", "eth0")
        yield
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False)


def cut() -> None:
    """Take B's cable out of the switch."""
    ip("-n", SWITCH, "link", "set", "to-b", "nomaster")


def mend() -> None:
    """Put it back."""
    ip("-n", SWITCH, "link", "set", "to-b", "master", "br0")


def enter(name: str) -> None:
    """Be on that machine from now on, with all that is started here."""
    descriptor = os.open(f"/run/netns/{name}", os.O_RDONLY)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, _NEW_NETWORK):
        raise OSError(ctypes.get_errno(), "setns")
    os.close(descriptor)


@dataclass
class Process:
    """A command that runs on a machine, and its log."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    def text(self) -> str:
        """What it has written."""
        return self.log.read_text(errors="replace")

    def end(self) -> None:
        """Ask all of it to end, then make it."""
        for number, patience_s in ((signal.SIGTERM, 30), (signal.SIGKILL, 10)):
            if self.process.poll() is None:
                os.killpg(self.process.pid, number)
                try:
                    self.process.wait(patience_s)
                except subprocess.TimeoutExpired:
                    continue


@dataclass
class Probe:
    """A client that transcribes again and again: when each request began, how long it took, what came."""

    url: str
    requests: list[tuple[float, float, int]] = field(default_factory=list)
    is_over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Until it is over."""
        audio = SPEECH.read_bytes()
        with httpx.Client(timeout=60) as client:
            while not self.is_over.wait(0.1):
                began = time.monotonic()
                try:
                    files = {"file": ("a.wav", audio)}
                    status = client.post(
                        f"{self.url}/v1/audio/transcriptions", files=files, data={"model": MODEL}
                    ).status_code
                except httpx.HTTPError:
                    status = 0
                self.requests.append((began, time.monotonic() - began, status))

    def since(self, began: float) -> str:
        """What happened to requests that were not over by then."""
        found = [each for each in self.requests if each[0] + each[1] >= began]
        times = sorted(each[1] for each in found)
        num_failed = sum(each[2] != 200 for each in found)
        if not times:
            return "no request"
        half = times[len(times) // 2]
        return f"{len(found)} requests, {num_failed} failed, p50 {half:.2f} s, longest {times[-1]:.2f} s"


class Machines:
    """Starts commands on both, and waits for what they log."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self._environment = {
            **os.environ,
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": os.urandom(16).hex(),
            "RAY_worker_niceness": "0",
            "OMP_NUM_THREADS": "1",
        }
        self.began = time.monotonic()
        self.secret = folder / "secret"
        self.secret.write_text(os.urandom(32).hex())

    def start(
        self, machine: str, name: str, *command: str, environment: dict[str, str] | None = None
    ) -> Process:
        """Run a command on a machine, with a /tmp/ray of the machine's own, in a group of its own."""
        log = self._folder / f"{name}.log"
        temporary = self._folder / machine
        temporary.mkdir(exist_ok=True)
        own = f'mkdir -p /tmp/ray && mount --bind "{temporary}" /tmp/ray && exec "$@"'
        with log.open("wb") as output:
            process = subprocess.Popen(
                ["ip", "netns", "exec", machine, "unshare", "-m", "sh", "-c", own, "sh", *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self._environment | (environment or {}),
                start_new_session=True,
            )
        started = Process(name, process, log)
        self._stack.callback(started.end)
        return started

    def node(self, name: str) -> Process:
        """B as a node of Ray, which is started again when it ends, as a service manager does."""
        place = f"--address {ADDRESSES[A]}:6379 --node-ip-address {ADDRESSES[B]}"
        join = f"{_RAY} start {place} --block {' '.join(_ROOM)}"
        return self.start(B, name, "sh", "-c", f"while true; do {join}; sleep 2; done")

    def say(self, text: str) -> None:
        """A line of the protocol."""
        print(f"{time.monotonic() - self.began:7.1f} s  {text}", flush=True)

    def wait(self, what: str, condition: Callable[[], bool], limit_s: float = _LONG_S) -> float:
        """Wait for something; the seconds that took. Raises TimeoutError."""
        began = time.monotonic()
        while not condition():
            if time.monotonic() > began + limit_s:
                raise TimeoutError(f"{what}: not within {limit_s:g} s")
            time.sleep(0.05)
        took = time.monotonic() - began
        self.say(f"{what} after {took:.1f} s")
        return took


def ready(url: str) -> int:
    """How many engines a server can use."""
    try:
        text = httpx.get(f"{url}/metrics", timeout=5).text
    except httpx.HTTPError:
        return 0
    return sum(
        line.endswith(" 1.0") for line in text.splitlines() if line.startswith("sensorium_replica_ready{")
    )


def main(folder: Path) -> None:
    """All of it, on machine A."""
    with network(), ExitStack() as stack:
        enter(A)
        machines = Machines(folder, stack)
        head = ("start", "--head", "--node-ip-address", ADDRESSES[A], "--port", "6379", "--block")
        machines.start(A, "ray-a", _RAY, *head, "--include-dashboard", "false", *_ROOM)
        time.sleep(8)
        node = machines.node("ray-b")
        url, sensorium = f"http://{ADDRESSES[A]}:8000", (str(_PYTHON), "-m", "sensorium")
        directory = f"{ADDRESSES[A]}:9100"
        options = ("--secret-file", str(machines.secret), "--kv-memory", "64MiB", "--listen", directory)
        scale = ("--address", f"{ADDRESSES[A]}:6379", "--min-replicas", "2", "--max-replicas", "2")
        cluster = machines.start(A, "cluster", *sensorium, "cluster", MODEL, *scale, *options)
        host = ("--host", ADDRESSES[A], "--allowed-hosts", ADDRESSES[A])
        front = ("serve", MODEL, "--cluster", directory, "--port", "8000", *host, "--engine-secret-file")
        server = machines.start(A, "server", *sensorium, *front, str(machines.secret))
        machines.wait("two engines can be used", lambda: ready(url) == 2)
        assert all(f"an engine runs at {address}:" in cluster.text() for address in ADDRESSES.values())
        machines.say("one runs on each machine")
        check_secrets(machines, front, directory)
        probe = Probe(url)
        client = threading.Thread(target=probe.run)
        client.start()
        try:
            short_cut(machines, probe, url)
            long_cut(machines, probe, url, cluster)
            lost_machine(machines, probe, url, node)
        finally:
            probe.is_over.set()
            client.join()
        machines.say(f"in all: {probe.since(0.0)}")
        summary = {"requests": len(probe.requests), "failed": sum(each[2] != 200 for each in probe.requests)}
        print(json.dumps(summary))
        assert server.process.poll() is None
        assert cluster.process.poll() is None


def check_secrets(machines: Machines, front: tuple[str, ...], directory: str) -> None:
    """What has another secret, or another token of Ray's, gets nowhere."""
    wrong = machines.secret.with_name("wrong")
    wrong.write_text(os.urandom(32).hex())
    sensorium = (str(_PYTHON), "-m", "sensorium")
    arguments = [ADDRESSES[B] if each == ADDRESSES[A] else each for each in front]
    stranger = machines.start(B, "stranger", *sensorium, *arguments, str(wrong))
    machines.wait(
        "a server with another secret is refused", lambda: "secret is another one" in stranger.text()
    )
    stranger.end()
    assert "listening on" not in stranger.text()
    intruder = machines.start(
        B,
        "intruder",
        *(*sensorium, "cluster", MODEL, "--address", f"{ADDRESSES[A]}:6379"),
        *("--secret-file", str(wrong), "--listen", "127.0.0.1:0"),
        environment={"RAY_AUTH_TOKEN": os.urandom(16).hex()},
    )
    machines.wait("a cluster with another token of Ray's ends", lambda: intruder.process.poll() is not None)
    assert intruder.process.returncode != 0
    assert directory not in intruder.text()


def short_cut(machines: Machines, probe: Probe, url: str) -> None:
    """The link is back before anything is given up."""
    began = time.monotonic()
    cut()
    machines.say("the link is cut")
    machines.wait("the engine of B is left out", lambda: ready(url) == 1)
    time.sleep(4)
    mend()
    machines.wait("the link is back after 5 s: both engines can be used", lambda: ready(url) == 2)
    machines.say(probe.since(began))


def long_cut(machines: Machines, probe: Probe, url: str, cluster: Process) -> None:
    """The engine is given up; later Ray gives up the machine."""
    began, known = time.monotonic(), len(cluster.text())
    cut()
    machines.say("the link is cut again")
    machines.wait("the engine of B is left out", lambda: ready(url) == 1)
    lost = "could not be used by any server"
    machines.wait("the engine of B is given up", lambda: lost in cluster.text()[known:])
    time.sleep(max(0.0, began + 75 - time.monotonic()))
    mend()
    machines.wait("the link is back after 75 s: B has a new engine", lambda: ready(url) == 2)
    machines.say(probe.since(began))


def lost_machine(machines: Machines, probe: Probe, url: str, node: Process) -> None:
    """Everything on B ends at once, and B is started again."""
    began = time.monotonic()
    pids = subprocess.run(["ip", "netns", "pids", B], check=True, capture_output=True, text=True).stdout
    for pid in map(int, pids.split()):
        os.kill(pid, signal.SIGKILL)
    node.process.wait()
    machines.say(f"B is lost: {len(pids.split())} processes")
    machines.wait("its engine is left out", lambda: ready(url) == 1)
    time.sleep(5)
    machines.node("ray-b-again")
    machines.say("B starts again")
    machines.wait("it has an engine again", lambda: ready(url) == 2)
    machines.say(probe.since(began))


if __name__ == "__main__":
    if os.geteuid():
        sys.exit("namespaces.py: making network namespaces needs root")
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp(prefix="sensorium-cluster-")))
