"""What names a model as the maker of keys and values: its files, and how they are computed.

Equal fingerprints mean equal blocks. So blocks' names begin with it (`engine/planning/kv/names.py`), for the
day they leave the process that computed them. Contents are not read: names, sizes and times of change tell
checkpoints apart.
"""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path


def fingerprint(folder: Path, *settings: str) -> str:
    """Of the checkpoint in `folder`, computed with `settings`: number formats, an adapter."""
    files = sorted(file for file in folder.iterdir() if file.is_file())
    stats = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    return blake2b(repr((stats, settings)).encode(), digest_size=16).hexdigest()
