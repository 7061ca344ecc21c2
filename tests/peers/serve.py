"""The server of `make peers`: `sensorium serve` with the scripted family registered, and a model that embeds.

    python tests/peers/serve.py FOLDER …        the rest is `sensorium serve`'s

FOLDER is made; its models are served as `scripted` and `embedding` (BERT's layers, random weights).
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from peers.scripted import ENTRY, make_scripted_folder
from sensorium.actors.commands import run
from sensorium.engine.models import families
from support.encoder_folder import make_embedding_folder


def main() -> int:
    """Serve until a signal; the exit code."""
    folder, *others = sys.argv[1:]
    families.FAMILIES = (*families.FAMILIES, ENTRY)
    made = make_scripted_folder(Path(folder) / "scripted")
    embedding = make_embedding_folder(Path(folder) / "embedding", "bert", mode="mean")
    return run(["serve", str(made), str(embedding), *others, "--engine-process", "off"])


if __name__ == "__main__":
    sys.exit(main())
