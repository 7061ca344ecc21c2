"""Inside a process that decodes live streams: many decoders, each fed a little in turn. Imports no trio.

`actors/live/container_decoder.py` owns the processes. A job is a batch of requests, one per stream at the
most. What a stream needs to go on in another process comes back with each answer, so that whoever kills this
process, on purpose or by a hostile packet, costs the other streams nothing but milliseconds.
"""

from __future__ import annotations

import os
import pickle
import traceback
from collections.abc import Sequence
from typing import Final, NamedTuple

from ...protocols.shared.container_format import StreamContainer
from ...protocols.shared.panics import contained_job
from .decoder import StreamDecoder
from .packets import StreamError

_ME: Final = os.urandom(8)
"""Which process this is: another one knows none of its streams."""
_decoders: dict[int, StreamDecoder] = {}


class Request(NamedTuple):
    """What is wanted of one stream. `state` is what the last answer brought; empty for a new stream."""

    stream: int
    container: StreamContainer
    num_channels: int
    """See `StreamDecoder`."""
    state: bytes
    data: bytes
    is_end: bool
    """Everything that came is to be decoded, to the last sample."""


class Answer(NamedTuple):
    """Samples as float32 bytes, whether more of them wait, and how to go on elsewhere; or what is wrong.

    `problem` is fit for clients; `defect` says what of ours broke, for the log.
    """

    samples: bytes
    has_more: bool = False
    state: bytes = b""
    problem: str = ""
    defect: str = ""


class Batch(NamedTuple):
    """What one job answers: in which process, and None if that does not know the streams."""

    process: bytes
    answers: list[Answer] | None


def decode_batch(requests: Sequence[Request], ended: Sequence[int], process: bytes) -> Batch:
    """Serve every request once, and forget the streams that ended.

    Nothing is done where this is another than the `process` that was asked; empty: any will do.
    """
    for stream in ended:
        _decoders.pop(stream, None)
    if process and process != _ME:
        return Batch(_ME, None)
    return Batch(_ME, [_serve(request) for request in requests])


def _serve(request: Request) -> Answer:
    try:
        with contained_job:
            return _decoded(request)
    except StreamError as error:
        problem = str(error)
    except MemoryError:
        problem = "the stream needs too much memory to decode"
    except Exception:  # one stream's, not the batch's
        _decoders.pop(request.stream, None)
        return Answer(b"", problem="decoding the stream failed unexpectedly", defect=traceback.format_exc())
    _decoders.pop(request.stream, None)
    return Answer(b"", problem=problem)


def _decoded(request: Request) -> Answer:
    """Raises StreamError."""
    decoder = _decoders.get(request.stream)
    if decoder is None or request.state:
        decoder = (
            pickle.loads(request.state)
            if request.state
            else StreamDecoder(request.container, request.num_channels)
        )
        _decoders[request.stream] = decoder
    decoder.push(request.data)
    samples = decoder.take_last() if request.is_end else decoder.take()
    return Answer(samples.tobytes(), decoder.has_more, pickle.dumps(decoder))
