"""The tokens of a stream without end, cut into segments where nobody speaks, or where one becomes too long.

Where it is cut depends on the tokens and their frames alone: not on how the audio came, on the delay between
two answers, or on the load. What was handed over is forgotten (`begin_at`), so that a stream holds no more
after hours than after a minute. Positions are rows, which are counted from the beginning of the stream.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, field
from typing import Final

import msgspec

from ....protocols.engine.messages import Transduced
from ....protocols.shared.audio_format import ms_to_samples
from ....protocols.transcription.streaming import ChunkDelay, Segmentation, StreamSegment
from ....protocols.transcription.transcript import Transcript, TranscriptionOptions
from ...inference.fed_runs import unanswered
from .family import StreamingFamily
from .reader import PlacedToken, TokenReader, placed_tokens

_LEAD: Final = ms_to_samples(480)
"""Audio of a segment in front of its first token, which comes after the beginning of what it stands for."""
_SILENT: Final = ms_to_samples(2_000)
"""Audio kept where nobody speaks, so that a run that begins again hears the beginning of a word."""


@dataclass(slots=True)
class _Segment:
    """Words that are shown together."""

    boundary: int
    """Where it could begin: the end of the one before."""
    start: int
    end: int
    """Behind its last token. Of one that is over: behind the pause, too, or where the next word begins."""
    reader: TokenReader
    tokens: list[PlacedToken] = field(default_factory=list)
    is_over: bool = False

    def copy(self) -> _Segment:
        """One that goes on from here by itself."""
        made = copy(self)
        made.reader, made.tokens = self.reader.copy(), list(self.tokens)
        return made


class SegmentReader:
    """What a stream has given and nobody has taken yet (a `StreamReader`)."""

    def __init__(self, family: StreamingFamily, options: TranscriptionOptions, delay: ChunkDelay) -> None:
        self.num_rows = 0
        self.is_over = False
        self.segmentation = Segmentation(0, 0)
        """Of tokens that come later."""
        self._family, self._options = family, options
        self._chunk_rows = delay.size // family.row_samples
        self._segments: list[_Segment] = []
        """All but the last are over."""
        self._first = 0
        """Tokens of earlier rows are handed over, or dropped."""
        self._boundary = 0
        """Where the next segment could begin."""
        self._language = ""
        """That the newest tag has named."""

    @property
    def resume_row(self) -> int:
        """The beginning of the chunk with the first row that was not handed over."""
        return self.chunk_from(self._first)

    @property
    def next_row(self) -> int:
        """No word of an earlier row will still come in a segment that is not over."""
        if self._segments and not self._segments[-1].is_over:
            return self._segments[-1].boundary
        return max(self._boundary, self.num_rows - self._rows_of(_SILENT))

    def copy(self) -> SegmentReader:
        """One that goes on from here by itself."""
        made = copy(self)
        made._segments = [each.copy() for each in self._segments]
        return made

    def push(self, event: Transduced) -> None:
        """Take what a chunk brought, but for the tokens of rows that are answered or handed over."""
        for token in placed_tokens(unanswered(event, max(self.num_rows, self._first))):
            self._place(token)
        self.num_rows = max(self.num_rows, event.num_frames)
        self.is_over = event.finish_reason is not None
        self._end_by_silence()

    def begin_at(self, row: int) -> None:
        """All words of earlier rows are handed over, or are not wanted."""
        if row <= self._first:
            return
        self._first = row
        while self._segments and self._segments[0].is_over and self._segments[0].end <= row:
            self._segments.pop(0)
        boundary = self._segments[0].boundary if self._segments else self._boundary
        if boundary != row:  # not where a segment ends
            tokens = [each for each in self._tokens() if each.frame >= row]
            self._segments, self._boundary = [], row
            for token in tokens:
                self._place(token)
            self._end_by_silence()

    def segments(self) -> Iterator[StreamSegment]:
        """Those that were not handed over, times and positions counted from the beginning of the stream."""
        for each in self._segments:
            end = each.end if each.is_over else max(each.end, self.num_rows)
            start, end = (row * self._family.row_samples for row in (each.start, end))
            yield StreamSegment(start, end, self._transcript(each, end - start), each.is_over)

    def whole(self, start: int, end: int) -> Transcript:
        """All words that were not handed over, as one segment that begins at sample `start` of the stream and
        ends at `end`."""
        made = self._made(self._first, start)
        made.tokens += self._tokens()
        made.reader.take(made.tokens)
        made.reader.finish()
        made.is_over = True
        return self._transcript(made, end - start)

    def row_at(self, sample: int) -> int:
        """The first row that begins at that sample of the stream, or behind it."""
        return -(-sample // self._family.row_samples)

    def _rows_of(self, num_samples: int) -> int:
        return -(-num_samples // self._family.row_samples)

    def chunk_from(self, row: int) -> int:
        """Where the chunk with that row begins."""
        return row - row % self._chunk_rows

    def _tokens(self) -> list[PlacedToken]:
        return [token for each in self._segments for token in each.tokens]

    def _made(self, start: int, origin: int) -> _Segment:
        reader = TokenReader(self._family, self._options, origin)
        return _Segment(self._boundary, start, start, reader)

    def _place(self, token: PlacedToken) -> None:
        tag = self._family.text.tags.get(token.token_id)
        if tag is not None:
            self._language = tag.partition("-")[0]
        opened = self._segments[-1] if self._segments and not self._segments[-1].is_over else None
        if tag is not None:  # it comes behind what it names, and is no word
            if opened is not None:
                self._add(opened, token)
            return
        if opened is not None and self._is_cut(opened, token):
            self._end(opened, min(opened.end + self._rows_of(self.segmentation.silence), token.frame))
            opened = None
        if opened is None:
            start = max(self._boundary, token.frame - self._rows_of(_LEAD))
            opened = self._made(start, start * self._family.row_samples)
            self._segments.append(opened)
        self._add(opened, token)
        opened.end = token.frame + 1

    def _add(self, segment: _Segment, token: PlacedToken) -> None:
        segment.tokens.append(token)
        segment.reader.take((token,))

    def _is_cut(self, segment: _Segment, token: PlacedToken) -> bool:
        """Whether a token belongs to the next segment."""
        if token.frame - segment.end >= self._rows_of(self.segmentation.silence):
            return True
        over = token.frame - segment.start - self._rows_of(self.segmentation.max_length)
        # A model that begins no word is not waited for without end.
        begins_word = self._family.text.begins_word(token.token_id)
        return over >= 0 and (begins_word or over >= self._rows_of(_SILENT))

    def _end_by_silence(self) -> None:
        if not self._segments or self._segments[-1].is_over:
            return
        opened, silence = self._segments[-1], self._rows_of(self.segmentation.silence)
        if self.num_rows > opened.end + silence:  # that row has begun in what was fed
            self._end(opened, opened.end + silence)

    def _end(self, segment: _Segment, row: int) -> None:
        segment.reader.finish()
        segment.is_over, segment.end = True, row
        self._boundary = row

    def _transcript(self, segment: _Segment, num_samples: int) -> Transcript:
        reader = segment.reader
        reader.num_rows = self._rows_of(num_samples)
        settled = len(reader.text.rstrip())
        made = reader.final if segment.is_over else reader.transcript
        transcript = made(num_samples, num_settled=settled)
        if not transcript.languages and self._language and transcript.text:
            language = self._language
            transcript = msgspec.structs.replace(transcript, language=language, languages=(language,))
        return transcript
