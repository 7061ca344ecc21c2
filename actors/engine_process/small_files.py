"""The small files of a checkpoint: read where its model runs, written where clients are faced.

Whoever faces clients opens a model's `ModelSide` (`engine/models/side.py`) from them: configs, tokenizers and
templates. It gets a folder and not bytes, since libraries that open tokenizers and processors take folders.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ...protocols.errors import ModelLoadError
from .messages import CheckpointFiles

_PATTERNS: Final = ("*.json", "*.jinja", "*.txt", "*.model", "additional_chat_templates/*.jinja")
_WEIGHTS: Final = ".index.json"
_MAX_FILE_BYTES: Final = 64 * 1024 * 1024
"""Twice the largest published tokenizer. A larger file is no part of the model, and is not sent."""
_MAX_BYTES: Final = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The files of one model: which, and their contents in order."""

    files: CheckpointFiles
    contents: Sequence[bytes]

    def write(self, folder: Path) -> None:
        """Write them to `folder`, which is made."""
        folder.mkdir()
        for name, content in zip(self.files.names, self.contents, strict=True):
            path = folder / name
            if not path.resolve().is_relative_to(folder.resolve()):
                raise ModelLoadError(f"{name}: a file of a checkpoint lies in its folder")
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)


def read_checkpoint(folder: Path, known: Collection[str] = ()) -> Checkpoint:
    """Read the small files of `folder`; of a set whose digest is `known`, that digest alone.

    Blocking: call it in a thread. Raises ModelLoadError naming the folder if there are too many of them.
    """
    paths = [
        path
        for pattern in _PATTERNS
        for path in sorted(folder.glob(pattern))
        if path.is_file() and not path.name.endswith(_WEIGHTS) and path.stat().st_size <= _MAX_FILE_BYTES
    ]
    num_bytes = sum(path.stat().st_size for path in paths)
    if num_bytes > _MAX_BYTES:
        raise ModelLoadError(
            f"{folder}: its {len(paths)} JSON, template and vocabulary files have {num_bytes} bytes; "
            f"allowed: {_MAX_BYTES}; move those that are not the model's elsewhere"
        )
    names = tuple(path.relative_to(folder).as_posix() for path in paths)
    contents, digest = [path.read_bytes() for path in paths], hashlib.blake2b(digest_size=16)
    for name, content in zip(names, contents, strict=True):
        digest.update(f"{name} {len(content)} ".encode())
        digest.update(content)
    if digest.hexdigest() in known:
        return Checkpoint(CheckpointFiles(digest.hexdigest()), ())
    return Checkpoint(CheckpointFiles(digest.hexdigest(), names), contents)
