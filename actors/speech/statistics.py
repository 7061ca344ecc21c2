"""What came of a model's transcripts, counted: how far speech and words account for each other."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...protocols.engine.statistics import SpeechStatistics
from ...protocols.transcription.transcript import Coverage, Transcript


@dataclass(slots=True)
class SpeechCounts:
    """Of all files and live turns since the start."""

    coverage: Coverage = field(default_factory=Coverage)
    num_retranscribed: int = 0
    retranscribed_s: float = 0.0

    def count(self, transcript: Transcript) -> None:
        """A transcript is finished."""
        self.coverage += transcript.coverage
        self.num_retranscribed += len(transcript.retranscribed)
        self.retranscribed_s += sum(each.end - each.start for each in transcript.retranscribed)

    def statistics(self) -> SpeechStatistics:
        """Counters since the start."""
        found = self.coverage
        return SpeechStatistics(
            speech_s=found.speech,
            wordless_s=found.speech_without_words,
            num_words=found.words,
            num_words_without_speech=found.words_without_speech,
            num_retranscribed=self.num_retranscribed,
            retranscribed_s=self.retranscribed_s,
        )
