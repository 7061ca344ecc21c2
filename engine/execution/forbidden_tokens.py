"""Tokens that may not come next because of those in front: they would end a forbidden sequence or repeat one.

Both rules read prompt and answer as one text, as transformers' `NoBadWordsLogitsProcessor` and
`NoRepeatNGramLogitsProcessor` do: so an answer that is continued (preempted, searched by beams) obeys them
as it would in one go. Unlike there, an answer may always end, also with words that a part of the prompt ended
with: else it would go on and on. Used by `engine/execution/logits.py`.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int32]
_Runs = npt.NDArray[np.uint8]


class WordEnds:
    """Forbidden sequences of two tokens and more, by those in front of the last. Requests with equal ones
    share it."""

    def __init__(self, sequences: Sequence[tuple[int, ...]]) -> None:
        self._ends: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for *front, end in sequences:
            self._ends[tuple(front)].append(end)
        self._sizes = sorted({len(front) for front in self._ends})

    def next_ids(self, token_ids: array[int]) -> list[int]:
        """Those that would end one; some may come twice."""
        return [end for size in self._sizes for end in self._ends.get(tuple(token_ids[-size:]), ())]


class Unwanted:
    """Of one sequence. A token costs one comparison with each in front of it, whatever these are, and each
    takes five bytes."""

    def __init__(
        self,
        words: WordEnds | None,
        ngram_size: int,
        token_ids: Sequence[int],
        *,
        stop_token_ids: Sequence[int] = (),
    ) -> None:
        self._words = words
        self._ends = np.asarray(stop_token_ids, np.int32)
        self._ngram_size = ngram_size
        self._token_ids = array("i", token_ids)
        self._runs = _runs(np.frombuffer(self._token_ids, np.int32), ngram_size - 1)
        """By place: how many of the newest tokens stand there, too, counted back from it, up to as many as
        are in front of the last of those that may not repeat."""

    def advance(self, token_ids: Sequence[int]) -> None:
        """These were generated."""
        for token_id in token_ids:
            self._runs = self._push(token_id, self._runs)

    def with_draft(self, draft: Sequence[int]) -> Iterator[Ids]:
        """What may not come next, before a draft and behind each of its tokens; nothing changes in the end.
        Ids may come twice."""
        known, runs = len(self._token_ids), self._runs
        yield self._next(runs)
        for token_id in draft:
            runs = self._push(token_id, runs)
            yield self._next(runs)
        del self._token_ids[known:]

    def _push(self, token_id: int, runs: _Runs) -> _Runs:
        """The runs behind one more token."""
        if self._ngram_size > 1:
            found = (np.frombuffer(self._token_ids, np.int32) == token_id).astype(np.uint8)
            found[1:] *= 1 + np.minimum(runs, np.uint8(self._ngram_size - 2))
            runs = found
        self._token_ids.append(token_id)
        return runs

    def _next(self, runs: _Runs) -> Ids:
        token_ids = np.frombuffer(self._token_ids, np.int32)
        found = np.empty(0, np.int32)
        if self._ngram_size == 1:
            found = token_ids.copy()
        elif self._ngram_size:
            found = token_ids[1 + np.flatnonzero(runs == self._ngram_size - 1)]
        if len(found):
            found = found[~np.isin(found, self._ends)]
        if self._words is None:
            return found
        return np.concatenate([found, np.asarray(self._words.next_ids(self._token_ids), np.int32)])


def _runs(token_ids: Ids, most: int) -> _Runs:
    """Of each place but the last, counted up to `most`."""
    last = len(token_ids) - 1
    runs = np.zeros(max(last, 0), np.uint8)
    goes_on = np.ones(len(runs), np.bool_)
    for back in range(min(most, last)):
        goes_on[:back] = False
        goes_on[back:] &= token_ids[: last - back] == token_ids[last - back]
        runs += goes_on
        if not goes_on.any():
            break
    return runs
