"""Log-probabilities of an answer in the shapes of the two routes. Reads tokens' names, knows no requests."""

from __future__ import annotations

from collections.abc import Sequence

from ....engine.text.token_text import TokenPlaces, TokenText
from ....protocols.chat.completions import CompletionLogprobs
from ....protocols.chat.response import ChoiceLogprobs, TokenLogprob, TopLogprob
from ....protocols.engine.messages import Ending, PromptLogprobs, TextGenerated, TopLogprobs
from ....protocols.shared.generation import PromptLogprob, PromptLogprobList
from ...text.generation import Answer

_LOWEST = -9999.0
"""Minus infinity is not JSON; OpenAI's value for a token that cannot be."""


def token_number(token_id: int) -> str:
    """What vLLM calls a token where names are not wanted."""
    return f"token_id:{token_id}"


def reported(found: Answer | TextGenerated, *, with_ending: bool) -> Answer | TextGenerated | Ending:
    """The tokens that a body or a chunk reports: those of the text, and `with_ending` those that ended it."""
    ending = found.ending
    if not with_ending or not ending.token_ids:
        return found
    return Ending(
        (*found.token_ids, *ending.token_ids),
        (*found.logprobs, *ending.logprobs),
        (*found.top_logprobs, *ending.top_logprobs),
    )


def chat_logprobs(
    tokens: TokenText,
    token_ids: Sequence[int],
    logprobs: Sequence[float],
    top: Sequence[TopLogprobs],
    *,
    is_numbered: bool = False,
) -> ChoiceLogprobs:
    """Chat's list of tokens."""
    name = token_number if is_numbered else tokens.name
    tops: Sequence[TopLogprobs] = top or [()] * len(token_ids)
    return ChoiceLogprobs(
        [
            TokenLogprob(
                name(token_id),
                _finite(logprob),
                tuple(tokens.bytes_of(token_id)),
                [TopLogprob(name(k), _finite(v), tuple(tokens.bytes_of(k))) for k, v in best],
            )
            for token_id, logprob, best in zip(token_ids, logprobs, tops, strict=True)
        ]
    )


def completion_logprobs(
    tokens: TokenText,
    token_ids: Sequence[int],
    logprobs: Sequence[float | None],
    top: Sequence[TopLogprobs],
    *,
    places: TokenPlaces | None = None,
    num_written: int = 0,
    shows_special: bool = False,
    is_numbered: bool = False,
) -> CompletionLogprobs:
    """Completions' parallel lists; `places` goes on from the tokens before, `num_written` is as in
    `TokenPlaces.push`; with `shows_special` all tokens are written.

    The chosen token is always among the best, as OpenAI has it; None is the log-probability of what nothing
    predicts.
    """
    name = token_number if is_numbered else tokens.name
    tops: Sequence[TopLogprobs] = top or [()] * len(token_ids)
    num_written = len(token_ids) if shows_special else num_written
    best: list[dict[str, float] | None] = []
    for token_id, logprob, candidates in zip(token_ids, logprobs, tops, strict=True):
        if logprob is None:
            best.append(None)
            continue
        named: dict[str, float] = {}
        for key, value in candidates:  # parts of characters share a name: of those the best is told
            named.setdefault(name(key), _finite(value))
        best.append({**named, name(token_id): _finite(logprob)})
    return CompletionLogprobs(
        tokens=[name(token_id) for token_id in token_ids],
        token_logprobs=[None if each is None else _finite(each) for each in logprobs],
        top_logprobs=best,
        text_offset=(places or TokenPlaces(tokens)).push(token_ids, num_written=num_written),
    )


def prompt_logprob_list(
    tokens: TokenText, token_ids: Sequence[int], found: PromptLogprobs | None, num_top: int | None
) -> PromptLogprobList | None:
    """vLLM's `prompt_logprobs`: by position, the best and the token that is there. None if not asked for."""
    if num_top is None:
        return None
    listed: PromptLogprobList = [None]
    found = found or PromptLogprobs((), (), ())  # of one token, which nothing predicts
    rows = zip(token_ids[1:], found.logprobs, found.top, found.ranks, strict=True)
    for token_id, logprob, best, own_rank in rows:
        entries = {
            str(key): PromptLogprob(logprob=_finite(value), decoded_token=tokens.name(key), rank=rank)
            for rank, (key, value) in enumerate(best[:num_top], 1)
        }
        own = PromptLogprob(logprob=_finite(logprob), decoded_token=tokens.name(token_id), rank=own_rank)
        entries.setdefault(str(token_id), own)
        listed.append(entries)
    return listed


def _finite(logprob: float) -> float:
    return max(logprob, _LOWEST)
