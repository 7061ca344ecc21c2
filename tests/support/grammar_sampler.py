"""Answers that follow a grammar, sampled by weights that know nothing."""

from __future__ import annotations

import random

from sensorium.engine.execution.grammar import GrammarError
from sensorium.engine.execution.grammar_store import GrammarStore
from sensorium.engine.text.detokenizer import Detokenizer, decoder_maker
from sensorium.engine.text.token_bytes import byte_table
from sensorium.engine.text.tokenizer import TextTokenizer
from sensorium.engine.text.tools.machine import AnswerFormat
from sensorium.protocols.engine.messages import Grammar, RequestId, SamplingParams, TokensSampled
from support.grammars import matcher_of
from support.text_folder import byte_level_tokenizer


class Sampler:
    """Samples any token the grammar allows, as weights that know nothing do."""

    def __init__(self, kind: AnswerFormat, *, has_tokens: bool) -> None:
        self.kind = kind
        marks = [*kind.marks(with_tools=True), "<think>", "</think>"] if has_tokens else []
        known = {"<think>", "</think>", "<tool_call>", "</tool_call>"}
        whole = (mark for mark in marks if mark not in known and mark.endswith((">", "]")))
        extra = tuple(dict.fromkeys(whole))
        self.text = TextTokenizer(byte_level_tokenizer(320, extra))
        end = self.text.id_of("<|im_end|>")
        assert end is not None
        self.end = end
        self.store = GrammarStore(
            self.text.grammar_json, vocab_size=self.text.num_ids, stop_token_ids=(self.end,)
        )

    def sample(self, grammar: Grammar, seed: int, most: int = 1500) -> str:
        """An answer's text, as it is read."""
        choose = random.Random(seed)
        matcher = matcher_of(self.store, grammar)
        ids: list[int] = []
        while not matcher.is_complete and len(ids) < most:
            packed = matcher.masks((), (self.end,))[0].tolist()
            allowed = [8 * at + bit for at, byte in enumerate(packed) for bit in range(8) if byte >> bit & 1]
            special = [each for each in allowed if each >= self.end]
            few = special if special and choose.random() < 0.3 else allowed
            token_id = choose.choice(few)
            if token_id == self.end:
                break
            ids.append(token_id)
            matcher.advance((token_id,))
        else:
            assert matcher.is_complete, "it must come to an end"
        shown = self.text.hidden_ids(self.kind.marks(with_tools=True))
        decoder = decoder_maker(self.text.decode, byte_table(self.text.backend))()
        detokenizer = Detokenizer(decoder, SamplingParams(max_tokens=1, shown=shown))
        return detokenizer.push(TokensSampled(RequestId("a"), tuple(ids), finish_reason="stop")).text

    def accepts(self, grammar: Grammar, text: str) -> bool:
        """Whether it may be all of an answer."""
        matcher = matcher_of(self.store, grammar)
        try:
            matcher.advance(self.text.encode(text, allow_special=True))
        except GrammarError:
            return False
        at_end = matcher.masks((), (self.end,))[0].tolist()
        return matcher.is_complete or bool(at_end[self.end >> 3] >> (self.end & 7) & 1)
