"""The compiled grammars of one model: kept for whoever comes next, and for as long as a request needs them.

Compiling takes up to seconds, so it is done before a request is queued (`actors/inference/grammars.py`) and
never in the device's thread: what a request holds stays, and who would hold too much is refused. Read
`engine/execution/grammar.py` for what a grammar is.
"""

from __future__ import annotations

import json
import threading
from collections import Counter, OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import llguidance

from ...protocols.engine.messages import Grammar
from ...protocols.errors import BadRequestError, OverloadedError
from .grammar import PARAM, GrammarError, GrammarMatcher, compile_grammar, compiled_bytes, first_line

MAX_KEPT: Final = 128
"""Those that are held may be more."""
MAX_KEPT_BYTES: Final = 384 * 1024 * 1024
"""About what the worst grammars of their length take when compiled (`compiled_bytes`); the longest Lark
counts for 256 MiB."""
_GREED: Final = 7
"""As in `actors/callers.py`."""


@dataclass(frozen=True, slots=True)
class _Compiled:
    matcher: llguidance.LLMatcher
    end_ids: Sequence[int]
    num_bytes: int


class GrammarStore:
    """Compiled grammars of one model: those that are held, and the most recently used of the others.

    Every method is thread-safe. What is held never exceeds `MAX_KEPT_BYTES`, and nobody holds more than
    `_GREED` times what that leaves for others, but for a single one.
    """

    def __init__(self, tokenizer_json: str, *, vocab_size: int, stop_token_ids: Sequence[int]) -> None:
        """`tokenizer_json` is what `tokenizers.Tokenizer.to_str()` gives; it is read when first needed, or by
        `prepare`.

        `vocab_size`, the rows of the logits, may exceed its ids. `stop_token_ids` are the model's own.
        """
        self._tokenizer_json = tokenizer_json
        self._vocab_size = vocab_size
        self._stop_token_ids = tuple(stop_token_ids)
        self._lock = threading.Lock()
        self._tokenizer: llguidance.LLTokenizer | None = None
        self._kept: OrderedDict[Grammar, _Compiled] = OrderedDict()
        self._num_bytes = 0
        self._held: dict[Grammar, Counter[str]] = {}
        """How often by whom; not all of them are compiled yet."""

    def prepare(self) -> None:
        """Read the tokenizer now: it takes a second of the interpreter, in which nobody should wait."""
        with suppress(BadRequestError), self._lock:  # who asks for a grammar is told
            self._tokenizer = self._tokenizer or self._new_tokenizer()

    def is_ready(self, grammar: Grammar) -> bool:
        """Whether it is compiled and kept."""
        with self._lock:
            return grammar in self._kept

    def hold(self, grammar: Grammar, caller: str = "") -> None:
        """Keep it until `release`, once it is compiled: nothing is compiled in the device's thread, where
        everybody waits. Raises OverloadedError as `compile` does."""
        with self._lock:
            kept = self._kept.get(grammar)
            if kept is not None and grammar not in self._held:
                self._check_room(kept.num_bytes, caller)
            self._held.setdefault(grammar, Counter())[caller] += 1

    def release(self, grammar: Grammar, caller: str = "") -> None:
        """Take back one `hold`."""
        with self._lock:
            holders = self._held[grammar]
            holders[caller] -= 1
            if not holders[caller]:
                del holders[caller]
            if not holders:
                del self._held[grammar]
                self._forget_some()

    def compile(self, grammar: Grammar, caller: str = "") -> None:
        """Make a grammar ready for `matcher`; tens of milliseconds, so called off the step loop.

        Raises BadRequestError that says what is wrong with it, OverloadedError if what is held leaves no
        room to keep it, or too little for others.
        """
        with self._lock:
            tokenizer = self._tokenizer = self._tokenizer or self._new_tokenizer()
            if grammar in self._kept:
                self._kept.move_to_end(grammar)
                return
        matcher = compile_grammar(tokenizer, grammar)
        compiled = _Compiled(matcher, tokenizer.eos_tokens, compiled_bytes(grammar))
        with self._lock:
            if grammar in self._kept:  # by another thread
                return
            if grammar in self._held:
                self._check_room(compiled.num_bytes, caller)
            self._kept[grammar] = compiled
            self._num_bytes += compiled.num_bytes
            self._forget_some()

    def matcher(self, grammar: Grammar) -> GrammarMatcher:
        """A fresh matcher, at the start of the answer. Raises GrammarError if it is not ready."""
        with self._lock:
            kept = self._kept.get(grammar)
            if kept is None:
                raise GrammarError("the grammar of this answer was not kept")
            self._kept.move_to_end(grammar)
            return GrammarMatcher(kept.matcher.deep_copy(), kept.end_ids)

    def _check_room(self, num_bytes: int, caller: str) -> None:
        """Raise OverloadedError if `caller` cannot hold so much more."""
        held = mine = 0
        for each, kept in self._kept.items():
            holders = self._held.get(each, ())
            held += kept.num_bytes if holders else 0
            mine += kept.num_bytes if caller in holders else 0
        free = MAX_KEPT_BYTES - held - num_bytes
        if free < 0 or (caller and mine and mine + num_bytes > _GREED * free):
            raise OverloadedError(
                f"the grammars of running requests leave too little of {MAX_KEPT_BYTES >> 20} MiB for another"
            )

    def _forget_some(self) -> None:
        """Of what nobody holds, the least recently used, until the bounds are kept."""
        unheld = (each for each in tuple(self._kept) if each not in self._held)
        while len(self._kept) > MAX_KEPT or self._num_bytes > MAX_KEPT_BYTES:
            oldest = next(unheld, None)
            if oldest is None:
                return
            self._num_bytes -= self._kept.pop(oldest).num_bytes

    def _new_tokenizer(self) -> llguidance.LLTokenizer:
        """About a second for 150 000 tokens. Raises BadRequestError if it is of a kind that has no bytes."""
        parsed = json.loads(self._tokenizer_json)
        num_ids = len(parsed["model"]["vocab"])
        num_ids = max([num_ids, *(1 + int(token["id"]) for token in parsed.get("added_tokens") or ())])
        # Without one the library would take some token of text for the end.
        stops = [token_id for token_id in self._stop_token_ids if 0 <= token_id < num_ids]
        try:
            if not stops:
                raise ValueError("no stop token")
            size = max(self._vocab_size, num_ids)
            return llguidance.LLTokenizer(self._tokenizer_json, n_vocab=size, eos_token=stops)
        except ValueError as error:
            reason = first_line(str(error))
            raise BadRequestError(
                f"this model's tokenizer cannot follow a grammar: {reason}", param=PARAM
            ) from None
