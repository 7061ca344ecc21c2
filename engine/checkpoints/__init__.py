"""The embedded models, a folder each with its model card: what `sensorium serve` starts with."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent
"""Where those folders lie."""
