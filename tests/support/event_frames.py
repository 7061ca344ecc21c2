"""Reading server-sent events the way every client must: comments come whenever the line was silent."""

from __future__ import annotations


def event_frames(text: str) -> list[str]:
    """The frames of a whole stream without comments, the closing `data: [DONE]` included."""
    frames = [frame for frame in text.split("\n\n") if not frame.startswith(":")]
    assert frames.pop() == "", "the stream does not end with a whole frame"
    return frames
