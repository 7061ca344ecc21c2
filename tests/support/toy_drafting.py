"""A draft model of the fake runner: one layer, which computes with the model's rows.

What its layer keeps of a token is a hash of the model's row of it and of the next token, as in a head that
predicts the token after next. Drafts depend on exactly what it sees of that, so that a block of another
sequence, or one whose next token is another, gives other drafts than `seeds_alone` says.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from sensorium.engine.planning.plan import Proposal
from sensorium.engine.planning.proposers import Proposer
from support.fake_layers import Kv

MAX_DRAFT = 3


def draft_cell(row: Kv, next_token: int) -> Kv:
    """What is kept of a token."""
    return blake2b(row + repr(next_token).encode(), digest_size=8).digest()


def seed_of(seen: Sequence[Kv]) -> int:
    """What a draft is made from: all cells it sees, the newest last."""
    return int.from_bytes(blake2b(b"".join(seen), digest_size=4).digest(), "big")


def drafted_ids(seed: int, right: Sequence[int]) -> tuple[int, ...]:
    """One to three tokens, of which the last one is mostly wrong, where these would be right."""
    ids = [*right[: 1 + seed % MAX_DRAFT]]
    if ids and seed % 4:
        ids[-1] = (ids[-1] + 1) % 40
    return tuple(ids)


class ToyProposer(Proposer):
    """Hands on what the runner drafted, and sees that it is told what becomes of it."""

    proposes_ahead = False

    def __init__(self) -> None:
        self._drafted: Proposal | None = None
        self._in_flight: Proposal | None = None

    def propose(self, tokens: Sequence[int], limit: int, num_ahead: int = 0) -> Proposal | None:
        """See `Proposer`."""
        assert num_ahead == 0, "asked while a result is outstanding"
        assert tokens
        if self._drafted is None:
            return None
        self._in_flight = Proposal(self._drafted.ids[:limit], self._drafted.handle)
        return self._in_flight

    def accepted(self, proposal: Proposal, num_accepted: int) -> None:
        """See `Proposer`."""
        assert proposal is self._in_flight, "told of a proposal of another"
        assert 0 <= num_accepted <= len(proposal.ids)
        self._in_flight = None

    def drafted(self, proposal: Proposal | None) -> None:
        """See `Proposer`."""
        self._drafted = proposal

    def is_over(self, tokens: Sequence[int]) -> bool:
        """See `Proposer`."""
        return False
