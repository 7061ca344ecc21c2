"""A fingerprint is the same for the same files and settings, and for nothing else."""

from __future__ import annotations

import os
from pathlib import Path

from sensorium.engine.models.fingerprint import fingerprint


def test_files_and_settings_are_in_it(tmp_path: Path) -> None:
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(b"weights")
    os.utime(weights, ns=(1, 1))
    first = fingerprint(tmp_path, "float32")
    assert fingerprint(tmp_path, "float32") == first
    found = {first, fingerprint(tmp_path, "bfloat16"), fingerprint(tmp_path, "float32", "adapter")}
    os.utime(weights, ns=(2, 2))
    found.add(fingerprint(tmp_path, "float32"))
    weights.write_bytes(b"others!")
    os.utime(weights, ns=(3, 3))
    found.add(fingerprint(tmp_path, "float32"))
    (tmp_path / "config.json").write_text("{}")
    os.utime(tmp_path / "config.json", ns=(3, 3))
    found.add(fingerprint(tmp_path, "float32"))
    assert len(found) == 6
