"""The model of the fake runner as functions: what a position holds, which token comes next, and how likely.

Everything that may influence a token is hashed into it. Read `fake_runner.py` for who asks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from hashlib import blake2b

from sensorium.protocols.engine.messages import ProbabilityProbe, SamplingParams, TopLogprobs
from support.fake_layers import Kv

VOCAB_SIZE = 50


def hash_of(*parts: object) -> int:
    return int.from_bytes(blake2b(repr(parts).encode(), digest_size=4).digest(), "big")


def key_value(
    past: Sequence[Kv],
    token: int,
    axes: tuple[int, int, int],
    media: tuple[bytes, int] | None,
    content: bytes | None,
) -> Kv:
    """The model's layers: what a position holds, from everything before it."""
    own = repr((token, axes, media, content)).encode()
    return blake2b(b"".join(past) + own, digest_size=8).digest()


def next_token(past: Sequence[Kv], generated: Sequence[int], sampling: SamplingParams) -> int:
    """The model's logits and the sampler: a token from everything that may influence it."""
    choices = _choices(generated, sampling)
    counted = tuple(generated) if sampling.presence_penalty else ()
    return choices[hash_of(b"".join(past), counted, sampling.temperature, sampling.seed) % len(choices)]


def _choices(generated: Sequence[int], sampling: SamplingParams) -> list[int]:
    allowed = range(VOCAB_SIZE - 2) if sampling.allowed_token_ids is None else sampling.allowed_token_ids
    banned = {*sampling.suppress_token_ids, *(() if generated else sampling.begin_suppress_token_ids)}
    return [token for token in allowed if token not in banned]


def likeliest(past: Sequence[Kv], generated: Sequence[int], sampling: SamplingParams) -> TopLogprobs:
    """All tokens that may be next, `next_token` first: some are far likelier than others."""
    weights = {token: 1 + hash_of(b"".join(past), token) % 1000 for token in _choices(generated, sampling)}
    weights[next_token(past, generated, sampling)] = 1001
    total = sum(weight**4 for weight in weights.values())
    ranked = sorted(weights, key=lambda token: -weights[token])
    return tuple((token, math.log(weights[token] ** 4 / total)) for token in ranked)


def probability(probe: ProbabilityProbe, tokens: Sequence[int]) -> float:
    """The probe's answer, from the tokens up to its position."""
    return hash_of("probe", probe.token_id, tuple(tokens[: probe.position + 1])) / 2**32


def logprob(tokens: Sequence[int]) -> float:
    """The log-probability of the last token, given those before."""
    return -float(len(tokens) % 5)
