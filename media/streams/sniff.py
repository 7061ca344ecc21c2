"""Which demuxer takes a stream apart: the one that was announced, or what the first bytes say.

Nothing is probed: a stream is one of these, or refused. Read next: `packets.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from ...protocols.shared.container_format import StreamContainer
from ..audio.containers import Container, sniff
from .adts import AdtsDemuxer
from .flac import FlacDemuxer
from .id3 import tag_length
from .matroska import MatroskaDemuxer
from .mp3 import Mp3Demuxer
from .mp4 import Mp4Demuxer
from .ogg import OggDemuxer
from .packets import Demuxer, Item, StreamError

_DEMUXERS: Final[dict[StreamContainer, Callable[[], Demuxer]]] = {
    "webm": MatroskaDemuxer,
    "ogg": OggDemuxer,
    "mp4": Mp4Demuxer,
    "mp3": Mp3Demuxer,
    "flac": FlacDemuxer,
    "aac": AdtsDemuxer,
}
_HEAD_BYTES: Final = 16
"""Enough to tell every container, once tags in front of it are gone."""
_SERVED: Final = "WebM, Ogg, MP4, MP3, FLAC and ADTS"
_NAMES: Final[dict[Container | None, str]] = {
    "wav": "WAV",
    "w64": "W64",
    "aiff": "AIFF",
    "au": "AU",
    "caf": "CAF",
    "amr": "AMR",
    "asf": "ASF",
    "ac3": "AC-3",
    "eac3": "E-AC-3",
    "mpeg": "MPEG",
    "avi": "AVI",
    "flv": "FLV",
}
"""Containers that files may be in."""
_FOUND: Final[dict[Container | None, StreamContainer]] = {
    "matroska": "webm",
    "ogg": "ogg",
    "mp4": "mp4",
    "mp3": "mp3",
    "flac": "flac",
    "aac": "aac",
}


def open_demuxer(container: StreamContainer) -> Demuxer:
    """A demuxer for a stream that begins now."""
    return Recogniser() if container == "auto" else _DEMUXERS[container]()


def recognised(head: bytes) -> StreamContainer | None:
    """The container that a stream begins with, by its first 16 bytes; a tag in front of it tells nothing."""
    return _FOUND.get(sniff(head))


def begins_stream(data: bytes, container: StreamContainer) -> bool:
    """Whether these bytes look like the beginning of such a stream."""
    if data.startswith(b"ID3"):
        return container in {"auto", "mp3", "aac"}
    found = recognised(data[:_HEAD_BYTES])
    return found is not None and container in {"auto", found}


class Recogniser:
    """A demuxer that finds out by itself which one it is."""

    def __init__(self) -> None:
        self._head = b""
        self._skipping = 0
        self._found: Demuxer | None = None

    def push(self, data: bytes) -> Sequence[Item]:
        """See `Demuxer.push`."""
        if self._found is not None:
            return self._found.push(data)
        skipped = min(self._skipping, len(data))
        self._skipping -= skipped
        self._head += data[skipped:]
        while length := tag_length(self._head, 0):
            self._skipping = max(0, length - len(self._head))
            self._head = self._head[length:]
        if length is None or len(self._head) < _HEAD_BYTES:
            return ()
        container = recognised(self._head[:_HEAD_BYTES])
        if container is None:
            found = sniff(self._head)
            what = f"is {_NAMES[found]}, which is read as a file only" if found in _NAMES else "is in none"
            raise StreamError(f"the stream {what}; containers that are served live are {_SERVED}")
        self._found = _DEMUXERS[container]()
        head, self._head = self._head, b""
        return self._found.push(head)

    def end(self) -> Sequence[Item]:
        """See `Demuxer.end`."""
        return () if self._found is None else self._found.end()
