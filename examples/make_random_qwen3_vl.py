"""Write a Qwen3-VL folder with random weights, and a picture, to measure speed on.

    python examples/make_random_qwen3_vl.py FOLDER [--shape tiny|small|2b] [--dtype bfloat16] [--side 512]

`2b` is the published shape of Qwen/Qwen3-VL-2B-Instruct (9 GB of memory while it is made), `small` its vision
tower before a decoder of Qwen3-0.6B's shape, `tiny` what the tests use. `transformers` loads all of them.
An answer may end anywhere: to measure, ask for a number of tokens and ignore the end token.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.vision_files import png
from support.vl_folder import QWEN3_VL_2B, VlShape, make_vl_folder

SHAPES = {
    "tiny": VlShape(),
    "small": replace(QWEN3_VL_2B, hidden_size=1024, intermediate_size=3072),
    "2b": QWEN3_VL_2B,
}


def main() -> None:
    """Write the folder, its picture.png and nothing else."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--shape", choices=SHAPES, default="small")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="bfloat16")
    parser.add_argument("--side", type=int, default=512, help="of the picture, in pixels")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    folder = make_vl_folder(
        arguments.folder,
        seed=arguments.seed,
        shape=SHAPES[arguments.shape],
        dtype=getattr(torch, arguments.dtype),
    )
    (folder / "picture.png").write_bytes(png(arguments.side, arguments.side, arguments.seed))
    print(f"wrote {folder}")


if __name__ == "__main__":
    main()
