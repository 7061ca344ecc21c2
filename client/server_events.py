"""Answers as server-sent events: their lines, and the events of a streamed transcription. Knows no sockets.

Read next: `client/client.py`.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from ..protocols.realtime.invalid_frames import MALFORMED
from ..protocols.transcription.rest import TranscriptTextDelta, TranscriptTextSegment
from .connection import status_error
from .errors import APIError, SensoriumConnectionError

TextDelta: TypeAlias = TranscriptTextDelta
"""More text of a streamed transcription: append its `delta` to what came before."""
TextSegment: TypeAlias = TranscriptTextSegment
"""A segment of a streamed transcription that asked for times, as soon as it is sure: as in
`Transcript.segments`, and with its `words` if they were asked for."""


class TextDone(msgspec.Struct, frozen=True, tag_field="type", tag="transcript.text.done"):
    """The whole text of a streamed transcription; the last event. What else servers add is ignored."""

    text: str
    language: str | None = None
    """Its code, and the `duration` in seconds, where times were asked for."""
    duration: float | None = None


TextEvent: TypeAlias = TextDelta | TextSegment | TextDone


def event_data(line: str) -> str | None:
    """What a line of a server-sent event stream carries; None for comments (keep-alives) and `[DONE]`."""
    if not line.startswith("data:"):
        return None
    data = line.removeprefix("data:").strip()
    return None if data == "[DONE]" else data


def stream_error(data: str) -> APIError | None:
    """The error that a server streams, if that is what an event is."""
    try:
        payload = msgspec.json.decode(data)
    except MALFORMED:
        return None
    return status_error(500, data.encode()) if isinstance(payload, dict) and "error" in payload else None


class StreamDecoder:
    """Lines of a server-sent event stream → text events."""

    def __init__(self) -> None:
        self._decoder: msgspec.json.Decoder[TextEvent] = msgspec.json.Decoder(TextEvent)
        self._is_done = False

    def feed(self, line: str) -> TextEvent | None:
        """The event in one line, without its line end. Raises APIError for an error the server streams."""
        data = event_data(line)
        if data is None:
            return None
        try:
            event = self._decoder.decode(data)
        except MALFORMED:
            error = stream_error(data)
            if error is not None:
                raise error from None
            return None  # an event of a type this version does not know
        self._is_done |= isinstance(event, TextDone)
        return event

    def end(self) -> None:
        """No more lines come. Raises SensoriumConnectionError if the last event did not."""
        if not self._is_done:
            raise SensoriumConnectionError("the transcription broke off before its end")
