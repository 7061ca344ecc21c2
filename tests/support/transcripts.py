"""Transcripts as they are compared."""

from __future__ import annotations

from typing import Any


def exact(body: Any) -> Any:  # noqa: ANN401
    """A body without probabilities, whose last digits hang on what else was batched."""
    if isinstance(body, dict):
        return {
            name: exact(value)
            for name, value in body.items()
            if name not in ("probability", "language_probability")
        }
    return [exact(each) for each in body] if isinstance(body, list) else body
