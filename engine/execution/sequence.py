"""What the runner remembers of one sequence between its steps: tokens, counts, grammar, and whether it ended.

Everything here costs the same at each step, however long the context. Of the model's tensors there is only
the vector that a pooled prompt makes; `engine/execution/tasks/` reads and advances this,
`engine/execution/runner.py` keeps it by sequence id.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
from torch import Tensor

from ...kernels.linear.row_adapters import Adapter
from ...protocols.engine.messages import Sample, SamplingParams
from ..planning.plan import SequenceStart
from ..text.keyword_boosting import Places
from .forbidden_tokens import Unwanted
from .grammar import GrammarMatcher
from .reasoning_budget import ReasoningState, beginning
from .token_rules import Rules

_FIRST_CAPACITY = 64
_NO_SAMPLING: Final = SamplingParams(max_tokens=1)
"""Of a sequence that does not sample."""


class TokenCounts:
    """How often tokens were generated, and which were seen at all; grows by one entry per distinct token."""

    def __init__(self, prompt_token_ids: Sequence[int] = ()) -> None:
        distinct = np.unique(np.asarray(prompt_token_ids, dtype=np.int64))
        self._num = len(distinct)
        capacity = max(_FIRST_CAPACITY, 2 * self._num)
        self._ids = np.zeros(capacity, dtype=np.int64)
        self._ids[: self._num] = distinct
        self._generated = np.zeros(capacity, dtype=np.float32)
        self._place = {token_id: place for place, token_id in enumerate(distinct.tolist())}

    @property
    def ids(self) -> npt.NDArray[np.int64]:
        """Distinct tokens seen (a view)."""
        return self._ids[: self._num]

    @property
    def generated(self) -> npt.NDArray[np.float32]:
        """How often each of `ids` was generated (a view)."""
        return self._generated[: self._num]

    def add(self, token_id: int) -> None:
        """One more was generated."""
        place = self._place.get(token_id)
        if place is None:
            place = self._num
            if place == len(self._ids):
                self._ids = np.concatenate([self._ids, np.zeros_like(self._ids)])
                self._generated = np.concatenate([self._generated, np.zeros_like(self._generated)])
            self._place[token_id] = place
            self._ids[place] = token_id
            self._generated[place] = 0
            self._num += 1
        self._generated[place] += 1

    def with_draft(self, draft: Sequence[int]) -> list[tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]]:
        """`ids` and `generated` before a draft and after each of its tokens, as copies; nothing changes."""
        rows = [(self.ids.copy(), self.generated.copy())]
        known = self._num
        for token_id in draft:
            self.add(token_id)
            rows.append((self.ids.copy(), self.generated.copy()))
        for token_id in draft:
            self._generated[self._place[token_id]] -= 1
        for token_id in self._ids[known : self._num].tolist():
            del self._place[token_id]
        self._num = known
        return rows


class SequenceState:
    """One sequence on the device; `generated` includes what was generated before it came here."""

    __slots__ = (
        "adapter",
        "counts",
        "finished",
        "generated",
        "matcher",
        "num_prompt",
        "num_table_blocks",
        "places",
        "pooled",
        "prompt_token_ids",
        "reasoning",
        "request_id",
        "rules",
        "sampling",
        "stops",
        "task",
        "unwanted",
    )

    def __init__(
        self, start: SequenceStart, rules: Rules | None = None, adapter: Adapter | None = None
    ) -> None:
        self.adapter = adapter
        self.request_id = start.request_id
        self.task = start.task
        sampling = start.task.sampling if isinstance(start.task, Sample) else _NO_SAMPLING
        self.sampling = sampling
        self.prompt_token_ids = start.prompt_token_ids
        self.num_prompt = len(start.prompt_token_ids)
        self.generated: list[int] = []
        self.pooled: Tensor | None = None
        """Of a vector what the chunks so far add to it."""
        self.finished = False
        self.rules = rules
        self.matcher: GrammarMatcher | None = None
        obeys_stops = not sampling.ignore_eos or sampling.grammar is not None
        self.stops = frozenset(sampling.stop_token_ids if obeys_stops else ())
        self.num_table_blocks = 0
        """Length of the block table when it was last checked."""
        self.counts: TokenCounts | None = None
        if sampling.repetition_penalty != 1.0:
            self.counts = TokenCounts(start.prompt_token_ids)
        elif sampling.presence_penalty or sampling.frequency_penalty:
            self.counts = TokenCounts()
        phrases = None if rules is None else rules.phrases
        self.places: Places = () if phrases is None else phrases.tree.beginning(start.prompt_token_ids)
        """Where it stands in its phrases."""
        self.reasoning: ReasoningState | None = (
            None if sampling.reasoning_budget is None else beginning(sampling.reasoning_budget)
        )
        self.unwanted: Unwanted | None = None
        self.advance(start.generated)
        words = None if rules is None else rules.words
        if words is not None or sampling.no_repeat_ngram_size:
            whole = (*start.prompt_token_ids[sampling.ngrams_from :], *start.generated)
            self.unwanted = Unwanted(
                words, sampling.no_repeat_ngram_size, whole, stop_token_ids=sampling.stop_token_ids
            )

    def follow(self, matcher: GrammarMatcher) -> None:
        """Use a fresh matcher. Raises GrammarError if what was generated already does not match."""
        matcher.advance(self.generated)
        self.matcher = matcher

    @property
    def num_tokens(self) -> int:
        """Prompt and answer so far."""
        return self.num_prompt + len(self.generated)

    def advance(self, token_ids: Sequence[int]) -> None:
        """These were generated; the matcher is advanced by whoever knows what it said."""
        self.generated.extend(token_ids)
        if self.rules is not None and self.rules.phrases is not None:
            self.places = self.rules.phrases.tree.follow(self.places, token_ids)
        if self.reasoning is not None:
            self.reasoning = self.reasoning.follow(token_ids)
        if self.unwanted is not None:
            self.unwanted.advance(token_ids)
        if self.counts is not None:
            for token_id in token_ids:
                self.counts.add(token_id)
