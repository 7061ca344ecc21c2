"""`sensorium embed`: the vectors of texts as JSON Lines.

Read next: `client/client.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

import msgspec

from ..client import Client
from ..terminal import guarded, usage

_AT_ONCE: Final = 256
"""Texts of one request."""


def embed(
    texts: list[str],
    /,
    *,
    model: str | None = None,
    dimensions: int | None = None,
    base_url: str | None = None,
    api_key: str | None = None,
    timeout: float | None = None,
) -> int:
    """Make vectors of texts: for each a line with a JSON list of numbers, in order.

    Examples:

        sensorium embed "a cat on a mat" "ein Hund im Garten"
        cat sentences.txt | sensorium embed - > vectors.jsonl

    Parameters
    ----------
    texts
        What to embed; - stands for the lines of standard input.
    model
        One of the server's models; the first that embeds if not given.
    dimensions
        Keep the first so many dimensions of each vector.
    base_url
        Address of the server: SENSORIUM_BASE_URL, else http://127.0.0.1:8000, if not given.
    api_key
        Key for the server: SENSORIUM_CLIENT_API_KEY if not given.
    timeout
        Seconds to wait for the server at most: 120 if not given.
    """
    if not texts:
        return usage("name at least one text, or - for the lines of standard input")

    def run() -> int:
        with Client(base_url, api_key, timeout) as client:
            lines = _lines(texts, sys.stdin)
            while some := list(islice(lines, _AT_ONCE)):
                for vector in client.embed(some, model=model, dimensions=dimensions):
                    print(msgspec.json.encode(vector).decode())
        return 0

    return guarded(run)


def _lines(texts: Sequence[str], given: Iterable[str]) -> Iterator[str]:
    """The texts, with the lines of `given` in place of a hyphen; empty lines are left out."""
    for text in texts:
        yield from filter(None, (line.rstrip("\r\n") for line in given)) if text == "-" else (text,)
