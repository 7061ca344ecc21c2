"""What a session asks of a way of showing a growing transcript, and the choice between the two there are.

`realtime/transcript/policy.py` waits until hypotheses agree. `realtime/transcript/appended.py` is for models
whose text is final as it comes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ...protocols.transcription.options import Delay
from ...protocols.transcription.streaming import ChunkDelay
from ...protocols.transcription.transcript import Transcript
from .appended import AppendedPolicy, own_delay
from .delay_presets import RELEASES
from .policy import TranscriptPolicy


class ReleasePolicy(Protocol):
    """The releases of one item. Positions are in samples of its audio, from its start."""

    released: str
    """What was released, joined; it only grows."""
    corrected: bool
    """The final text did not begin with what was released."""
    num_withheld: int
    """Hypotheses that had more text and released none of it."""
    num_words_settled: int
    """Words of the newest transcript, from the first on, that stay as they are, times and all."""

    @property
    def usual_update_ms(self) -> int:
        """How much new audio there is between two hypotheses, most of the time."""
        ...

    @property
    def speech_lag(self) -> int:
        """Samples behind speech after which a hypothesis may still have new words of it."""
        ...

    def reach(self, num_samples: int) -> int:
        """How far a hypothesis goes that is asked for when there is so much audio."""
        ...

    def least_news(self, speech_ms: int, factor: float) -> int:
        """New samples for which a hypothesis is worth asking, in a turn with so much speech; `factor` says
        how much less often than usual."""
        ...

    def take(
        self, transcript: Transcript, speech_ms: int, *, is_paused: bool = False, is_in_digits: bool = False
    ) -> str:
        """Take a newer hypothesis over `speech_ms` of speech; return the text to release now, maybe "".

        `is_paused`: the speech has ended with a pause. `is_in_digits`: words behind a number may become a
        part of it.
        """
        ...

    def conclude(self) -> str:
        """Nobody goes on for long: what is to be shown of the newest hypothesis, whatever doubt there is."""
        ...

    def finish(self, text: str, *, unsent: str = "") -> str:
        """Take the final text; return the rest to send, "" where what was sent contradicts it.

        `unsent` is the end of `released` that was not sent: it is given up.
        """
        ...


def policy_maker(delay: Delay, delays: tuple[ChunkDelay, ...]) -> Callable[[], ReleasePolicy]:
    """Makes the policy of an item: at a `delay`, of a model that has `delays` of its own if it streams."""
    if delays:
        chosen = own_delay(delays, delay)
        return lambda: AppendedPolicy(chosen)
    return lambda: TranscriptPolicy(RELEASES[delay])
