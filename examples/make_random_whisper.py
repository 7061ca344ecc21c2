"""Write a Whisper folder of the whisper-base shape with random weights, and a clip, to measure speed on.

    python examples/make_random_whisper.py FOLDER [--tokens 32] [--seconds 29]

Every answer has the same length: the end token is never the likeliest, and the generation config stops
after `--tokens`. Speed on random weights is speed on trained ones where the number of tokens is fixed.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np
import soundfile
from safetensors.torch import load_file, save_file

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.whisper_folder import WHISPER_BASE, make_whisper_folder, special_tokens

EMBEDDING = "model.decoder.embed_tokens.weight"
SPEECH = Path(__file__).parent / "data" / "conversation.wav"


def main() -> None:
    """Write the folder, its clip.wav and nothing else."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=29.0)
    arguments = parser.parse_args()
    folder: Path = make_whisper_folder(arguments.folder, shape=WHISPER_BASE)
    weights = load_file(folder / "model.safetensors")
    weights[EMBEDDING][special_tokens(WHISPER_BASE).end] = 0.0
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    path = folder / "generation_config.json"
    config = json.loads(path.read_text())
    config |= {"max_length": arguments.tokens, "max_new_tokens": arguments.tokens}
    path.write_text(json.dumps(config, indent=2))
    # Speech, over and over: a server does not ask a model about sound that has none.
    spoken, rate = soundfile.read(SPEECH, dtype="int16")
    soundfile.write(folder / "clip.wav", np.resize(spoken, int(arguments.seconds * rate)), rate)
    print(f"wrote {folder}")


if __name__ == "__main__":
    main()
