"""The transducer of the fake runner: tokens from a hash of all input so far, whatever chunks it came in.

A row is two frames; a frame that has no partner waits in the state for the next chunk, and is a row of its
own at the end of the input. A row gives none to three tokens. Padding has no effect.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b

from sensorium.protocols.engine.messages import Features, InputChunk, RequestId, Transduce, Transduced

FRAMES_PER_ROW = 2
NOT_A_NUMBER = float("nan")
"""A chunk with this frame fails alone."""
VOCAB_SIZE = 50


@dataclass(frozen=True, slots=True)
class FakeState:
    """What a slot holds."""

    digest: bytes = b""
    tail: tuple[float, ...] = ()
    num_rows: int = 0
    owner: int | None = None
    """The stay on the device that writes it; None for a copy, which is its next writer's."""


def chunk_of(
    frames: Sequence[float], *, num_padding: int = 0, is_last: bool = False, is_first: bool = False
) -> InputChunk:
    """A chunk of one number a frame; its padding is no silence."""
    numbers = (*frames, *(1e9,) * num_padding)
    features = Features((1, len(numbers)), struct.pack(f"<{len(numbers)}f", *numbers))
    return InputChunk(features, len(frames), is_last, is_first)


def frames_of(chunk: InputChunk) -> tuple[float, ...]:
    """What of it is input."""
    return struct.unpack(f"<{chunk.features.shape[-1]}f", chunk.features.data)[: chunk.num_valid]


def run_chunk(
    request_id: RequestId, task: Transduce, state: FakeState, chunk: InputChunk
) -> tuple[Transduced, FakeState]:
    """What a chunk brings behind `state`, and the state behind it."""
    frames = state.tail + frames_of(chunk)
    num_whole = len(frames) if chunk.is_last else len(frames) // FRAMES_PER_ROW * FRAMES_PER_ROW
    tokens: list[int] = []
    places: list[int] = []
    digest, row = state.digest, state.num_rows
    for start in range(0, num_whole, FRAMES_PER_ROW):
        seen = repr((task.lookahead, task.condition, frames[start : min(start + FRAMES_PER_ROW, num_whole)]))
        digest = blake2b(digest + seen.encode(), digest_size=8).digest()
        for index in range(digest[0] % 4):
            tokens.append(digest[index + 1] % VOCAB_SIZE)
            places.append(row)
        row += 1
    outcome = Transduced(
        request_id,
        tuple(tokens),
        tuple(places),
        tuple(map(logprob, tokens)) if task.logprobs else (),
        row,
        "stop" if chunk.is_last else None,
    )
    return outcome, replace(state, digest=digest, tail=frames[num_whole:], num_rows=row)


def logprob(token: int) -> float:
    """The log-probability of a token."""
    return -float(token) / VOCAB_SIZE


def transduced_alone(task: Transduce, frames: Sequence[float], *, is_whole: bool = True) -> Transduced:
    """All tokens of an input in one chunk; unless it `is_whole`, of what is known before more comes."""
    return run_chunk(RequestId("alone"), task, FakeState(), chunk_of(frames, is_last=is_whole))[0]
