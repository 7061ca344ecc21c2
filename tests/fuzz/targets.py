"""What is fuzzed: each parser of ours with its laws, as a function that fails on bytes that break one.

A target takes any bytes. Errors that a parser is to raise for bad input are its answer; anything else that
comes out is a bug, and so is an answer that depends on how the bytes were cut. `tests/fuzz/run.py` drives
them with coverage, `tests/fuzz/test_targets.py` with the seeds alone.
"""

from __future__ import annotations

import json
import math
import pickle
from collections.abc import Callable, Sequence
from typing import Final

import h11
import msgspec
from sensorium.actors.config.blocked_networks import is_reachable
from sensorium.actors.transport.asgi_scope import body_length, is_upgrade, scope_of
from sensorium.actors.transport.h11_limits import MAX_FIELDS, bound_heads
from sensorium.actors.transport.websocket import handshake
from sensorium.media.audio.containers import sniff
from sensorium.media.streams.packets import MAX_HEADER_BYTES, Demuxer, Item, Packet, StreamError
from sensorium.media.streams.sniff import open_demuxer
from sensorium.media.vision.images import picture_size
from sensorium.media.vision.video_container import sniff_video
from sensorium.protocols.calls.frames import CallFrame, decode_call_frame
from sensorium.protocols.chat.content import read_address, read_file
from sensorium.protocols.chat.frame_list import is_frame_list, pack_frames, unpack_frames
from sensorium.protocols.errors import ClientError, MediaError, SensoriumError, TooLargeError
from sensorium.protocols.realtime.codec import decode_client_event, decode_server_event
from sensorium.protocols.shared.container_format import StreamContainer, parse_container
from sensorium.protocols.shared.data_uri import read_data_text
from sensorium.realtime.calls.call import CallMachine
from sensorium.realtime.calls.effects import Begin, CallEffect, Hang, SendEvent
from websockets.frames import Frame, Opcode
from websockets.protocol import Protocol, Side

bound_heads()

_CUTS: Final = (1, 7, 64, 1009)
_MAX_PIECES: Final = 200
_MAX_MESSAGE: Final = 1 << 16


def _blame(is_right: bool, error: Exception) -> None:
    """Fail on a refusal that does not say what is to be said."""
    if not is_right:
        raise AssertionError(f"a poor refusal: {error!r}") from error


def demuxer(container: StreamContainer) -> Callable[[bytes], None]:
    """A demuxer gives the same packets, or the same refusal, however the bytes are cut and wherever it is
    pickled, and never more bytes than it was given."""

    def target(data: bytes) -> None:
        whole, problem = _demuxed(container, [data])
        size = max(_CUTS[len(data) % len(_CUTS)], len(data) // _MAX_PIECES)
        pieces = [data[start : start + size] for start in range(0, len(data), size)]
        cut, other_problem = _demuxed(container, pieces)
        assert cut[: len(whole)] == whole[: len(cut)], "packets depend on the cuts"
        assert (problem is None) == (other_problem is None), f"{problem!r} or {other_problem!r}"
        assert problem is not None or cut == whole
        num_bytes = sum(len(item.data) for item in whole if isinstance(item, Packet))
        assert num_bytes <= len(data) + MAX_HEADER_BYTES

    return target


def _demuxed(container: StreamContainer, pieces: Sequence[bytes]) -> tuple[list[Item], str | None]:
    stream: Demuxer = open_demuxer(container)
    items: list[Item] = []
    try:
        for number, piece in enumerate(pieces):
            if number == len(pieces) // 2:
                stream = pickle.loads(pickle.dumps(stream))
            items += stream.push(piece)
        items += stream.end()
    except StreamError as error:
        return items, str(error)
    return items, None


def http_heads(data: bytes) -> None:
    """Requests are read, or refused by h11's own error; what is made of their heads is plain values."""
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=64 * 1024)
    half = len(data) // 2
    try:
        for piece in (data[:half], data[half:]):
            connection.receive_data(piece)
            while isinstance(event := connection.next_event(), h11.Request | h11.Data | h11.EndOfMessage):
                if isinstance(event, h11.Request):
                    _read_head(event)
            if event is h11.PAUSED or isinstance(event, h11.ConnectionClosed):
                return
    except h11.RemoteProtocolError as error:
        _blame(400 <= error.error_status_hint < 600, error)


def _read_head(request: h11.Request) -> None:
    assert len(list(request.headers)) <= MAX_FIELDS
    scope = scope_of(request, client=("127.0.0.1", 1), server=("127.0.0.1", 2))
    assert scope["type"] == ("websocket" if is_upgrade(request) else "http")
    assert (body_length(request) or 0) >= 0
    try:
        assert handshake(request).status_code == 101
    except ClientError as error:
        _blame(bool(error.message), error)


