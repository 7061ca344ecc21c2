"""One encode and 32 decode steps under OpenMP's settings, alone or beside a process that keeps a core busy.

    GOMP_SPINCOUNT=3000 python examples/benchmarks/bench_threads.py [THREADS] [--busy]

Run it once per setting: OpenMP reads its environment when torch is loaded.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
import torch
from bench_engine import CONTEXT, Ours
from support.whisper_folder import WHISPER_BASE, make_whisper_folder

NUM_STEPS = 32
NUM_ROUNDS = 7


def request_s(ours: Ours) -> float:
    """Seconds of one request's work."""
    begin = time.perf_counter()
    ours.encode()
    for index in range(NUM_STEPS):
        ours.step([7], CONTEXT + index)
    return time.perf_counter() - begin


def main() -> None:
    """Print the median of a few rounds, and their range."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("threads", type=int, nargs="?", default=2)
    parser.add_argument("--busy", action="store_true", help="keep one core busy meanwhile")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        folder = make_whisper_folder(Path(directory), shape=WHISPER_BASE)
        ours = Ours(folder, "bfloat16", arguments.threads, torch.randn(80, 3000))
    neighbour = subprocess.Popen([sys.executable, "-c", "while True: pass"]) if arguments.busy else None
    try:
        rounds = sorted(request_s(ours) for _ in range(NUM_ROUNDS))
    finally:
        if neighbour is not None:
            neighbour.kill()
            neighbour.wait()
    print(f"median {statistics.median(rounds):.2f} s ({rounds[0]:.2f}–{rounds[-1]:.2f})")


if __name__ == "__main__":
    main()
