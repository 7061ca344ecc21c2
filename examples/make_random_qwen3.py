"""Write a Qwen3 folder with random weights of a published shape, to measure speed on.

    python examples/make_random_qwen3.py FOLDER [--shape 0.6b|tiny] [--dtype bfloat16]

`0.6b` is Qwen/Qwen3-0.6B (1.2 GB on disk), `tiny` what the tests use. The tokenizer is a byte-level one with
Qwen3's control tokens, padded to the published size; most of its words occur in no text. `transformers` and
vllm load both. An answer may end anywhere: to measure, ask for a number of tokens and ignore the end token.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.text_folder import QWEN3_0_6B, QwenShape, make_qwen3_folder

SHAPES = {"tiny": QwenShape(), "0.6b": QWEN3_0_6B}


def main() -> None:
    """Write the folder and nothing else."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--shape", choices=SHAPES, default="0.6b")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="bfloat16")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    folder = make_qwen3_folder(
        arguments.folder,
        seed=arguments.seed,
        shape=SHAPES[arguments.shape],
        dtype=getattr(torch, arguments.dtype),
    )
    print(f"wrote {folder}")


if __name__ == "__main__":
    main()
