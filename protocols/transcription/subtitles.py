"""A transcript as SRT or WebVTT: cues of a few lines, to be read in the time in which they are shown.

Cues are segments (`media/speech/sentences.py` cuts them at sentences and clauses, none too long for a cue);
those of a word or two join a neighbour where nobody pauses between them.
`protocols/transcription/line_breaking.py` breaks them into lines, `protocols/transcription/rest.py` chooses
between these and the JSON shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from .line_breaking import columns, fits_cue, lines
from .transcript import USUAL_LAYOUT, CueLayout, Transcript, Word, num_letters, words_of

MAX_CUE_S: Final = 7.0
MIN_CUE_S: Final = 1.0
COLUMNS_PER_S: Final = 20
"""Nobody reads faster: a cue stays for longer than it was spoken, if nobody speaks meanwhile."""
FEW_WORDS: Final = 2
"""No cue of so few, unless nothing else is said around it."""
FEW_COLUMNS: Final = 21
"""The same where there are no spaces between words."""
JOINED_PAUSE_S: Final = 1.0
"""Neighbours that are nearer than this may share a cue."""
_SHORTEST_VIEW_S: Final = 0.001
"""Times are written in milliseconds."""


@dataclass(frozen=True, slots=True)
class Cue:
    """What is shown at once; seconds."""

    start: float
    end: float
    text: str
    """In one line, not empty."""
    channel: int | None = None
    """Of the recording, where each is transcribed for itself."""
    is_spaced: bool = True
    """Whether white space stands in front of it."""
    words: tuple[Word, ...] = ()
    """Where these are timed."""

    @property
    def is_short(self) -> bool:
        """Whether it flashes by."""
        num_words = len(self.text.split())
        return num_words <= FEW_WORDS if num_words > 1 else columns(self.text) <= FEW_COLUMNS

    def with_next(self, other: Cue, layout: CueLayout) -> Cue | None:
        """Both in one, if that can be read."""
        if other.start - self.end > JOINED_PAUSE_S or other.end - self.start > MAX_CUE_S:
            return None
        text = f"{self.text}{' ' if other.is_spaced else ''}{other.text}"
        words = self.words + other.words
        return replace(self, end=other.end, text=text, words=words) if fits_cue(text, layout) else None


def clock(seconds: float, separator: str) -> str:
    """`HH:MM:SS<separator>mmm`, rounded to the nearest millisecond; hours grow past 99."""
    milliseconds = max(0, round(seconds * 1000))
    minutes, milliseconds = divmod(milliseconds, 60_000)
    hours, minutes = divmod(minutes, 60)
    whole, milliseconds = divmod(milliseconds, 1000)
    return f"{hours:02d}:{minutes:02d}:{whole:02d}{separator}{milliseconds:03d}"


def srt(transcript: Transcript, layout: CueLayout = USUAL_LAYOUT, *, highlight_words: bool = False) -> str:
    """SubRip: numbered cues, comma before the milliseconds."""
    shown = [
        f"{clock(start, ',')} --> {clock(end, ',')}\n{text}\n\n"
        for cue in cues(transcript, layout)
        for start, end, text in _views(cue, layout, _arrowless, highlight_words=highlight_words)
    ]
    return "".join(f"{number}\n{each}" for number, each in enumerate(shown, start=1))


def vtt(transcript: Transcript, layout: CueLayout = USUAL_LAYOUT, *, highlight_words: bool = False) -> str:
    """WebVTT (W3C): full stop before the milliseconds, `&`, `<` and `>` escaped in cue text; channels are its
    voices."""
    return "WEBVTT\n\n" + "".join(
        f"{clock(start, '.')} --> {clock(end, '.')}\n{_voice(cue)}{text}\n\n"
        for cue in cues(transcript, layout)
        for start, end, text in _views(cue, layout, _escape, highlight_words=highlight_words)
    )


def cues(transcript: Transcript, layout: CueLayout = USUAL_LAYOUT) -> list[Cue]:
    """The cues of a transcript, in order and without overlap; one without segments is one cue. Its segments
    are those of the same layout.

    Those of several channels overlap where these do.
    """
    if transcript.channels:
        per_channel = [
            replace(cue, channel=number)
            for number, channel in enumerate(transcript.channels)
            for cue in cues(channel, layout)
        ]
        return sorted(per_channel, key=lambda cue: cue.start)
    segments = [(segment.start, segment.end, segment.text) for segment in transcript.segments]
    segments = segments or [(0.0, transcript.duration, transcript.text)]
    dealt = words_of((text for _, _, text in segments), transcript.words)
    found: list[Cue] = []
    for (start, end, text), words in zip(segments, dealt, strict=True):
        line = " ".join(text.split())
        if line:
            is_spaced = text[:1].isspace()
            found.append(Cue(start, max(start, end), line, is_spaced=is_spaced, words=words))
    return _readable(_without_short(found, layout), transcript.duration)


def _without_short(found: Sequence[Cue], layout: CueLayout) -> list[Cue]:
    """Short cues join the neighbour that is nearer, if they can."""
    result: list[Cue] = []
    rest = list(found)
    while rest:
        cue = rest.pop(0)
        before = result[-1].with_next(cue, layout) if result else None
        after = cue.with_next(rest[0], layout) if rest else None
        may_join = cue.is_short or (bool(result) and result[-1].is_short)
        is_nearer = (
            after is None or cue.start - result[-1].end <= rest[0].start - cue.end if result else False
        )
        if may_join and before is not None and (is_nearer or not cue.is_short):
            result[-1] = before
        elif cue.is_short and after is not None:
            rest[0] = after
        else:
            result.append(cue)
    return result


def _readable(found: Sequence[Cue], duration_s: float) -> list[Cue]:
    """The same, shown for as long as it takes to read them, where the next one allows it."""
    result: list[Cue] = []
    for number, cue in enumerate(found):
        latest = found[number + 1].start if number + 1 < len(found) else max(duration_s, cue.end)
        wanted = cue.start + max(MIN_CUE_S, columns(cue.text) / COLUMNS_PER_S)
        result.append(replace(cue, end=max(cue.end, min(wanted, latest))))
    return result


def _views(
    cue: Cue, layout: CueLayout, written: Callable[[str], str], *, highlight_words: bool
) -> Iterator[tuple[float, float, str]]:
    """When a cue is shown and how: once, or with each of its words underlined while it is spoken."""
    text = "\n".join(lines(cue.text, layout))
    if not highlight_words or not cue.words:
        yield cue.start, cue.end, written(text)
        return
    at, stop = cue.start, 0
    letters = [place for place, character in enumerate(text) if not character.isspace()]
    for word in cue.words:
        first, stop = stop, min(len(letters), stop + num_letters(word.word))
        start, end = max(at, word.start), min(word.end, cue.end)
        if first == stop or end - start < _SHORTEST_VIEW_S:
            continue
        if start - at >= _SHORTEST_VIEW_S:
            yield at, start, written(text)
        begin, after = letters[first], letters[stop - 1] + 1
        marked = f"<u>{written(text[begin:after])}</u>"
        yield start, end, f"{written(text[:begin])}{marked}{written(text[after:])}"
        at = end
    if cue.end - at >= _SHORTEST_VIEW_S or at == cue.start:
        yield at, cue.end, written(text)


def _voice(cue: Cue) -> str:
    return "" if cue.channel is None else f"<v Channel {cue.channel}>"


def _arrowless(text: str) -> str:
    return text.replace("-->", "->")


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
