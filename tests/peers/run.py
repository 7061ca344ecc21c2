"""Runs other people's suites against one server and prints what they tried: `make peers`.

The server runs from this interpreter, with embedded models; each suite is a pytest process of `build/peers`,
which has the packages of `requirements.txt` and not sensorium. Exits with 1 if anything failed that is not
expected to, or if a suite tried nothing. Results in full are in `build/peers-results`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parents[1]
RESULTS: Final = ROOT / "build" / "peers-results"
PYTHON: Final = ROOT / "build" / "peers" / "bin" / "python"
SUITES: Final = {
    "langchain_standard": ("langchain-tests", "langchain-openai", "langchain-anthropic"),
    "strict_types": ("openai", "anthropic"),
    "openapi_answers": ("schemathesis",),
    "agents_sdk": ("openai-agents",),
    "embedding_clients": ("langchain-openai", "langchain-tests", "llama-index-embeddings-openai-like"),
    "voice_frameworks": ("livekit-agents", "livekit-plugins-openai", "pipecat-ai"),
    "open_responses_schema": (),
    "telephone_frames": (),
}
"""Each suite's file, and the packages whose versions the table has. Those without are written here, from
published documents, and run in this environment."""
_SUITE_S: Final = 1200
_START_S: Final = 300


@dataclass(frozen=True)
class Tally:
    """What one suite did."""

    passed: int = 0
    failed: int = 0
    expected: int = 0
    """Failures with a reason."""
    skipped: int = 0

    @property
    def tried(self) -> int:
        """Tests that ran."""
        return self.passed + self.failed + self.expected


def tally(junit: bytes) -> Tally:
    """The counts of a JUnit report of pytest's; an error outside a test is a failure."""
    passed = failed = expected = skipped = 0
    for case in ET.fromstring(junit).iter("testcase"):
        why = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            failed += 1
        elif why is None:
            passed += 1
        elif why.get("type") == "pytest.xfail":
            expected += 1
        else:
            skipped += 1
    return Tally(passed, failed, expected, skipped)


def main() -> None:
    """Run the suites that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("suites", nargs="*", help=f"which of {', '.join(SUITES)}; all if none is named")
    arguments = parser.parse_args()
    if unknown := set(arguments.suites) - set(SUITES):
        parser.error(f"no suite {', '.join(sorted(unknown))}; there are {', '.join(SUITES)}")
    RESULTS.mkdir(parents=True, exist_ok=True)
    with _server() as url:
        found = {name: _run(name, url) for name in arguments.suites or SUITES}
    print("| suite | versions | tried | passed | failed | expected failures | not applicable |")
    print("|---|---|---|---|---|---|---|")
    for name, each in found.items():
        counts = (each.tried, each.passed, each.failed, each.expected, each.skipped)
        print(f"| {name} | {_versions(SUITES[name])} | {' | '.join(map(str, counts))} |")
    sys.exit(any(each.failed or not each.passed for each in found.values()))


@contextmanager
def _server() -> Iterator[str]:
    """The URL of a server of embedded models, for the duration."""
    log = RESULTS / "server.log"
    with tempfile.TemporaryDirectory() as folder:
        command: list[str | Path] = [
            *(sys.executable, HERE / "serve.py", folder, "tiny-whisper", "tiny-qwen3-asr", "tiny-qwen3-vl"),
            *("--port", "0", "--kv-memory", "256MiB"),
            *("--max-context", "4096"),  # requests without a limit, which schemathesis makes up, end soon
        ]
        with log.open("wb") as errors:
            process = subprocess.Popen(command, stdout=errors, stderr=errors)
        try:
            yield _address(process, log)
        finally:
            process.terminate()
            process.wait(60)


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    """Where the server listens; RuntimeError if it ended or took too long."""
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline and process.poll() is None:
        for line in log.read_text().splitlines():
            if line.startswith("listening on "):
                return line.removeprefix("listening on ").strip()
        time.sleep(0.2)
    raise RuntimeError(f"the server did not start; its log is {log}")


def _run(suite: str, url: str) -> Tally:
    """One suite in a separate process."""
    report = RESULTS / f"{suite}.xml"
    report.unlink(missing_ok=True)
    given = {
        "PEERS_URL": url,
        "PEERS_MODEL": "scripted",
        "PEERS_SPEECH_MODEL": "tiny-whisper",
        "PEERS_EMBEDDING_MODEL": "embedding",
        "OPENAI_AGENTS_DISABLE_TRACING": "1",
    }
    python = PYTHON if SUITES[suite] else sys.executable
    command = [
        *(python, "-m", "pytest", "-c", HERE / "pytest.ini", "--rootdir", HERE, HERE / f"{suite}.py"),
        *("-q", "--tb=short", "-rfEX", f"--junitxml={report}"),
    ]
    print(f"{suite} …", flush=True)
    with (RESULTS / f"{suite}.txt").open("wb") as output:
        done = subprocess.run(
            command, env=os.environ | given, stdout=output, stderr=output, timeout=_SUITE_S, check=False
        )
    found = tally(report.read_bytes()) if report.exists() else Tally(failed=1)
    if done.returncode:
        print((RESULTS / f"{suite}.txt").read_text()[-4000:])
    return found


def _versions(packages: Sequence[str]) -> str:
    """The installed version of each."""
    if not packages:
        return "–"
    script = "import sys; from importlib.metadata import version as v; print(*map(v, sys.argv[1:]))"
    found = subprocess.run([PYTHON, "-c", script, *packages], capture_output=True, text=True, check=True)
    return ", ".join(
        f"{name} {version}" for name, version in zip(packages, found.stdout.split(), strict=True)
    )


if __name__ == "__main__":
    main()
