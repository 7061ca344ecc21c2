"""The packets of a file's sound track with their times, where libav's are put right.

Used by `media/audio/decode.py`, to measure a file and to decode it: both see the same packets.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import av

from ...protocols.shared.audio_format import INTERNAL_RATE
from ..streams import opus
from .containers import Container, demuxed

_CONTRADICTED_S: Final = 1.0
"""A stamp that is so far ahead of the next one is damaged."""


def believed_packets(
    file: av.container.InputContainer, stream: av.AudioStream, container: Container
) -> Iterator[av.Packet]:
    """The stream's packets, with what libav says of their times put right."""
    held: av.Packet | None = None
    per_s = 1 / float(stream.time_base or 1)
    for packet in demuxed(file, stream):
        _correct_skips(packet, stream, container)
        if held is not None:
            _correct(held, packet, container, per_s)
            yield held
        held = packet
    if held is not None:
        yield held


def _correct_skips(packet: av.Packet, stream: av.AudioStream, container: Container) -> None:
    """Opus has its own rate, and libav counts what is skipped at the one that Matroska states. The last frame
    of ALAC is short, and libav takes from it once more what CAF says it is short of."""
    before, after = skipped(packet)
    if not before and not after:
        return
    context = stream.codec_context
    head = context.extradata or b""
    if container == "matroska" and before and head.startswith(opus.HEAD):
        before = opus.pre_skip(head)
    elif container == "caf" and after and context.codec.name == "alac":
        after = 0
    else:
        return
    skips = packet.get_sidedata("skip_samples")
    skips.update(before.to_bytes(4, "little") + after.to_bytes(4, "little") + bytes(skips)[8:])
    packet.set_sidedata(skips)


def _correct(packet: av.Packet, following: av.Packet, container: Container, per_s: float) -> None:
    """Take from a packet a stamp that the next one's contradicts. Where pages of an Ogg are lost, the hole is
    in front of the first packet that follows; libav places it behind that."""
    if packet.pts is None or following.pts is None:
        return
    ahead = packet.pts - following.pts
    if ahead > _CONTRADICTED_S * per_s:
        packet.pts = None
    elif container == "ogg" and ahead < -(packet.duration or 0) < 0:
        packet.pts = following.pts - (packet.duration or 0)


def time_base_of(stream: av.AudioStream) -> tuple[int, int]:
    """Seconds of one unit of its stamps; in integers, for fractions are slow."""
    return (stream.time_base.numerator, stream.time_base.denominator) if stream.time_base else (0, 1)


def seconds_of(stamp: int | None, time_base: tuple[int, int], more_s: float = 0.0) -> float | None:
    """When a packet or frame begins, and so much later."""
    return None if stamp is None else stamp * time_base[0] / time_base[1] + more_s


def num_samples(packet: av.Packet, stream: av.AudioStream, time_base: tuple[int, int]) -> int:
    """Samples that a packet decodes to, as far as it can be told. A container may state less for the last."""
    context = stream.codec_context
    if context.codec.name in {"opus", "libopus"}:
        return opus.num_frames(bytes(packet))
    rate = context.sample_rate or INTERNAL_RATE
    length: int = round((packet.duration or 0) * time_base[0] * rate / time_base[1])
    is_whole = context.codec.name == "aac" and length > 0
    return max(length, int(context.frame_size)) if is_whole else length


def skipped(packet: av.Packet) -> tuple[int, int]:
    """Samples at a packet's start and end that the container says are no sound."""
    if not packet.size or not packet.has_sidedata("skip_samples"):
        return 0, 0
    data = bytes(packet.get_sidedata("skip_samples"))
    return int.from_bytes(data[:4], "little"), int.from_bytes(data[4:8], "little")
