"""Clients of a server that faults happen to: what each asks for, and what it must be answered.

A file is answered as before or refused by name; a live turn is answered as before. A connection may break
within a few seconds of a lost network, as those of any server would. Read
`tests/reliability/chaos.py` for what happens to the server meanwhile.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import httpx
from sensorium.client.metrics import parse_metrics
from support.raw_socket import pcm, raw_session
from websockets.exceptions import InvalidStatus

DEADLINE_S: Final = 90.0
LOST_S: Final = 5.0
"""After so long, what was sent while the network was lost has been sent again."""
LIGHTS: Final = (Path(__file__).parents[2] / "examples" / "data" / "kitchen_lights.wav").read_bytes()
HELD: Final = (
    *("sessions_active", "requests_waiting", "requests_running", "encoder_cache_references"),
    *("media_waiting", "media_running"),
)
"""Gauges that are 0 when nothing is worked on."""


class Clients:
    """What clients do, and what they have met."""

    def __init__(self, url: str, lost_until: Callable[[], float] = lambda: 0.0) -> None:
        """`lost_until` tells on the monotonic clock when the network was last lost."""
        self.url = url
        self._lost_until = lost_until
        self._realtime = f"ws{url.removeprefix('http')}/v1/realtime"
        self.counts = Counter[str]()
        self.broken: list[str] = []
        self._is_over = threading.Event()
        self.text: str = self._transcribe().json()["text"]

    @property
    def num_answers(self) -> int:
        """Of the model."""
        return self.counts["file answered"] + self.counts["three live turns answered"]

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
                    self.broken.append("a client hangs")

    def _keep(self, one: Callable[[], str]) -> None:
        began = time.monotonic()
        while not self._is_over.is_set():
            asked = time.monotonic()
            try:
                self.counts[one()] += 1
            except Exception as error:  # any is a broken law but a connection that the network broke
                now = time.monotonic()
                is_lost = isinstance(error, httpx.TransportError) and now < self._lost_until() + LOST_S
                if is_lost and now - asked < DEADLINE_S:
                    self.counts[f"{one.__name__}: connection broken by the network"] += 1
                else:
                    what = f"{one.__name__}: {type(error).__name__}: {error}"
                    self.broken.append(f"at {now - began:.1f} s, {what}")
                time.sleep(0.2)

    def _transcribe(self) -> httpx.Response:
        files = {"file": ("a.wav", LIGHTS)}
        return httpx.post(f"{self.url}/v1/audio/transcriptions", files=files, timeout=DEADLINE_S)

    def upload(self) -> str:
        """A file, which is answered as before, or 503 with a code."""
        answer = self._transcribe()
        if answer.status_code == 200:
            assert answer.json()["text"] == self.text, "another text"
            return "file answered"
        assert answer.status_code == 503, f"{answer.status_code} {answer.text}"
        time.sleep(0.2)
        return f"file {answer.json()['error']['code']}"

    def talk(self) -> str:
        """Three live turns, none of which may be lost; a session may be refused as it opens."""
        try:
            with raw_session(self._realtime, ping_interval=None) as session:
                session.configure()
                for _ in range(3):
                    session.append(pcm(LIGHTS))
                    session.commit()
                    assert session.until("completed", timeout_s=DEADLINE_S)["transcript"] == self.text
        except InvalidStatus as refused:
            answer = refused.response
            assert answer.status_code == 503, f"{answer.status_code} {answer.body!r}"
            time.sleep(0.2)
            return "session refused (503)"
        return "three live turns answered"

    def probe(self) -> str:
        """Ask whether the server lives."""
        began = time.monotonic()
        status = httpx.get(f"{self.url}/live", timeout=DEADLINE_S).status_code
        is_soon = time.monotonic() - began < 1.0
        time.sleep(0.05)
        return f"/live {status} {'within' if is_soon else 'after'} 1 s"

    def held(self) -> dict[str, float]:
        """What the server's metrics say is held though nothing is worked on; empty if nothing is."""
        now = parse_metrics(httpx.get(f"{self.url}/metrics", timeout=DEADLINE_S).text)
        found = {name: now[f"sensorium_{name}"] for name in HELD}
        found["kv_blocks"] = now["sensorium_kv_blocks"] - now["sensorium_kv_blocks_free"]
        return {name: value for name, value in found.items() if value}
