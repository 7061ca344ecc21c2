"""Sound in a container as it comes: the types that name one, as browsers write them.

`audio/webm;codecs=opus` is what a page's `MediaRecorder` says of itself; `auto` leaves it to the first bytes.
What is in the bytes counts, not what was said of them; a codec that is not served is refused all the same,
before any sound. Raw samples are `protocols/shared/audio_format.py`.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from ..errors import wrong
from .audio_format import AudioFormat

StreamContainer = Literal["auto", "webm", "ogg", "mp4", "mp3", "flac", "aac"]

_CONTAINERS: Final[dict[str, StreamContainer]] = {
    "auto": "auto",
    "audio/webm": "webm",
    "audio/ogg": "ogg",
    "audio/mp4": "mp4",
    "audio/mpeg": "mp3",
    "audio/flac": "flac",
    "audio/aac": "aac",
}
_CODECS: Final[dict[StreamContainer, frozenset[str]]] = {
    "auto": frozenset(),
    "webm": frozenset({"opus", "pcm"}),
    "ogg": frozenset({"opus"}),
    "mp4": frozenset({"mp4a.40", "opus"}),
    "mp3": frozenset({"mp3"}),
    "flac": frozenset({"flac"}),
    "aac": frozenset({"mp4a.40"}),
}
"""What may stand in `codecs`."""
CONTAINER_TYPES: Final = tuple(_CONTAINERS)
"""For messages to clients."""


class ContainerFormat(msgspec.Struct, frozen=True):
    """The bytes of appends, joined, are a stream of this container; `type` is how the client called it."""

    container: StreamContainer
    type: str
    num_channels: int = 0
    """That it must have to be heard apart; 0: not said."""


InputFormat = AudioFormat | ContainerFormat
"""What a session's audio comes as."""


def parse_container(wire_type: str, *, param: str) -> ContainerFormat | None:
    """The container that a type names, if any. Raises BadRequestError for a codec that is not served."""
    name, *parameters = (part.strip() for part in wire_type.lower().split(";"))
    container = _CONTAINERS.get(name)
    if container is None:
        return None
    codecs: list[str] = []
    for parameter in parameters:
        key, _, value = parameter.partition("=")
        if key.strip() != "codecs":
            raise wrong(param, f"has a parameter {key.strip()[:40]!r}; only codecs is known")
        codecs += [codec.strip() for codec in value.strip().strip('"').split(",")]
    for codec in codecs:
        if not codec.startswith(tuple(_CODECS[container]) or ("\0",)):
            allowed = ", ".join(sorted(_CODECS[container])) or "none"
            raise wrong(
                param,
                f"names the codec {codec[:40]!r}; {name} is served with {allowed}",
                code="unsupported_audio_codec",
            )
    return ContainerFormat(container, f"{name};codecs={','.join(codecs)}" if codecs else name)
