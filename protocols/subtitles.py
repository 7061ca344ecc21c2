"""A transcript as SRT or WebVTT: cues of at most two lines, to be read in the time in which they are shown.

Cues are segments (`media/sentences.py` cuts them at sentences and clauses, none too long for a cue); those of
a word or two join a neighbour where nobody pauses between them. `protocols/rest.py` chooses between these and
the JSON shapes.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from .transcript import Transcript

LINE_COLUMNS: Final = 42
"""Of a subtitle's line, as broadcasters have it; Chinese and Japanese characters take two."""
MAX_CUE_S: Final = 7.0
MIN_CUE_S: Final = 1.0
COLUMNS_PER_S: Final = 20
"""Nobody reads faster: a cue stays for longer than it was spoken, if nobody speaks meanwhile."""
FEW_WORDS: Final = 2
"""No cue of so few, unless nothing else is said around it."""
FEW_COLUMNS: Final = LINE_COLUMNS // 2
"""The same where there are no spaces between words."""
JOINED_PAUSE_S: Final = 1.0
"""Neighbours that are nearer than this may share a cue."""
_OPENING: Final = "\"'“‘«([{「『（¿¡"
_MARKS: Final = ".!?…。！？,;:，、；："


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

    @property
    def is_short(self) -> bool:
        """Whether it flashes by."""
        num_words = len(self.text.split())
        return num_words <= FEW_WORDS if num_words > 1 else columns(self.text) <= FEW_COLUMNS

    def with_next(self, other: Cue) -> Cue | None:
        """Both in one, if that can be read."""
        if other.start - self.end > JOINED_PAUSE_S or other.end - self.start > MAX_CUE_S:
            return None
        text = f"{self.text}{' ' if other.is_spaced else ''}{other.text}"
        return replace(self, end=other.end, text=text) if fits_cue(text) else None


def clock(seconds: float, separator: str) -> str:
    """`HH:MM:SS<separator>mmm`, rounded to the nearest millisecond; hours grow past 99."""
    milliseconds = max(0, round(seconds * 1000))
    minutes, milliseconds = divmod(milliseconds, 60_000)
    hours, minutes = divmod(minutes, 60)
    whole, milliseconds = divmod(milliseconds, 1000)
    return f"{hours:02d}:{minutes:02d}:{whole:02d}{separator}{milliseconds:03d}"


def columns(text: str) -> int:
    """How wide a text is."""
    if text.isascii():
        return len(text)
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)


def fits_cue(text: str) -> bool:
    """Whether a text in one line can be shown in two of `LINE_COLUMNS`."""
    return len(lines(text)) <= 2


def lines(text: str) -> list[str]:
    """A text without line breaks in as few lines as it can be, of about one length and broken behind
    punctuation if possible. A word that is too long for a line has one of its own."""
    found: list[str] = []
    while not _fits_line(text):
        places = _line_ends(text)
        halves = [
            (left, right)
            for place in places
            if _fits_line(left := text[:place].rstrip()) and _fits_line(right := text[place:].lstrip())
        ]
        if halves:
            return [*found, *min(halves, key=lambda half: _unevenness(*half))]
        if not places:
            break
        found.append(text[: places[-1]].rstrip())
        text = text[places[-1] :].lstrip()
    return [*found, text]


def srt(transcript: Transcript) -> str:
    """SubRip: numbered cues, comma before the milliseconds."""
    return "".join(
        f"{number}\n{clock(cue.start, ',')} --> {clock(cue.end, ',')}\n{_arrowless(_shown(cue.text))}"
        for number, cue in enumerate(cues(transcript), start=1)
    )


def vtt(transcript: Transcript) -> str:
    """WebVTT (W3C): full stop before the milliseconds, `&`, `<` and `>` escaped in cue text; channels are its
    voices."""
    return "WEBVTT\n\n" + "".join(
        f"{clock(cue.start, '.')} --> {clock(cue.end, '.')}\n{_voice(cue)}{_escape(_shown(cue.text))}"
        for cue in cues(transcript)
    )


def cues(transcript: Transcript) -> list[Cue]:
    """The cues of a transcript, in order and without overlap; one without segments is one cue.

    Those of several channels overlap where these do.
    """
    if transcript.channels:
        apart = [
            replace(cue, channel=number)
            for number, channel in enumerate(transcript.channels)
            for cue in cues(channel)
        ]
        return sorted(apart, key=lambda cue: cue.start)
    segments = [(segment.start, segment.end, segment.text) for segment in transcript.segments]
    found: list[Cue] = []
    for start, end, text in segments or [(0.0, transcript.duration, transcript.text)]:
        line = " ".join(text.split())
        if line:
            found.append(Cue(start, max(start, end), line, is_spaced=text[:1].isspace()))
    return _readable(_without_short(found), transcript.duration)


def _without_short(found: Sequence[Cue]) -> list[Cue]:
    """Short cues join the neighbour that is nearer, if they can."""
    result: list[Cue] = []
    rest = list(found)
    while rest:
        cue = rest.pop(0)
        before = result[-1].with_next(cue) if result else None
        behind = cue.with_next(rest[0]) if rest else None
        may_join = cue.is_short or (bool(result) and result[-1].is_short)
        is_nearer = (
            behind is None or cue.start - result[-1].end <= rest[0].start - cue.end if result else False
        )
        if may_join and before is not None and (is_nearer or not cue.is_short):
            result[-1] = before
        elif cue.is_short and behind is not None:
            rest[0] = behind
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


def _fits_line(text: str) -> bool:
    return len(text) <= LINE_COLUMNS and columns(text) <= LINE_COLUMNS


def _line_ends(text: str) -> list[int]:
    """Where the first line may end, in order; behind the first word if that is too long for a line."""
    places: list[int] = []
    for place in range(1, len(text)):
        if _may_break(text, place):
            if places and not _fits_line(text[:place].rstrip()):
                break
            places.append(place)
    return places


def _may_break(text: str, place: int) -> bool:
    """Whether a line may end in front of the character at `place`: at spaces, or between wide characters."""
    before, behind = text[place - 1], text[place]
    if before == " ":
        return True
    is_wide = columns(before) == 2 and columns(behind) == 2
    return is_wide and behind not in _MARKS + "」』）" and before not in _OPENING


def _unevenness(left: str, right: str) -> float:
    """How ill two lines go together: columns of difference, fewer behind punctuation."""
    return abs(columns(left) - columns(right)) - (12 if left[-1:] in _MARKS else 0)


def _shown(text: str) -> str:
    return "\n".join(lines(text)) + "\n\n"


def _voice(cue: Cue) -> str:
    return "" if cue.channel is None else f"<v Channel {cue.channel}>"


def _arrowless(text: str) -> str:
    return text.replace("-->", "->")


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
