"""A transcript as SRT or WebVTT. Times are clock times with milliseconds; a cue is a segment.

`protocols/rest.py` chooses between these and the JSON shapes.
"""

from __future__ import annotations

from collections.abc import Iterator

from .transcript import Transcript


def clock(seconds: float, separator: str) -> str:
    """`HH:MM:SS<separator>mmm`, rounded to the nearest millisecond; hours grow past 99."""
    milliseconds = max(0, round(seconds * 1000))
    minutes, milliseconds = divmod(milliseconds, 60_000)
    hours, minutes = divmod(minutes, 60)
    whole, milliseconds = divmod(milliseconds, 1000)
    return f"{hours:02d}:{minutes:02d}:{whole:02d}{separator}{milliseconds:03d}"


def _cues(transcript: Transcript) -> Iterator[tuple[float, float, str]]:
    """(start, end, text) in one line each; a transcript without segments is one cue."""
    segments = [(segment.start, segment.end, segment.text) for segment in transcript.segments]
    for start, end, text in segments or [(0.0, transcript.duration, transcript.text)]:
        line = " ".join(text.split())
        if line:
            yield start, max(start, end), line


def srt(transcript: Transcript) -> str:
    """SubRip: numbered cues, comma before the milliseconds."""
    return "".join(
        f"{number}\n{clock(start, ',')} --> {clock(end, ',')}\n{text.replace('-->', '->')}\n\n"
        for number, (start, end, text) in enumerate(_cues(transcript), start=1)
    )


def vtt(transcript: Transcript) -> str:
    """WebVTT (W3C): full stop before the milliseconds, `&`, `<` and `>` escaped in cue text."""
    return "WEBVTT\n\n" + "".join(
        f"{clock(start, '.')} --> {clock(end, '.')}\n{_escape(text)}\n\n"
        for start, end, text in _cues(transcript)
    )


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
