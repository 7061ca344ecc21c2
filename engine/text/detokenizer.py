"""One request's tokens to what its reader gets: text, the tokens behind it, and its end at a stop string.

The joins of the texts equal the decode of all ids up to the stop string, however the ids arrive; no text ends
inside a character, also where `max_tokens` cuts it, and nothing of a stop string leaks unasked. Knows the
tokenizer only as a `TextDecoder`.
Read `engine/text/text_decoder.py` and `engine/text/stop_strings.py` for the two parts,
`actors/inference/detokenizer.py` for who feeds it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from ...protocols.engine.messages import (
    NO_ENDING,
    Ending,
    PromptLogprobs,
    SamplingParams,
    TextGenerated,
    TokensSampled,
    TopLogprobs,
)
from .stop_strings import StopStrings
from .text_decoder import ByteDecoder, Decode, ShowingDecoder, TextDecoder, WindowedDecoder

T = TypeVar("T", bound=TokensSampled)

__all__ = ["Collected", "Decode", "Detokenizer", "decoder_maker"]


def decoder_maker(decode: Decode, byte_table: Sequence[bytes] | None = None) -> Callable[[], TextDecoder]:
    """What makes a decoder for one text: by bytes if there is a table, else by `decode`."""
    if byte_table is None:
        return lambda: WindowedDecoder(decode)
    return lambda: ByteDecoder(byte_table)


@dataclass(slots=True)
class _Token:
    """A token whose text is not released yet. `reach` is how much text is certain with it; `end` how much
    is when its own share is, None while that is open."""

    token_id: int
    logprob: float | None
    top: TopLogprobs | None
    reach: int
    end: int | None = None


class Detokenizer:
    """One request. With stop strings, tokens are released together with their text, and a match cuts them
    to those the released text needs; without, each is released as it comes.

    The text of the first `min_tokens` tokens is not searched for stop strings. Where the answer includes what
    ends it, that is the last of its text.
    """

    __slots__ = (
        *("_decoder", "_held", "_includes_stop", "_length", "_min_tokens", "_num_tokens"),
        *("_reach", "_released", "_stops"),
    )

    def __init__(self, decoder: TextDecoder, sampling: SamplingParams | None = None) -> None:
        shown = () if sampling is None else sampling.shown
        self._decoder = ShowingDecoder(decoder, dict(shown)) if shown else decoder
        stops = () if sampling is None else sampling.stop
        self._stops = StopStrings(stops) if stops else None
        self._includes_stop = sampling is not None and sampling.includes_stop
        self._min_tokens = 0 if sampling is None else sampling.min_tokens
        self._num_tokens = 0  # tokens
        self._held: list[_Token] = []
        self._length = 0  # characters that are certain
        self._released = 0  # characters of them that were released
        self._reach = 0  # of the last token released

    def push(self, sampled: TokensSampled) -> TextGenerated:
        """What the reader learns from `sampled`. With a finish reason it is the last; `stop` is set, and the
        reason "stop", if a stop string was found, whatever the reason in `sampled`."""
        if self._stops is not None:
            return self._push_stoppable(self._stops, sampled)
        text = self._decoder.push(sampled.token_ids)
        if sampled.finish_reason is not None:
            text += self._rest(sampled)
        return _with_text(sampled, text, ending=_end_token(sampled))

    def _push_stoppable(self, stops: StopStrings, sampled: TokensSampled) -> TextGenerated:
        texts: list[str] = []
        stop = None
        for index, token_id in enumerate(sampled.token_ids):
            stop = self._take(stops, sampled, index, self._decoder.push((token_id,)), texts)
            if stop is not None:
                break
        if stop is None and sampled.finish_reason is not None:
            text, stop = stops.push(self._rest(sampled))
            texts.append(text)
            if stop is None:
                texts.append(stops.held)
        if stop is not None and self._includes_stop:
            texts.append(stop)
        text = "".join(texts)
        self._released += len(text)
        is_last = sampled.finish_reason is not None
        released = self._cut() if stop is not None else self._let_go(everything=is_last)
        shown = _as_ending(released)
        ending = _end_token(sampled) if stop is None else _as_ending(self._held[len(released) :])
        result = msgspec.structs.replace(
            _with_text(sampled, text, stop, ending),
            token_ids=shown.token_ids,
            logprobs=shown.logprobs,
            top_logprobs=shown.top_logprobs,
        )
        if stop is None:
            return result
        return msgspec.structs.replace(result, finish_reason="stop", error=None, fault=None)

    def _rest(self, sampled: TokensSampled) -> str:
        """What was held back; of a character that `max_tokens` cuts, nothing."""
        return "" if sampled.finish_reason == "length" else self._decoder.flush()

    def _take(
        self, stops: StopStrings, sampled: TokensSampled, index: int, text: str, texts: list[str]
    ) -> str | None:
        """Note one token and the text that became certain with it; the stop string in it, or None."""
        self._num_tokens += 1
        self._length += len(text)
        token = _Token(
            sampled.token_ids[index],
            sampled.logprobs[index] if sampled.logprobs else None,
            sampled.top_logprobs[index] if sampled.top_logprobs else None,
            self._length,
        )
        self._held.append(token)
        if not text:
            return None
        for held in reversed(self._held):
            if held.end is not None:
                break
            held.end = self._length
        if self._num_tokens <= self._min_tokens:
            texts.append(text)
            return None
        free, stop = stops.push(text)
        texts.append(free)
        return stop

    def _let_go(self, *, everything: bool) -> list[_Token]:
        """The tokens whose text is released."""
        num_released = 0
        for token in self._held:
            if not everything and (token.end is None or token.end > self._released):
                break
            num_released += 1
        released, self._held = self._held[:num_released], self._held[num_released:]
        if released:
            self._reach = released[-1].reach
        return released

    def _cut(self) -> list[_Token]:
        """The tokens that the text in front of a stop string still needs."""
        if self._reach >= self._released:
            return []
        needed: list[_Token] = []
        for token in self._held:
            needed.append(token)
            if token.reach >= self._released:
                break
        return needed


@dataclass(slots=True)
class Collected:
    """All of one request's events as one, for who reads only the end. Adding is cheap; text is not made."""

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    top_logprobs: list[TopLogprobs] = field(default_factory=list)
    prompt_logprobs: PromptLogprobs | None = None
    num_cached: int = 0
    num_draft_accepted: int = 0
    probe_probability: float | None = None
    lifted: list[bool] = field(default_factory=list)
    is_first: bool = True

    def add(self, part: TokensSampled) -> None:
        """Take the next event, before or after its text was made."""
        self.token_ids += part.token_ids
        self.num_draft_accepted += part.num_draft_accepted
        if part.logprobs:
            self.logprobs += part.logprobs
            self.top_logprobs += part.top_logprobs
        self.lifted += part.lifted
        if self.is_first:
            self.is_first = False
            self.prompt_logprobs = part.prompt_logprobs
            self.num_cached = part.num_cached
        if part.probe_probability is not None and self.probe_probability is None:
            self.probe_probability = part.probe_probability

    def joined(self, last: T) -> T:
        """Everything as if it had been sampled at once, ending as `last` does; its text stays."""
        return msgspec.structs.replace(
            last,
            token_ids=tuple(self.token_ids),
            logprobs=tuple(self.logprobs),
            top_logprobs=tuple(self.top_logprobs),
            prompt_logprobs=self.prompt_logprobs,
            num_cached=self.num_cached,
            num_draft_accepted=self.num_draft_accepted,
            probe_probability=self.probe_probability,
            lifted=tuple(self.lifted),
        )


def _as_ending(tokens: Sequence[_Token]) -> Ending:
    if not tokens:
        return NO_ENDING
    return Ending(
        tuple(token.token_id for token in tokens),
        tuple(token.logprob for token in tokens if token.logprob is not None),
        tuple(token.top for token in tokens if token.top is not None),
    )


def _end_token(sampled: TokensSampled) -> Ending:
    if sampled.stop_token_id is None:
        return NO_ENDING
    if sampled.stop_logprob is None:
        return Ending((sampled.stop_token_id,))
    return Ending((sampled.stop_token_id,), (sampled.stop_logprob,), (sampled.stop_top_logprobs,))


def _with_text(
    sampled: TokensSampled, text: str, stop: str | None = None, ending: Ending = NO_ENDING
) -> TextGenerated:
    fields: tuple[Any, ...] = (*msgspec.structs.astuple(sampled), text, stop, ending)
    return TextGenerated(*fields)
