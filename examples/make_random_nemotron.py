"""Write a Nemotron ASR folder of the published shape (0.6 B) with random weights, to measure speed on.

    python examples/make_random_nemotron.py FOLDER [--blank-bias 5]

Rows of sound end as with trained weights, because blank is biased: the bias says how many tokens a row gives.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.nemotron_folder import PUBLISHED, make_nemotron_folder


def main() -> None:
    """Write the folder and nothing else."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--blank-bias", type=float, default=5.0)
    arguments = parser.parse_args()
    print(f"wrote {make_nemotron_folder(arguments.folder, PUBLISHED, blank_bias=arguments.blank_bias)}")


if __name__ == "__main__":
    main()
