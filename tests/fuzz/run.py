"""Fuzzes every parser of ours by coverage, for a while: `make fuzz-parsers`, or with `--seconds` and targets.

Each target (`tests/fuzz/targets.py`) gets a process of its own and an equal share of the time. It begins with
the seeds in the repository; what it finds beyond them is kept in `build/fuzz`, and so is an input that breaks
a law, takes 60 s or 2 GiB: its name and the exit status say so. To try one again: `--again FILE TARGET`.

It is a search and not a test: what it finds may have been there for long. So CI tells it and does not refuse
the change at hand; mended, the input goes into `tests/fuzz/seeds`, and those are tests.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

TESTS: Final = Path(__file__).resolve().parents[1]
KEPT: Final = TESTS.parent / "build" / "fuzz"
_LEAST_S: Final = 2
_START_S: Final = 2
"""Of a process, with its imports instrumented."""
_OURS: Final = [
    "sensorium.media",
    "sensorium.protocols",
    "sensorium.realtime.calls.call",
    "sensorium.actors.transport",
]


def main() -> None:
    """Fuzz all targets, or one in this process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", help="which; all if none is named")
    parser.add_argument("--seconds", type=int, default=60, help="for all of them together")
    parser.add_argument("--again", type=Path, help="only try this file again")
    arguments = parser.parse_args()
    sys.path.insert(0, str(TESTS))
    if arguments.again is not None:
        from fuzz.targets import TARGETS

        TARGETS[arguments.targets[0]](arguments.again.read_bytes())
    elif os.environ.get("FUZZ_TARGET"):
        _fuzz(os.environ["FUZZ_TARGET"], arguments.seconds)
    else:
        sys.exit(_fuzz_all(arguments.targets, arguments.seconds))


def _fuzz_all(wanted: list[str], seconds: int) -> int:
    """How many targets failed. As many run side by side as there are cores, up to four."""
    from fuzz.targets import TARGETS

    names = wanted or list(TARGETS)
    lanes = min(4, len(os.sched_getaffinity(0)))
    share = max(_LEAST_S, seconds * lanes // len(names) - _START_S)
    failed: list[str] = []
    for start in range(0, len(names), lanes):
        running = {name: _begin(name, share) for name in names[start : start + lanes]}
        for name, process in running.items():
            output, _ = process.communicate()
            done = next((line for line in output.splitlines() if line.startswith("Done ")), "FAILED")
            print(f"{name}: {'FAILED' if process.returncode else done}", flush=True)
            if process.returncode:
                failed.append(name)
                print(output[-4000:], flush=True)
    return len(failed)


def _begin(name: str, share: int) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, "--seconds", str(share)]
    environment = os.environ | {"FUZZ_TARGET": name}
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def _fuzz(name: str, seconds: int) -> None:
    import atheris

    with atheris.instrument_imports(include=_OURS):
        from fuzz.targets import TARGETS
    found = KEPT / name
    found.mkdir(parents=True, exist_ok=True)
    options = [
        f"-max_total_time={seconds}",
        "-timeout=60",
        "-rss_limit_mb=2048",
        "-max_len=20000",
        "-print_final_stats=0",
        f"-artifact_prefix={found}-",
        str(found),
        str(TESTS / "fuzz" / "seeds" / name),
    ]
    atheris.Setup([sys.argv[0], *options], TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
