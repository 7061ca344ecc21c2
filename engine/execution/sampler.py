"""From logits to tokens: greedy or random choice, its log-probabilities, and the check of a draft.

One code path for all: at every row the sequence chooses its own token from that row's logits and its own
randomness, and a draft is accepted as far as it equals those choices. Against a certain draft (a point mass)
that is exact rejection sampling, so it never changes a result. A random choice depends on (seed, index of
the generated token) and the logits alone, never on who else is in the batch.

A draft that was drawn from known probabilities q is accepted more often, and a random choice depends on it
too: the choice is the drafted token with probability min(1, p / q), else a token drawn from what p has more
than q (Leviathan et al. 2023, Chen et al. 2023). So results are others than without the draft, but of the
same distribution; greedy ones are the same.

`choose` does the tensor work and changes no sequence; `accept` advances one. So a step that ran out of
memory can be tried again. What may be said at all is `engine/execution/logits.py`.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ...kernels.argmax import Best, best_of
from ...kernels.sampling import Filters, draw_weighted, probabilities
from ...kernels.sampling import draw as draw_filtered
from ...kernels.transfer import to_device
from ...protocols.engine.messages import (
    Fault,
    FinishReason,
    PromptLogprobs,
    RequestId,
    SamplingParams,
    TokensSampled,
    TopLogprobs,
)
from .grammar import GrammarError
from .logits import RowSpan, add_phrases, apply_rules
from .token_rules import NEVER

MIN_TEMPERATURE = 1e-5
"""Below, the choice is greedy: dividing by it would leave one token anyway."""

_MAX_ELEMENTS = 1 << 24
"""Logits whose running sums (8 bytes each) are in memory at once."""

NOT_FINITE = "the model computed values that are not finite"
_NO_TOKEN = "the sampling rules leave no token to choose"


@dataclass(slots=True)
class Choice:
    """What one sequence chose at each of its rows, as if the draft before it were accepted."""

    token_ids: Sequence[int]
    error: str | None = None
    fault: Fault | None = None
    logprobs: Sequence[float] = ()
    top: Sequence[TopLogprobs] = field(default=())
    lifted: Sequence[bool] = ()


def choose(logits: Tensor, spans: Sequence[RowSpan]) -> list[Choice]:
    """Choose at every row of float32 logits [rows, vocab], which are overwritten.

    A sequence whose logits are not finite, or whose rules leave no token, gets an `error` of its own.
    """
    ruled = [index for index, span in enumerate(spans) if span.state.rules is not None]
    errors: dict[int, str] = {}
    raw: Tensor | None = None
    wants_logprobs = any(span.state.sampling.logprobs is not None for span in spans)
    plain: Tensor | None = None
    plain_ids: list[int] = []
    if ruled:
        raw = torch.isfinite(best_of(logits).values)  # rules may hide what is not finite
        faults = apply_rules(logits, [spans[index] for index in ruled])
        errors = {ruled[place]: message for place, message in faults.items()}
        if any(span.state.sampling.phrases is not None for span in spans):
            plain = logits.clone()
            plain_best = best_of(plain, with_log_sums=wants_logprobs)
            plain_ids = plain_best.token_ids.tolist()
            add_phrases(logits, spans)
    best = best_of(logits, with_log_sums=wants_logprobs)  # of a row with a NaN, that
    _draw_random(logits, spans, best.token_ids)
    if plain is None:
        logprobs = _logprobs_of(logits, spans, best)
    else:
        logprobs = _logprobs_of(plain, spans, best._replace(log_sums=plain_best.log_sums))
    chosen: list[int] = best.token_ids.tolist()
    tops: list[float] = best.values.tolist()
    finite: list[bool] | None = None if raw is None else raw.tolist()
    results: list[Choice] = []
    for index, span in enumerate(spans):
        first, end = span.first, span.first + 1 + len(span.draft)
        choice = logprobs.get(index) or Choice(())
        choice.token_ids = chosen[first:end]
        if plain is not None and span.state.sampling.phrases is not None:
            is_drawn = span.state.sampling.temperature >= MIN_TEMPERATURE
            both = zip(chosen[first:end], plain_ids[first:end], strict=True)
            choice.lifted = [not is_drawn and token_id != without for token_id, without in both]
        if index in errors:
            choice.error, choice.fault = errors[index], "cannot_follow"
        if choice.error is None and finite is not None and not all(finite[first:end]):
            _cut(choice, [0.0 if each else math.nan for each in finite[first:end]])
        if choice.error is None and not all(map(math.isfinite, tops[first:end])):
            _cut(choice, tops[first:end])
        results.append(choice)
    return results


def accept(span: RowSpan, choice: Choice) -> TokensSampled:
    """Take the longest run of draft tokens equal to the choices, then the first choice that differs.

    Advances the sequence, and marks it finished where it is.
    """
    state, draft = span.state, span.draft
    sampling, stops, matcher = state.sampling, state.stops, state.matcher
    if choice.error is not None:
        state.finished = True
        return TokensSampled(state.request_id, error=choice.error, fault=choice.fault)
    room = sampling.max_tokens - len(state.generated)
    num_checked = len(choice.token_ids) - 1  # what is behind has no choice: as if it were not in the draft
    tokens: list[int] = []
    accepted = 0
    finish: FinishReason | None = None
    stop_logprob: float | None = None
    stop_token_id: int | None = None
    stop_top: TopLogprobs = ()
    for index, token in enumerate(choice.token_ids):
        if len(tokens) >= room:
            break
        if token in stops:
            finish, stop_token_id = "stop", token
            stop_logprob = choice.logprobs[index] if choice.logprobs else None
            stop_top = choice.top[index] if choice.top else ()
            break
        tokens.append(token)
        is_right = index < num_checked and token == draft[index]
        accepted += is_right
        if matcher is not None:
            try:
                matcher.advance((token,))
                is_complete = matcher.is_complete
            except GrammarError as error:
                state.finished = True
                return TokensSampled(state.request_id, error=str(error), fault="cannot_follow")
            if is_complete:
                finish = "stop"
                break
        if not is_right:
            break
    if finish is None and len(tokens) >= room:
        finish = "length"
    state.advance(tokens)
    state.finished = finish is not None
    num = len(tokens)
    return TokensSampled(
        state.request_id,
        token_ids=tuple(tokens),
        logprobs=tuple(choice.logprobs[:num]),
        top_logprobs=tuple(choice.top[:num]),
        num_draft=len(draft),
        num_draft_accepted=accepted,
        finish_reason=finish,
        stop_logprob=stop_logprob,
        stop_token_id=stop_token_id,
        stop_top_logprobs=stop_top,
        lifted=tuple(choice.lifted[:num]),
    )


def _cut(choice: Choice, tops: Sequence[float]) -> None:
    """End the choices before the first row whose highest logit gives none (-inf: rules forbade all).

    If that is behind part of a draft, it may not even be right; if it is, the next step comes here again.
    """
    row = next((row for row, top in enumerate(tops) if not math.isfinite(top)), len(tops))
    if row == 0:
        is_ruled_out = tops[0] == NEVER
        choice.error = _NO_TOKEN if is_ruled_out else NOT_FINITE
        choice.fault = "no_token" if is_ruled_out else "not_finite"
    choice.token_ids = choice.token_ids[:row]


def _draw_random(logits: Tensor, spans: Sequence[RowSpan], best: Tensor) -> None:
    """Put a random choice in the place of the best where a sequence wants one."""
    rows: list[int] = []
    params: list[SamplingParams] = []
    uniforms: list[float] = []
    drawn: list[tuple[RowSpan, Tensor]] = []
    for span in spans:
        sampling = span.state.sampling
        if sampling.temperature < MIN_TEMPERATURE:
            continue
        start = len(span.state.generated)
        for index, row in enumerate(span.rows):
            rows.append(row)
            params.append(sampling)
            uniforms.append(uniform(sampling.seed, span.state.request_id, start + index))
        if span.drawn_from is not None and span.draft:
            drawn.append((span, span.drawn_from))
    size = max(_MAX_ELEMENTS // logits.shape[1], 1)
    for first in range(0, len(rows), size):
        part = slice(first, first + size)
        where = to_device(torch.tensor(rows[part]), logits.device)
        best[where] = draw(logits[where], params[part], uniforms[part])
    if drawn:
        _choose_drafted(logits, drawn, best)


def _choose_drafted(logits: Tensor, drawn: Sequence[tuple[RowSpan, Tensor]], best: Tensor) -> None:
    """Put the choices at the rows in front of drafted tokens in the place of the best, where the drafts were
    drawn from probabilities."""
    rows: list[int] = []
    params: list[SamplingParams] = []
    uniforms: list[float] = []
    tries: list[float] = []
    for span, _ in drawn:
        sampling, request_id = span.state.sampling, span.state.request_id
        rows += span.rows[:-1]
        params += [sampling] * len(span.draft)
        start = len(span.state.generated)
        for index in range(start, start + len(span.draft)):
            uniforms.append(uniform(sampling.seed, request_id, index))
            tries.append(uniform(sampling.seed, request_id, index, "accept"))
    where = to_device(torch.tensor(rows), logits.device)
    draft = to_device(torch.tensor([token for span, _ in drawn for token in span.draft]), logits.device)[
        :, None
    ]
    own = probabilities(logits[where], _filters(params))
    theirs = torch.cat([drawn_from[: len(span.draft)] for span, drawn_from in drawn])
    bar = to_device(torch.tensor(tries), logits.device)[:, None] * theirs.gather(1, draft)
    left = (own - theirs).clamp_min(0)
    # Nothing is left where both are equal: then what is not accepted for want of digits is drawn anew.
    left = torch.where(left.sum(-1, keepdim=True) > 0, left, own)
    chosen = torch.where(bar < own.gather(1, draft), draft, draw_weighted(left, uniforms)[:, None])
    best[where] = chosen[:, 0]


def draw(logits: Tensor, params: Sequence[SamplingParams], uniforms: Sequence[float]) -> Tensor:
    """A token for each row of ruled logits [rows, vocab], see `kernels/sampling.py`."""
    return draw_filtered(logits, _filters(params), uniforms)


def _filters(params: Sequence[SamplingParams]) -> Filters:
    return Filters(
        temperature=[p.temperature for p in params],
        top_k=[p.top_k for p in params],
        top_p=[p.top_p for p in params],
        min_p=[p.min_p for p in params],
    )


def uniform(seed: int | None, request_id: RequestId, index: int, purpose: str = "") -> float:
    """A number in [0, 1) from the request's seed (or, without one, its id), the token's index, and what it is
    for, where that is not the choice of the token."""
    digest = hashlib.blake2b(
        f"{request_id if seed is None else seed}/{index}{purpose}".encode(), digest_size=8
    ).digest()
    return (int.from_bytes(digest, "big") >> 11) / (1 << 53)


def _logprobs_of(logits: Tensor, spans: Sequence[RowSpan], best: Best) -> dict[int, Choice]:
    """Log-probabilities of the chosen tokens of the sequences that want them, by index of the span."""
    if best.log_sums is None:
        return {}
    wanting = [(index, span) for index, span in enumerate(spans) if span.state.sampling.logprobs is not None]
    count = max(span.state.sampling.logprobs or 0 for _, span in wanting)
    own: list[float] = (logits.gather(1, best.token_ids[:, None])[:, 0] - best.log_sums).tolist()
    top: list[TopLogprobs] = [()] * len(own)
    if count:
        rows = [row for _, span in wanting for row in span.rows]
        where = to_device(torch.tensor(rows), logits.device)
        for row, likeliest in zip(rows, _top_of(logits[where], best.log_sums[where], count), strict=True):
            top[row] = likeliest
    results: dict[int, Choice] = {}
    for index, span in wanting:
        part, num_top = slice(span.first, span.first + 1 + len(span.draft)), span.state.sampling.logprobs
        results[index] = Choice((), logprobs=own[part], top=[row[:num_top] for row in top[part]])
    return results


def logprobs(logits: Tensor, token_ids: Tensor, num_top: int) -> tuple[list[float], list[TopLogprobs]]:
    """Of token_ids [rows] under logits [rows, vocab], and of the `num_top` likeliest, forbidden ones left
    out (each an empty tuple if `num_top` is 0)."""
    log_sums = logits.logsumexp(-1)
    own: list[float] = (logits.gather(1, token_ids[:, None])[:, 0] - log_sums).tolist()
    return own, _top_of(logits, log_sums, num_top) if num_top else [()] * len(own)


def _top_of(logits: Tensor, log_sums: Tensor, num_top: int) -> list[TopLogprobs]:
    values, ids = logits.topk(min(num_top, logits.shape[1]), -1)
    pairs = zip(ids.tolist(), (values - log_sums[:, None]).tolist(), strict=True)
    return [
        tuple((token_id, value) for token_id, value in zip(*row, strict=True) if value > NEVER)
        for row in pairs
    ]


def prompt_logprobs(parts: Iterable[tuple[Tensor, Sequence[int]]], num_top: int) -> PromptLogprobs:
    """Of prompt tokens under the raw logits of the rows before them, part by part."""
    own: list[float] = []
    top: list[TopLogprobs] = []
    ranks: list[int] = []
    for logits, token_ids in parts:
        ids = torch.tensor(token_ids, device=logits.device)
        values, likeliest = logprobs(logits, ids, num_top)
        own += values
        top += likeliest
        ranks += (1 + (logits > logits.gather(1, ids[:, None])).sum(-1)).tolist()
    return PromptLogprobs(tuple(own), tuple(top), tuple(ranks))
