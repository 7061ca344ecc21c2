"""Phrases that are likelier to be said: how a model would write them, the tree of their tokens, and a watch
that tells when one was begun in vain.

A bonus for a phrase's first token is given before anybody knows what follows, so it makes a model say the
beginning of a phrase that then does not come ("Dial" becomes "Dile" for "Digium"). The watch tells from where
on the answer has to be found again without. `engine/execution/logits.py` gives the bonuses,
`actors/inference/keyword_boosting.py` goes back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Final

from ...protocols.engine.messages import Phrases
from ...protocols.shared.scripts import is_unspaced

MAX_TOKENS: Final = 16
"""Of a phrase those at its beginning; behind so many there is nothing else to be said."""

_KEPT_TREES: Final = 128
"""A live session's requests share theirs. A hundred names take 0.6 MB, the most there can be 2."""

FIRST: Final = 0
WITHIN: Final = 1
Places = tuple[int, ...]
"""Nodes of the tree: one of the two roots, then those that were reached. () before anything is said."""


def phrases_of(
    keywords: Sequence[str], boost: float, encode: Callable[[str], Iterable[int]], *, start_token: int
) -> Phrases | None:
    """The phrases of `keywords`, made likelier by `boost` (in natural logarithms) where they begin and by
    twice that where they go on; None if there is nothing to make likelier. `start_token`: see `Phrases`.

    Behind other words a phrase has a space in front; at the beginning it may, and a capital, too. Those so
    short that nearly every sound could be one are left out.
    """
    first: dict[tuple[int, ...], None] = {}
    within: dict[tuple[int, ...], None] = {}
    for keyword in keywords if boost else ():
        if _is_too_short(keyword):
            continue
        bare, spaced = _beginning(encode(keyword)), _beginning(encode(f" {keyword}"))
        within[bare if is_unspaced(keyword[0]) else spaced] = None
        first |= dict.fromkeys((bare, spaced))
        capital = keyword[0].upper() + keyword[1:]
        if capital != keyword:
            first |= dict.fromkeys((_beginning(encode(capital)), _beginning(encode(f" {capital}"))))
    return Phrases(start_token, tuple(first), tuple(within), begin=boost, go_on=2 * boost) if first else None


def _is_too_short(keyword: str) -> bool:
    """Whether it has less than three letters or digits, or than two where these are syllables."""
    spoken = [character for character in keyword if character.isalnum()]
    return len(spoken) < (2 if any(map(_is_syllable, spoken)) else 3)


def _is_syllable(character: str) -> bool:
    return is_unspaced(character) or "\uac00" <= character <= "\ud7a3"


def _beginning(token_ids: Iterable[int]) -> tuple[int, ...]:
    return tuple(token_ids)[:MAX_TOKENS]


class PhraseTree:
    """The tokens of phrases by what stands before them. Never changes."""

    def __init__(self, phrases: Phrases) -> None:
        self.phrases = phrases
        self._children: list[dict[int, int]] = [{}, {}]
        self._depths = [0, 0]
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
                self._depths.append(self._depths[node] + 1)
            node = child
        self._ends.add(node)

    def depth_of(self, node: int) -> int:
        """How many tokens of a phrase were said there."""
        return self._depths[node]

    def ends_at(self, node: int) -> bool:
        """Whether a phrase is complete."""
        return node in self._ends

    def beginning(self, token_ids: Sequence[int]) -> Places:
        """Where one stands behind a prompt, of which what is said begins behind the last mark."""
        mark = self.phrases.start_token
        for index in range(len(token_ids) - 1, -1, -1):
            if token_ids[index] == mark:
                return self.follow((FIRST,), token_ids[index + 1 :])
        return ()

    def follow(self, places: Places, token_ids: Iterable[int]) -> Places:
        """Where one stands behind more tokens. What began inside of a phrase that is complete is over."""
        for token_id in token_ids:
            if token_id == self.phrases.start_token:
                places = (FIRST,)
            elif places:
                found = [self._children[node].get(token_id) for node in places]
                reached = [node for node in found if node is not None]
                complete = max((self._depths[node] for node in reached if node in self._ends), default=0)
                places = (WITHIN, *(node for node in reached if self._depths[node] >= complete))
        return places

    def bonuses(self, places: Places) -> dict[int, float]:
        """What is added to the logits of the next tokens. Right behind a phrase none begins: it would be
        said again and again."""
        is_after_phrase = any(node in self._ends for node in places)
        added: dict[int, float] = {}
        for node in places:
            is_root = node in (FIRST, WITHIN)
            if not (is_root and is_after_phrase):
                added |= dict.fromkeys(
                    self._children[node], self.phrases.begin if is_root else self.phrases.go_on
                )
        return added


tree_of = lru_cache(_KEPT_TREES)(PhraseTree)
"""The tree of phrases, which their requests share. A hundred names take a millisecond."""


class PhraseWatch:
    """Told an answer token by token, says what of it stays."""

    def __init__(self, tree: PhraseTree, prompt_token_ids: Sequence[int]) -> None:
        self._tree = tree
        self._places = tree.beginning(prompt_token_ids)
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
        is_in_phrase = bool(self._places) and token_id != self._tree.phrases.start_token
        self._places = self._tree.follow(self._places, (token_id,))
        if is_lifted and is_in_phrase and self._doubt is None:
            self._doubt = index
        if self._doubt is None:
            return
        tree, num_doubted = self._tree, index + 1 - self._doubt
        around = [node for node in self._places if tree.depth_of(node) >= num_doubted]
        if any(map(tree.ends_at, around)):
            self._doubt = None
        elif not around:
            self.back_to = self._doubt

    def end(self) -> None:
        """The answer is over."""
        self.back_to = self._doubt
