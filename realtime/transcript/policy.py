"""Which text of a growing transcript can be shown, so that it hardly ever has to be taken back.

Local agreement (Liu et al. 2020, arXiv:2005.11185; Macháček et al. 2023, arXiv:2307.14743): words on which
successive hypotheses agree from the beginning are released, except the newest ones, which the edge of the
audio may have cut. How many must agree and how many words are withheld follows from `delay`.

A model says how sure it was of each word (`realtime/transcript/confidence.py`), and a word that it was torn
about waits until it is sure, or has said the same for a while. Whether a turn's first word has a capital, a
model is often torn about while little was said, however sure it is of the word; where it tells how likely
either is, the word waits a while for a likely capital, else it has one unless the model is very sure of the
whole. It is the same word as with a small letter before, but a small letter behind a capital must be said
again.

What the edge makes up does not count: the full stop behind the last word (it stands behind every last word,
and is gone when the next one is heard) and an unfinished character (U+FFFD). Numbers and the beginnings of
sentences and clauses need one more word behind them, since they change most. Text is cut into words by
`realtime/transcript/pieces.py`.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Sequence
from typing import Final

from ...protocols.shared.audio_format import ms_to_samples
from ...protocols.transcription.transcript import TokenLogProb, Transcript
from .confidence import certainties, share_of_capitals
from .delay_presets import EARLY_MS, LEAST_SURE, LIKELY_CAPITAL, WILD_GUESS, ReleaseConfig
from .pieces import units, weight

REPLACEMENT: Final = "\ufffd"
"""Stands for bytes that are no whole character, at the end of a hypothesis mostly because more follow."""


_NUM_KEPT: Final = 16
"""Released pieces that are still looked at: where a text is cut follows from the pieces next to it."""
_LONG: Final = 2000
"""Characters that are looked at though they contradict what was released: the next hypothesis may not. All
of a turn of a quarter of an hour would take 7 to 25 ms each time."""


class TranscriptPolicy:
    """The releases of one item (a `ReleasePolicy`). What was released, joined, is `released`: it grows."""

    num_words_settled = 0
    """Only final transcripts have words with times."""
    speech_lag = 0
    """A hypothesis has the words up to its end."""

    def __init__(self, config: ReleaseConfig) -> None:
        self._config = config
        self._history: deque[list[str]] = deque(maxlen=max(config.first_agree, config.agree))
        """The pieces of the newest hypotheses behind `_head`."""
        self._since: list[int] = []
        """How much speech the turn had when each piece of the newest hypothesis came to stand there."""
        self._first_word: tuple[str, int] = "", 0
        """The first word of the newest hypotheses, and how much speech the earliest of them covered."""
        self.released = ""
        self._head = ""
        """The beginning of `released` that is not cut into pieces again, however long the turn becomes."""
        self.corrected = False
        """The final text did not begin with what was released."""
        self.num_withheld = 0
        """Hypotheses that had more text and released none of it."""

    @property
    def usual_update_ms(self) -> int:
        """What `update_ms` is most of the time."""
        return self._config.update_ms

    def update_ms(self, speech_ms: int) -> int:
        """New audio before the next hypothesis is worth asking for, in a turn with `speech_ms` of speech."""
        if self.released or speech_ms > EARLY_MS:
            return self.usual_update_ms
        return self._config.early_update_ms if self._history else self._config.first_update_ms

    def reach(self, num_samples: int) -> int:
        """All of it."""
        return num_samples

    def least_news(self, speech_ms: int, factor: float) -> int:
        """See `ReleasePolicy.least_news`."""
        wanted_ms = self.update_ms(speech_ms)
        return ms_to_samples(round(wanted_ms * factor))

    def take(
        self, transcript: Transcript, speech_ms: int, *, is_paused: bool = False, is_in_digits: bool = False
    ) -> str:
        """See `observe`."""
        return self.observe(
            transcript.text,
            speech_ms,
            language_probability=transcript.language_probability,
            tokens=transcript.tokens,
            is_paused=is_paused,
            is_in_digits=is_in_digits,
        )

    def observe(
        self,
        text: str,
        speech_ms: int,
        *,
        language_probability: float = 1.0,
        tokens: Sequence[TokenLogProb] = (),
        is_paused: bool = False,
        is_in_digits: bool = False,
    ) -> str:
        """Take a newer hypothesis over `speech_ms` of speech; return the text to release now, maybe "".

        `language_probability` is how sure the model was of the language; `tokens` are those of the text, or
        of its end: without any it is sure of every word. `is_paused`: the speech has ended with a pause.
        `is_in_digits`: words behind a number may become a part of it ("20", and then "25").
        """
        text = self._as_shown(text)
        current = _settled(text[len(self._head) :]) if self._may_be_released(text) else []
        any_case = self._config.capital_ms > 0
        sure = certainties(text, tokens, current, len(self._head), any_case=any_case)
        is_torn = False
        if not self.released and not is_paused and sure:
            capital = share_of_capitals(tokens) if any_case else None
            is_torn = capital is not None and capital < LIKELY_CAPITAL and speech_ms < self._config.capital_ms
            is_small = sure[0] >= self._config.sure if capital is None else capital < 0.5 and not is_torn
            if not is_small:
                self._begin_with_capital(current)
        num_agreed = self._num_agreed(current, speech_ms)
        num_known = _num_common(self._history[-1], current) if self._history else 0
        self._since = self._since[:num_known] + [speech_ms] * (len(current) - num_known)
        self._history.append(current)
        num_sure = self._num_sure(current, sure, speech_ms)
        num_stable = min(num_agreed, num_sure, self._num_inner(current))
        if num_sure and self._has_settled(current, speech_ms):
            num_stable = max(num_stable, 1)
        if is_paused:
            num_certain = self._num_certain(current, sure)
            ends_with_number = 0 < num_certain == len(current) and any(map(str.isdigit, current[-1]))
            num_stable = max(num_stable, num_certain - (is_in_digits and ends_with_number))
        is_unclear = language_probability < self._config.min_language and speech_ms <= EARLY_MS
        if not self.released and (is_torn or is_unclear):
            num_stable = 0
        rest = self._extend(self._head + "".join(current[:num_stable]))
        self.num_withheld += not rest and len(text) > len(self.released)
        if rest and num_stable >= 2 * _NUM_KEPT:
            self._move_head(current[: num_stable - _NUM_KEPT])
        return rest

    def conclude(self) -> str:
        """Nobody goes on for long: return the rest of the newest hypothesis, whatever doubt there is."""
        return self._extend(self._head + "".join(self._history[-1])) if self._history else ""

    def finish(self, text: str, *, unsent: str = "") -> str:
        """Take the final text; return the rest to send, "" where what was sent contradicts it.

        `unsent` is the end of `released` that was not sent: it is given up.
        """
        self.released = self.released.removesuffix(unsent)
        self.corrected = not text.startswith(self.released)
        return self._extend(text)

    def _may_be_released(self, text: str) -> bool:
        """Whether it is worth a look: not where it contradicts what was released, and would for minutes."""
        if len(text) - len(self._head) > _LONG:
            return text.startswith(self.released)
        return text.startswith(self._head)

    def _begin_with_capital(self, current: list[str]) -> None:
        """Give the first word a capital, also where older hypotheses had it with a small letter."""
        current[0] = _capitalised(current[0])
        for older in self._history:
            if older and _capitalised(older[0]) == current[0]:
                older[0] = current[0]

    def _num_agreed(self, current: list[str], speech_ms: int) -> int:
        """Pieces from the beginning on which `current` and enough of its predecessors agree."""
        config = self._config
        num_needed = (config.agree if self.released else config.first_agree) - 1
        if speech_ms < config.hold_ms:
            num_needed += 1
        if num_needed > len(self._history):
            return 0
        recent = list(self._history)[len(self._history) - num_needed :]
        return min((_num_common(older, current) for older in recent), default=len(current))

    def _num_sure(self, current: list[str], sure: Sequence[float], speech_ms: int) -> int:
        """Pieces from the beginning that are released already, or that the model is sure enough of."""
        config = self._config
        least = config.sure if self.released else config.first_sure
        end, num_released = len(self._head), len(self.released)
        if not least:
            return len(current)
        later = config.sure
        if not self.released and 0 < config.hurry_ms <= speech_ms:
            least = later = min(least, WILD_GUESS)
        for index, certainty in enumerate(sure):
            end += len(current[index])
            stood_ms = speech_ms - self._since[index] if certainty >= LEAST_SURE else -1
            if end > num_released and certainty < least and stood_ms < config.doubt_ms:
                return index
            if weight(current[index]):
                least = later
        return len(current)

    def _num_certain(self, current: list[str], sure: Sequence[float]) -> int:
        """Pieces from the beginning that a pause behind the last one leaves no more doubt about than is
        allowed: nothing that is cut off, and if nobody goes on, all of them are final."""
        end, num_released = len(self._head), len(self.released)
        for index, certainty in enumerate(sure):
            end += len(current[index])
            if end > num_released and certainty < self._config.pause_sure:
                return index
        return len(current)

    def _has_settled(self, current: list[str], speech_ms: int) -> bool:
        """Whether the turn's first word has stood there long enough to be shown without another behind it."""
        word = current[0] if current else ""
        if word != self._first_word[0]:
            self._first_word = word, speech_ms
        since_ms = speech_ms - self._first_word[1]
        return (
            not self.released and speech_ms >= self._config.hold_ms and 0 < self._config.settle_ms <= since_ms
        )

    def _num_inner(self, current: list[str]) -> int:
        """Pieces of `current` in front of those that are withheld."""
        num_inner, withheld = len(current), 0
        while num_inner and withheld < 2 * self._config.withhold:
            num_inner -= 1
            withheld += weight(current[num_inner])
        if 0 < num_inner < len(current) and any(map(str.isdigit, current[num_inner - 1])):
            num_inner -= 1
        if 1 < num_inner < len(current) and weight(current[num_inner - 2]) == 0:
            num_inner -= 2
        return num_inner

    def _move_head(self, passed: list[str]) -> None:
        """Look at released pieces no more. Hypotheses without them agree on nothing behind them."""
        self._head += "".join(passed)
        num_passed = len(passed)
        del self._since[:num_passed]
        for _ in range(len(self._history)):
            older = self._history.popleft()
            self._history.append(older[num_passed:] if older[:num_passed] == passed else [])

    def _as_shown(self, text: str) -> str:
        """The hypothesis with the capital or small letter that was shown at the beginning of the turn."""
        shown = self.released[:1]
        return shown + text[1:] if shown and text[:1].casefold() == shown.casefold() else text

    def _extend(self, text: str) -> str:
        if not text.startswith(self.released):
            return ""
        rest = text[len(self.released) :]
        self.released = text
        return rest


def _settled(text: str) -> list[str]:
    """The pieces of a hypothesis without what only its edge put there."""
    found = list(itertools.takewhile(lambda unit: REPLACEMENT not in unit, units(text)))
    while found and weight(found[-1]) == 0:
        found.pop()
    return found


def _capitalised(word: str) -> str:
    """The word with its first letter large, where there is one such letter."""
    for index, character in enumerate(word):
        if character.isalpha():
            large = character.upper()
            return word[:index] + large + word[index + 1 :] if len(large) == 1 else word
    return word


def _num_common(left: list[str], right: list[str]) -> int:
    num_common = 0
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        num_common += 1
    return num_common
