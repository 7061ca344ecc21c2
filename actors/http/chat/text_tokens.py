"""Which of an answer's tokens spell its text, where it has reasoning or calls beside: for log-probabilities.

Tokens and text come together, and may be told apart later than they come: what is not known yet waits. Places
are characters of the answer as it came (`AnswerMachine.take_spans`).
"""

from __future__ import annotations

import codecs
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from ....engine.text.token_text import TokenText
from ....protocols.chat.answer_events import Span
from ....protocols.engine.messages import TopLogprobs


@dataclass(frozen=True, slots=True)
class _Token:
    start: int
    end: int
    """Its characters; none for half a character, and for a special token that does not show."""
    token_id: int
    logprob: float
    top: TopLogprobs


@dataclass(frozen=True, slots=True)
class TakenTokens:
    """Some tokens with their log-probabilities, as an answer has them."""

    token_ids: list[int]
    logprobs: list[float]
    top_logprobs: list[TopLogprobs]


class TextTokens:
    """Of one answer, in which these special tokens show."""

    def __init__(self, tokens: TokenText, shown: frozenset[int]) -> None:
        self._tokens = tokens
        self._shown = shown
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._length = 0
        self._waiting: deque[_Token] = deque()

    def push(self, token_ids: Sequence[int], logprobs: Sequence[float], top: Sequence[TopLogprobs]) -> None:
        """More of the answer."""
        tops: Sequence[TopLogprobs] = top or [()] * len(token_ids)
        for token_id, logprob, best in zip(token_ids, logprobs, tops, strict=True):
            start = self._length
            if token_id in self._shown or not self._tokens.is_special(token_id):
                self._length += len(self._decoder.decode(self._tokens.bytes_of(token_id)))
            self._waiting.append(_Token(start, self._length, token_id, logprob, best))

    def take(self, spans: Sequence[Span]) -> TakenTokens:
        """Those of a text that was there; texts are asked for in order. A token that is part of two is told
        with the first, and those in front that are part of none are forgotten."""
        found = TakenTokens([], [], [])
        for start, end in spans:
            while self._waiting and self._waiting[0].start < end:
                token = self._waiting.popleft()
                if token.end > start or token.start >= start:
                    found.token_ids.append(token.token_id)
                    found.logprobs.append(token.logprob)
                    found.top_logprobs.append(token.top)
        return found
