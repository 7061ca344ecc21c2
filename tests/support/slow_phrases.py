"""Where phrases are under way in what was said, found by looking at all of it, without a tree."""

from __future__ import annotations

from typing import NamedTuple

from sensorium.protocols.engine.messages import Phrases

Ids = tuple[int, ...]


class UnderWay(NamedTuple):
    """Where phrases began that may go on behind the tokens, and those that are complete there."""

    starts: tuple[int, ...]
    complete: tuple[int, ...]


def origin_of(phrases: Phrases, tokens: Ids) -> int | None:
    """Where what is said begins: behind the last mark."""
    return len(tokens) - tokens[::-1].index(phrases.start_token) if phrases.start_token in tokens else None


def under_way(phrases: Phrases, tokens: Ids) -> UnderWay:
    origin = origin_of(phrases, tokens)
    starts: list[int] = []
    complete: list[int] = []
    for end in range(len(tokens) + 1 if origin is None else origin + 1, len(tokens) + 1):
        answer = tokens[:end]
        starts = [start for start in (*starts, end - 1) if _that_agree(phrases, answer, start)]
        complete = [start for start in starts if answer[start:] in _that_agree(phrases, answer, start)]
        if complete:  # what began inside of it is over
            starts = [start for start in starts if start <= complete[0]]
            complete = complete[:1]
    return UnderWay(tuple(starts), tuple(complete))


def bonuses(phrases: Phrases, tokens: Ids) -> dict[int, float]:
    """What is added behind the tokens, to each the most that any phrase gives it."""
    if phrases.start_token not in tokens:
        return {}
    starts, complete = under_way(phrases, tokens)
    added: dict[int, float] = {}
    for start in (*starts, *(() if complete else (len(tokens),))):
        done = tokens[start:]
        for phrase in _that_agree(phrases, tokens, start):
            if len(phrase) > len(done):
                bonus = phrases.go_on if done else phrases.begin
                added[phrase[len(done)]] = max(bonus, added.get(phrase[len(done)], 0.0))
    return added


def belongs(phrases: Phrases, tokens: Ids, at: int) -> bool | None:
    """Whether the token at `at` turned out to be of a phrase; None: that is not known yet."""
    for end in range(at + 1, len(tokens) + 1):
        starts, complete = under_way(phrases, tokens[:end])
        if any(start <= at for start in complete):
            return True
        if not any(start <= at for start in starts):
            return False
    return None


def _that_agree(phrases: Phrases, tokens: Ids, start: int) -> set[Ids]:
    done = tokens[start:]
    those = phrases.first if start == origin_of(phrases, tokens) else phrases.within
    return {phrase for phrase in those if phrase[: len(done)] == done}
