"""Which text of a growing transcript can be shown, so that it hardly ever has to be taken back.

Local agreement (Liu et al. 2020, arXiv:2005.11185; Macháček et al. 2023, arXiv:2307.14743): words on which
successive hypotheses agree from the beginning are released, except the newest ones, which the edge of the
audio may have cut. How many must agree and how many words are withheld follows from `delay`.

What the edge makes up does not count: the full stop behind the last word (it stands behind every last word,
and is gone when the next one is heard) and an unfinished character (U+FFFD). Numbers and the beginnings of
sentences and clauses need one more word behind them, since they change most. Text is cut into words by
`realtime/pieces.py`.
"""

from __future__ import annotations

import itertools
from collections import deque
from typing import Final

import msgspec

from ..protocols.realtime_session import Delay
from .pieces import units, weight

REPLACEMENT: Final = "\ufffd"
"""Stands for bytes that are no whole character, at the end of a hypothesis mostly because more follow."""


class ReleaseConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How soon text is shown, and how often it is asked for."""

    first_agree: int
    """Successive hypotheses that must have a word, for the first text of a turn: at least 1."""
    agree: int
    """The same for all later text, which nobody waits for as eagerly."""
    withhold: int
    """Words at the end of a hypothesis that are not released (two characters without spaces make a word)."""
    hold_ms: int
    """A hypothesis about less speech than this is trusted only if one more agrees."""
    settle_ms: int
    """The first word of a turn is not withheld once it stood unchanged for so much audio; 0: never."""
    min_language: float
    """The first text of a turn waits until the model is so sure of the language it found, for at most
    `EARLY_MS` of speech: a wrong one makes wrong words."""
    first_update_ms: int
    """Speech before the first hypothesis of a turn is worth asking for: a short word."""
    early_update_ms: int
    """New audio before the next one, until text was released. Under load they come as they are answered."""
    update_ms: int
    """New audio before the next one from then on."""


RELEASES: Final[dict[Delay, ReleaseConfig]] = {
    "minimal": ReleaseConfig(
        first_agree=1,
        agree=1,
        withhold=1,
        hold_ms=400,
        settle_ms=160,
        min_language=0.5,
        first_update_ms=340,
        early_update_ms=128,
        update_ms=240,
    ),
    "low": ReleaseConfig(
        first_agree=2,
        agree=2,
        withhold=1,
        hold_ms=0,
        settle_ms=200,
        min_language=0.7,
        first_update_ms=340,
        early_update_ms=128,
        update_ms=320,
    ),
    "medium": ReleaseConfig(
        first_agree=2,
        agree=3,
        withhold=1,
        hold_ms=500,
        settle_ms=330,
        min_language=0.8,
        first_update_ms=340,
        early_update_ms=128,
        update_ms=400,
    ),
    "high": ReleaseConfig(
        first_agree=3,
        agree=3,
        withhold=2,
        hold_ms=800,
        settle_ms=800,
        min_language=0.95,
        first_update_ms=400,
        early_update_ms=240,
        update_ms=400,
    ),
    "xhigh": ReleaseConfig(
        first_agree=3,
        agree=3,
        withhold=4,
        hold_ms=2000,
        settle_ms=0,
        min_language=0.95,
        first_update_ms=800,
        early_update_ms=400,
        update_ms=600,
    ),
}
"""By OpenAI's names. Chosen with `examples/benchmarks/tune_release.py` on held-out sentences of
tiny-qwen3-asr: nobody waits for later words as for the first one, and most corrections come from a language
mistaken at the beginning.
"""
EARLY_MS: Final = 2000
"""Speech after which a turn without text is asked about no more often than others, for it may be a hum, and
waits for a clear language no longer, for there may be none."""
_NUM_KEPT: Final = 16
"""Released pieces that are still looked at: where a text is cut follows from the pieces next to it."""


class TranscriptPolicy:
    """The releases of one item. What was released, joined, is `released`; it only grows."""

    def __init__(self, config: ReleaseConfig) -> None:
        self._config = config
        self._history: deque[list[str]] = deque(maxlen=max(config.first_agree, config.agree))
        """The pieces of the newest hypotheses behind `_head`."""
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

    def observe(self, text: str, speech_ms: int, *, language_probability: float = 1.0) -> str:
        """Take a newer hypothesis over `speech_ms` of speech; return the text to release now, maybe "".

        `language_probability` is how sure the model was of the language.
        """
        current = _settled(text[len(self._head) :]) if text.startswith(self._head) else []
        num_agreed = self._num_agreed(current, speech_ms)
        self._history.append(current)
        num_stable = min(num_agreed, self._num_inner(current))
        if self._has_settled(current, speech_ms):
            num_stable = max(num_stable, 1)
        is_unclear = language_probability < self._config.min_language
        if is_unclear and not self.released and speech_ms <= EARLY_MS:
            num_stable = 0
        rest = self._extend(self._head + "".join(current[:num_stable]))
        self.num_withheld += not rest and len(text) > len(self.released)
        if rest and num_stable >= 2 * _NUM_KEPT:
            self._move_head(current[: num_stable - _NUM_KEPT])
        return rest

    def finish(self, text: str, *, unsent: str = "") -> str:
        """Take the final text; return the rest to send, "" where what was sent contradicts it.

        `unsent` is the end of `released` that nobody has seen: it is given up.
        """
        self.released = self.released.removesuffix(unsent)
        self.corrected = not text.startswith(self.released)
        return self._extend(text)

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

    def _has_settled(self, current: list[str], speech_ms: int) -> bool:
        """Whether the turn's first word has stood there long enough to be shown without another behind it."""
        word = current[0] if current else ""
        if word != self._first_word[0]:
            self._first_word = word, speech_ms
        since_ms = speech_ms - self._first_word[1]
        return (
            not self.released
            and weight(word) > 0
            and speech_ms >= self._config.hold_ms
            and 0 < self._config.settle_ms <= since_ms
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
        for _ in range(len(self._history)):
            older = self._history.popleft()
            self._history.append(older[num_passed:] if older[:num_passed] == passed else [])

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


def _num_common(left: list[str], right: list[str]) -> int:
    num_common = 0
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        num_common += 1
    return num_common
