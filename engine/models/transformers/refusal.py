"""What is raised for a model that cannot be run through our attention, with the reason."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ....protocols.errors import ModelLoadError


@contextmanager
def refusing(folder: Path) -> Iterator[None]:
    """Whatever a model's own code raises means that it cannot be run so."""
    try:
        yield
    except Exception as error:  # several libraries'
        raise ModelLoadError(refusal(folder, message_of(error))) from error


def refusal(folder: Path, reason: str) -> str:
    return (
        f"{folder}: this model cannot be run through transformers' attention interface: {reason}; "
        "docs/models.md lists those that can"
    )


def message_of(error: Exception) -> str:
    """Its kind and first line: torch goes on with addresses of its own code."""
    return f"{type(error).__name__}: {''.join(str(error).splitlines()[:1])}"
