"""What a request's parameters say of every token it may be answered with, made once and shared.

`engine/execution/logits.py` applies it, with what depends on the answer so far.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch

from ...protocols.engine.messages import Phrases, SamplingParams
from ..text.keyword_boosting import tree_of
from .bias import Bias, PhraseBiases
from .forbidden_tokens import WordEnds

NEVER = float("-inf")

_MAX_CACHED_PHRASES = 128
_MAX_CACHED_WORDS = 64
_MAX_CACHED_BIASES = 64
"""Most requests of a model share theirs. One of `allowed_token_ids` is as large as a row of logits."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of one request, all but those that its own history makes."""

    always: Bias | None
    at_first: Bias | None
    before_minimum: Bias | None
    phrases: PhraseBiases | None = None
    words: WordEnds | None = None


class RuleBook:
    """Makes `Rules` from parameters. Equal ones share their tensors, and so one operation per step."""

    def __init__(self, vocab_size: int, device: torch.device) -> None:
        self._vocab_size = vocab_size
        self._device = device
        self._bias = lru_cache(_MAX_CACHED_BIASES)(self._make_bias)
        self._phrases = lru_cache(_MAX_CACHED_PHRASES)(self._make_phrases)
        self._words = lru_cache(_MAX_CACHED_WORDS)(WordEnds)

    def rules_of(self, sampling: SamplingParams) -> Rules | None:
        """None if nothing but the best logit counts; ids outside the vocabulary are ignored."""
        single = tuple(token_id for token_id, *rest in sampling.bad_words if not rest)
        longer = tuple(word for word in sampling.bad_words if len(word) > 1)
        early = sampling.stop_token_ids if sampling.min_tokens > 0 else ()
        rules = Rules(
            self._bias(sampling.suppress_token_ids + single, sampling.logit_bias, sampling.allowed_token_ids),
            self._bias(sampling.begin_suppress_token_ids, (), None),
            self._bias(early, (), None),
            None if sampling.phrases is None else self._phrases(sampling.phrases),
            self._words(longer) if longer else None,
        )
        if any(
            rule is not None
            for rule in (rules.always, rules.at_first, rules.before_minimum, rules.phrases, rules.words)
        ):
            return rules
        history = (
            sampling.repetition_penalty != 1.0,
            sampling.presence_penalty,
            sampling.frequency_penalty,
            sampling.no_repeat_ngram_size,
            sampling.grammar,
            sampling.reasoning_budget,
        )
        return rules if any(history) else None

    def _make_phrases(self, phrases: Phrases) -> PhraseBiases:
        return PhraseBiases(tree_of(phrases), vocab_size=self._vocab_size, device=self._device)

    def _make_bias(
        self,
        suppressed: tuple[int, ...],
        biases: tuple[tuple[int, float], ...],
        allowed: tuple[int, ...] | None,
    ) -> Bias | None:
        if not suppressed and not biases and allowed is None:
            return None
        values: dict[int, float] = {}
        for token_id, value in biases:
            values[token_id] = values.get(token_id, 0.0) + value
        values |= dict.fromkeys(suppressed, NEVER)
        values = {token_id: value for token_id, value in values.items() if 0 <= token_id < self._vocab_size}
        ids = torch.tensor(list(values), dtype=torch.int64, device=self._device)
        added = torch.tensor(list(values.values()), dtype=torch.float32, device=self._device)
        if allowed is None:
            return Bias(added, ids)
        dense = torch.full((self._vocab_size,), NEVER, device=self._device)
        dense[[token_id for token_id in allowed if 0 <= token_id < self._vocab_size]] = 0.0
        dense[ids] += added
        return Bias(dense, None)
