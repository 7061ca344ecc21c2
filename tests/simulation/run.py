"""Runs seeds: `python tests/simulation/run.py --seeds 0..1000 [--shrink]`. See `docs/reliability.md`.

A seed always gives the same run, so its number is all that is needed to see a failure again. With `--shrink`
a failing run is made as small as it gets, and printed as the scenario it is.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

_TESTS = Path(__file__).resolve().parents[1]


def main() -> int:
    """Exit status: 1 if a seed failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0..100", help="A..B, without B, or one seed")
    parser.add_argument("--shrink", action="store_true", help="make the failing runs small")
    parser.add_argument("--keep-going", action="store_true", help="run all seeds, also behind a failing one")
    parser.add_argument("--clients", type=int, help="in each run, in place of a drawn number")
    parser.add_argument("--faults", type=int, help="the same of faults")
    parser.add_argument("--span-s", type=float, default=12.0, help="virtual seconds within which they come")
    parser.add_argument("--show", action="store_true", help="print what became of every client")
    asked = parser.parse_args()
    sys.path.insert(0, str(_TESTS))
    sys.path = [each for each in sys.path if Path(each or ".").resolve() != _TESTS / "simulation"]
    from simulation.scenario import drawn
    from simulation.shrink import shrunk
    from simulation.simulate import simulate

    first, _, last = asked.seeds.partition("..")
    began, clock = time.perf_counter(), time.perf_counter
    num_failed = num_seeds = num_clients = num_faults = 0
    virtual_s = 0.0
    for seed in range(int(first), int(last or int(first) + 1)):
        scenario = drawn(seed, num_clients=asked.clients, num_faults=asked.faults, span_s=asked.span_s)
        outcome = simulate(scenario)
        num_seeds += 1
        num_clients += len(scenario.clients)
        num_faults += len(scenario.faults)
        virtual_s += outcome.virtual_s
        if num_seeds % 50 == 0:
            print(f"{num_seeds} seeds, {num_failed} failed", flush=True)
        if asked.show:
            for name, ending in sorted(outcome.endings.items()):
                print(f"  {name}: {ending}")
        if not outcome.problems:
            continue
        num_failed += 1
        print(f"seed {seed} FAILED:", *outcome.problems, sep="\n  ", flush=True)
        if asked.shrink:
            small = shrunk(outcome)
            print("  as small as it gets:", small.scenario, *small.problems, sep="\n  ", flush=True)
        if not asked.keep_going:
            break
    took_s = clock() - began
    print(
        f"{num_seeds} seeds, {num_failed} failed: {num_clients} clients, {num_faults} faults, "
        f"{virtual_s / 3600:.1f} h of virtual time in {took_s:.0f} s"
    )
    return int(num_failed > 0)


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets of strings is chance, too
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | {"PYTHONHASHSEED": "0"})
    sys.exit(main())
