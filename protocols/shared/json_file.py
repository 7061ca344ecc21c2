"""Reading the JSON files of a checkpoint's folder: the engine, and what prepares media for it, do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..errors import ModelLoadError


def read_json(path: Path) -> dict[str, Any]:
    """One JSON object. Raises ModelLoadError naming the file."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelLoadError(f"{path}: missing") from None
    except RecursionError:
        raise ModelLoadError(f"{path}: not readable JSON (nested too deeply)") from None
    except (OSError, ValueError) as error:
        raise ModelLoadError(f"{path}: not readable JSON ({error})") from error
    if not isinstance(value, dict):
        raise ModelLoadError(f"{path}: not a JSON object")
    return value
