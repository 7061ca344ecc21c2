"""Text of a model that streams: it is final as it comes, so nothing of it is withheld or corrected.

A hypothesis is worth asking for when a chunk of audio is full; in between it would say the same. What a model
says of a chunk that is not full, once speech has paused, is final only if the turn ends there, so that waits
for the end of the turn (`Transcript.num_settled`).
"""

from __future__ import annotations

from typing import Final

from ...protocols.shared.audio_format import ms_to_samples
from ...protocols.transcription.options import Delay
from ...protocols.transcription.streaming import ChunkDelay
from ...protocols.transcription.transcript import Transcript

_MOST_MS: Final[dict[Delay, int]] = {"minimal": 80, "low": 320, "medium": 560, "high": 1120, "xhigh": 2400}
"""A name means the model's longest delay up to this, or its shortest; of a model that has as many delays as
there are names, each in turn."""
_LATE_TOKENS: Final = ms_to_samples(500)
"""A transducer gives a word's last token up to so long after it was said."""


def own_delay(delays: tuple[ChunkDelay, ...], name: Delay) -> ChunkDelay:
    """Which of a model's delays, at least one, OpenAI's name means. Each has a name."""
    by_length = sorted(delays, key=lambda each: each.delay_ms)
    if len(by_length) == len(_MOST_MS):
        return by_length[list(_MOST_MS).index(name)]
    return [by_length[0], *(each for each in by_length if each.delay_ms <= _MOST_MS[name])][-1]


class AppendedPolicy:
    """The releases of one item (a `ReleasePolicy`) at one delay."""

    corrected = False
    """Every transcript begins with what was settled of the ones before."""
    num_withheld = 0

    def __init__(self, delay: ChunkDelay) -> None:
        self._delay = delay
        self.released = ""
        self.num_words_settled = 0

    @property
    def usual_update_ms(self) -> int:
        """A chunk."""
        return self._delay.delay_ms

    @property
    def speech_lag(self) -> int:
        """The chunk of the last speech is full by then, and so is the one of its late tokens."""
        return self._delay.size + _LATE_TOKENS

    def reach(self, num_samples: int) -> int:
        """To the end of the last full chunk."""
        return self._delay.last_full(num_samples)

    def least_news(self, speech_ms: int, factor: float) -> int:
        """Any chunk: questions cost nothing, chunks do, and they are the same however many a question
        covers."""
        return 1

    def take(
        self, transcript: Transcript, speech_ms: int, *, is_paused: bool = False, is_in_digits: bool = False
    ) -> str:
        """All that is settled."""
        if not is_paused:
            self.num_words_settled = max(len(transcript.words) - 1, 0)  # the last word may go on
        return self._extend(transcript.text[: transcript.num_settled].rstrip())

    def conclude(self) -> str:
        """Nothing waits."""
        return ""

    def finish(self, text: str, *, unsent: str = "") -> str:
        """See `ReleasePolicy.finish`."""
        self.released = self.released.removesuffix(unsent)
        self.corrected = not text.startswith(self.released)
        return self._extend(text)

    def _extend(self, text: str) -> str:
        if not text.startswith(self.released):
            return ""
        rest = text[len(self.released) :]
        self.released = text
        return rest
