"""What packages are made of stays: it is not looked through for garbage, while it is imported nor later.

Imports next to nothing itself, as `actors/signals.py`.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def importing() -> Iterator[None]:
    """A context in which packages are imported. They are hundreds of thousands of objects, and looking
    through them again and again is a seventh of the time that torch takes."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
