"""Phrases that are likelier to be said: how a model would write them, the tree of their tokens, and a watch
that tells when one was begun in vain.

A bonus for a phrase's first token is given before anybody knows what follows, so it makes a model say the
beginning of a phrase that then does not come ("Dial" becomes "Dile" for "Digium"). The watch tells from where
on the answer has to be found again without. `engine/execution/logits.py` gives the bonuses,
`actors/engine/phrases.py` goes back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final

from ...protocols.messages import Phrases
from ...protocols.scripts import is_unspaced

MAX_TOKENS: Final = 32
"""Of a phrase those at its beginning; behind so many there is nothing else to be said."""

_KEPT_TREES: Final = 32
"""A live session's requests share theirs. One takes 5 MB at most."""

FIRST: Final = 0
WITHIN: Final = 1
Places = tuple[int, ...]
"""Nodes of the tree: one of the two roots, then those that were reached. () before anything is said."""


def phrases_of(
    keywords: Sequence[str], boost: float, encode: Callable[[str], Iterable[int]], *, behind: int
) -> Phrases | None:
    """The phrases of `keywords`, made likelier by `boost` (in natural logarithms) where they begin and by
    twice that where they go on; None if there is nothing to make likelier. `behind`: see `Phrases`.

    Behind other words a phrase has a space in front, at the beginning it may. What is spelt with a small
    letter may have a capital: sentences begin so.
    """
    if not keywords or boost == 0:
        return None
    first: dict[tuple[int, ...], None] = {}
    within: dict[tuple[int, ...], None] = {}
    for keyword in keywords:
        for spelt in dict.fromkeys((keyword, keyword[0].upper() + keyword[1:])):
            bare, spaced = _beginning(encode(spelt)), _beginning(encode(f" {spelt}"))
            first |= dict.fromkeys((bare, spaced))
            within[bare if is_unspaced(spelt[0]) else spaced] = None
    return Phrases(behind, tuple(first), tuple(within), begin=boost, go_on=2 * boost)


def _beginning(token_ids: Iterable[int]) -> tuple[int, ...]:
    return tuple(token_ids)[:MAX_TOKENS]


class PhraseTree:
    """The tokens of phrases by what stands before them. Never changes."""

    def __init__(self, phrases: Phrases) -> None:
        self.phrases = phrases
        self._children: list[dict[int, int]] = [{}, {}]
        self._ends: set[int] = set()
        for root, sequences in ((FIRST, phrases.first), (WITHIN, phrases.within)):
            for token_ids in sequences:
                self._add(root, token_ids)

    def _add(self, node: int, token_ids: Sequence[int]) -> None:
        for token_id in token_ids:
            child = self._children[node].get(token_id)
            if child is None:
                child = self._children[node][token_id] = len(self._children)
                self._children.append({})
            node = child
        self._ends.add(node)

    def next_of(self, node: int) -> Mapping[int, int]:
        """By the tokens that go on at a node: the nodes they lead to."""
        return self._children[node]

    def ends_at(self, node: int) -> bool:
        """Whether a phrase is complete."""
        return node in self._ends

    def beginning(self, token_ids: Sequence[int]) -> Places:
        """Where one stands behind a prompt, of which what is said begins behind the last mark."""
        mark = self.phrases.behind
        for index in range(len(token_ids) - 1, -1, -1):
            if token_ids[index] == mark:
                return self.follow((FIRST,), token_ids[index + 1 :])
        return ()

    def follow(self, places: Places, token_ids: Iterable[int]) -> Places:
        """Where one stands behind more tokens."""
        for token_id in token_ids:
            if token_id == self.phrases.behind:
                places = (FIRST,)
            elif places:
                reached = (self._children[node].get(token_id) for node in places)
                places = (WITHIN, *(node for node in reached if node is not None))
        return places

    def expects(self, places: Places, token_id: int) -> bool:
        """Whether a phrase begins or goes on with the token."""
        return any(token_id in self._children[node] for node in places)


tree_of = lru_cache(_KEPT_TREES)(PhraseTree)
"""The tree of phrases, which their requests share. Of the longest it takes 10 ms to make."""


class PhraseWatch:
    """Told an answer token by token, says what of it stays."""

    def __init__(self, tree: PhraseTree, prompt_token_ids: Sequence[int]) -> None:
        self._tree = tree
        self._is_said = bool(tree.beginning(prompt_token_ids))
        self._paths: list[tuple[int, int]] = []
        """Nodes inside of phrases, and where these began; those of the prompt count as begun before it."""
        if self._is_said:
            self._paths = [(node, -1) for node in tree.beginning(prompt_token_ids)]
        self._num_tokens = 0
        self._doubt: int | None = None
        self.back_to: int | None = None
        """The token that only a phrase's bonus brought, where the phrase did not come; None: all is well."""

    @property
    def num_sure(self) -> int:
        """How many tokens stay, whatever comes."""
        return self._num_tokens if self._doubt is None else self._doubt

    def push(self, token_id: int, *, is_lifted: bool) -> None:
        """The next token; `is_lifted` where it would not have come by itself."""
        index, self._num_tokens = self._num_tokens, self._num_tokens + 1
        if token_id == self._tree.phrases.behind:
            self._is_said, self._paths = True, [(FIRST, index + 1)]
            self.back_to = self._doubt
            return
        if not self._is_said:
            return
        reached: list[tuple[int, int]] = []
        for node, start in self._paths:
            child = self._tree.next_of(node).get(token_id)
            if child is not None:
                reached.append((child, index if node in (FIRST, WITHIN) else start))
        self._paths = [(WITHIN, index + 1), *reached]
        if is_lifted and self._doubt is None:
            self._doubt = index
        if self._doubt is None:
            return
        around = [node for node, start in reached if start <= self._doubt]
        if any(map(self._tree.ends_at, around)):
            self._doubt = None
        elif not around:
            self.back_to = self._doubt

    def end(self) -> None:
        """The answer is over."""
        self.back_to = self._doubt