def websocket_frames(data: bytes) -> None:
    """Frames come out the same however they are cut; what is wrong closes the connection."""
    found = []
    for size in (len(data) or 1, _CUTS[len(data) % len(_CUTS)]):
        protocol = Protocol(Side.SERVER, max_size=_MAX_MESSAGE)
        for start in range(0, len(data), size):
            protocol.receive_data(data[start : start + size])
        frames = [frame for frame in protocol.events_received() if isinstance(frame, Frame)]
        assert all(len(frame.data) <= _MAX_MESSAGE for frame in frames)
        found.append([(frame.opcode, frame.data) for frame in frames if frame.opcode is not Opcode.CLOSE])
    assert found[0] == found[1]


def data_urls(data: bytes) -> None:
    """A file's URL is its bytes, an address or a refusal that names the field."""
    text = data.decode("utf-8", "replace")
    raw = msgspec.Raw(json.dumps(text).encode())
    for kind in ("image", "video", "audio"):
        try:
            part = read_file(kind, raw, "url", "part")
        except (ClientError, MediaError, TooLargeError) as error:
            _blame(error.param == "url", error)
        else:
            assert part.kind == kind
            is_address = text.lower().startswith(("http:", "https:", "file:"))
            assert (part.address is not None) == is_address
            if is_frame_list(part.data):
                frames, fps = unpack_frames(part.data)
                assert unpack_frames(pack_frames(frames, fps)) == (frames, fps)
    for read in (read_data_text, read_address):
        try:
            read(text, "url")
        except ClientError as error:
            _blame(error.param == "url", error)


def frame_lists(data: bytes) -> None:
    """A list is what was packed, or refused."""
    try:
        frames, fps = unpack_frames(data)
    except MediaError as error:
        _blame(error.param == "video", error)
    else:
        assert math.isfinite(fps)
        assert unpack_frames(pack_frames(frames, fps)) == (frames, fps)


def picture_headers(data: bytes) -> None:
    """A picture has a size within the limits, or is refused."""
    assert sniff(data) is None or isinstance(sniff_video(data), str | None)
    try:
        height, width = picture_size(data)
    except (MediaError, TooLargeError) as error:
        _blame(error.param == "image", error)
    else:
        assert height > 0 < width


def call_frames(data: bytes) -> None:
    """A provider's frames, one a line, make a call that ends once, with every event numbered."""
    machine, now = CallMachine("call", now=0.0), 0.0
    effects: list[CallEffect] = []
    for line in data.split(b"\n")[:50]:
        now += 0.1
        frame: CallFrame | bytes | ClientError
        try:
            frame = line if line[:1] == b"\0" else decode_call_frame(line.decode("utf-8", "replace"))
        except ClientError as error:
            frame = error
        effects += machine.receive(frame, now=now)
        if effects and isinstance(effects[-1], Begin):
            effects += machine.agreed()
    effects += machine.end("disconnected", now=now)
    effects += machine.on_deadline(now=now + 100.0)
    seqs = [effect.event.seq for effect in effects if isinstance(effect, SendEvent)]
    assert seqs == list(range(1, len(seqs) + 1))
    assert sum(isinstance(effect, Hang) for effect in effects) == 1
    assert machine.is_over


def events(data: bytes) -> None:
    """Whatever a client or a server sends is an event, or an error event that says what is wrong."""
    text = data.decode("utf-8", "replace")
    for answers in (False, True):
        event = decode_client_event(text, answers=answers)
        assert not isinstance(event, Exception)
    try:
        decode_server_event(text)
    except ValueError as error:
        _blame(bool(str(error)), error)


def names(data: bytes) -> None:
    """Types of containers and addresses of hosts are known, or refused by name."""
    text = data.decode("utf-8", "replace")
    try:
        parse_container(text, param="format")
    except SensoriumError as error:
        _blame(error.param == "format", error)
    try:
        is_reachable(text)
    except ValueError as error:
        _blame(bool(str(error)), error)


TARGETS: Final[dict[str, Callable[[bytes], None]]] = {
    "webm": demuxer("webm"),
    "ogg": demuxer("ogg"),
    "mp4": demuxer("mp4"),
    "mp3": demuxer("mp3"),
    "flac": demuxer("flac"),
    "aac": demuxer("aac"),
    "auto": demuxer("auto"),
    "http_heads": http_heads,
    "websocket_frames": websocket_frames,
    "data_urls": data_urls,
    "frame_lists": frame_lists,
    "picture_headers": picture_headers,
    "call_frames": call_frames,
    "events": events,
    "names": names,
}
