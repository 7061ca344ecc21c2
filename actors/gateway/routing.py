"""Which server a request goes to: the one that has what it names, else the one that knows its beginning, else
the one with the least in hand.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from ...protocols.errors import NotFoundError, UnavailableError
from .affinity import Hints
from .servers import Server
from .state import GatewayState

_MAX_AHEAD: Final = 4
"""By how much more a server may have in hand than the least busy one, and still get the prompts that it
knows."""


class Route:
    """The servers that may answer one request."""

    def __init__(self, state: GatewayState, hints: Hints) -> None:
        """Raises NotFoundError for a model that none has."""
        self._state = state
        self._hints = hints
        self._owner = state.servers.find(state.affinity.owner(hints.ids))
        self._among = state.servers.having(hints.model)
        if not self._among and self._owner is None:
            raise _no_model(state, hints.model or "")

    @property
    def needs_search(self) -> bool:
        """Whether what the request names may be on any of several servers."""
        return bool(self._hints.ids) and self._owner is None and len(self._among) > 1

    def found(self, server: Server) -> None:
        """The search has found the server that has it."""
        self._owner = server

    def candidates(self) -> Sequence[Server]:
        """All servers that might."""
        return self._among

    def pick(self, tried: Collection[Server]) -> Server | None:
        """The next server to try; None where all have been tried.

        Raises UnavailableError and OverloadedError as `Servers.able` does.
        """
        owner = self._owner
        if owner is not None and owner.health.state != "dead":
            if owner in tried:
                return None
            self._note("id", is_kept=owner.health.takes_work)
            if not owner.health.takes_work:
                raise UnavailableError("The server that has what this request names is not there; try again.")
            return owner  # also where it is being drained: it goes on with what it has
        left = [server for server in self._among if server not in tried]
        if not left:
            return None
        able = self._state.servers.able(left)
        least = self._state.servers.least_loaded(able)
        return self._known_to(able, least) or least

    def _known_to(self, able: Sequence[Server], least: Server) -> Server | None:
        """The server that has computed the prompt's beginning, if it is not too busy."""
        hints, affinity, servers = self._hints, self._state.affinity, self._state.servers
        if hints.cache_key is not None:
            known, ahead, kind = (
                servers.find(affinity.owner([_key_name(hints.cache_key)])),
                _MAX_AHEAD,
                "cache_key",
            )
        else:
            longest = affinity.longest(hints.prefixes)
            if longest is None:
                return None
            known, kind = servers.find(longest[0]), "prefix"
            # What many prompts begin with must not bring them all to one server.
            ahead = _MAX_AHEAD if longest[1] > hints.num_shared else 0
        if known is None:
            return None
        is_kept = known in able and known.load <= least.load + ahead
        self._note(kind, is_kept=is_kept)
        return known if is_kept else None

    def answered(self, server: Server) -> None:
        """A server has taken the request: what begins like it goes there, too."""
        self._state.affinity.computed(self._hints.prefixes, server.name)
        if self._hints.cache_key is not None:
            self._state.affinity.made(_key_name(self._hints.cache_key), server.name)

    def _note(self, kind: str, *, is_kept: bool) -> None:
        self._state.metrics.affinity.labels(kind, "kept" if is_kept else "moved").inc()


def _key_name(cache_key: str) -> str:
    return f"key {cache_key[:200]}"


def _no_model(state: GatewayState, model: str) -> NotFoundError:
    served = sorted({name for server in state.servers for name in server.models or {}})
    return NotFoundError(
        f"The model `{model[:80]}` does not exist; served here: {', '.join(served) or 'none'}.",
        code="model_not_found",
        param="model",
    )
