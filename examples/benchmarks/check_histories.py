"""Random conversations over live sessions against chat completions over what is left of them.

    python examples/benchmarks/check_histories.py [--seeds 50] [--first 0] [--moves 12]

Items are created, deleted and truncated, pictures among them, answers cancelled, connections cut and resumed
(`tests/support/histories.py`), on a random Qwen3-VL of the tests' shape in float32. Ends at the first history
whose answer differs, and names its seed; 50 take about half a minute on two free cores.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from sensorium.actors.config.server import EngineConfig
from support.histories import check_history
from support.server import make_config, running_server
from support.vl_folder import make_vl_folder


def main() -> None:
    """Go through them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--moves", type=int, default=12)
    options = parser.parse_args()
    logging.disable(logging.INFO)
    engine = EngineConfig(device="cpu", dtype="float32", num_threads=1, kv_memory="32MiB", max_running=8)
    with tempfile.TemporaryDirectory() as folder:
        model = str(make_vl_folder(Path(folder) / "vision"))
        with running_server(make_config(model, engine=engine)) as server:
            for seed in range(options.first, options.first + options.seeds):
                try:
                    check_history(server, seed, num_moves=options.moves)
                except AssertionError as error:
                    raise SystemExit(f"history {seed}: {error}") from error
            server.wait_quiet()
    print(f"{options.seeds} histories answered as chat completions answer")


if __name__ == "__main__":
    main()
