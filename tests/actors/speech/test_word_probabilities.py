"""How sure a model is of each word: from the tokens that wrote it."""

from __future__ import annotations

import math

import pytest
from msgspec import UNSET
from sensorium.actors.speech.word_probabilities import with_probabilities
from sensorium.protocols.transcript import TokenLogProb, Word


def tokens(*pieces: tuple[bytes, float]) -> list[TokenLogProb]:
    return [TokenLogProb(data.decode(errors="replace"), data, math.log(share)) for data, share in pieces]


def words(*said: str) -> list[Word]:
    return [Word(word, float(index), index + 1.0) for index, word in enumerate(said)]


@pytest.mark.parametrize(
    ("pieces", "said", "probabilities"),
    [
        ([(b" the", 0.5), (b" kit", 0.25), (b"chen", 0.75)], ["the", "kitchen"], [0.5, 0.5]),
        ([(b"the t", 0.25), (b"he", 1.0)], ["the", "the"], [0.25, 0.625]),
        ([(b" caf\xc3", 0.5), (b"\xa9.", 0.25)], ["café."], [0.375]),
        ([("今".encode(), 0.5), ("日は".encode(), 0.25)], ["今日", "は"], [0.375, 0.25]),
        ([(b" a", 0.5), (b" b", 0.25)], ["a", "c", "b"], [0.5, UNSET, 0.25]),
        ([], ["a"], [UNSET]),
    ],
    ids=["several tokens", "shared tokens", "half characters", "no spaces", "not said", "no tokens"],
)
def test_a_word_is_as_sure_as_its_tokens(
    pieces: list[tuple[bytes, float]], said: list[str], probabilities: list[object]
) -> None:
    found = list(with_probabilities(words(*said), tokens(*pieces)))
    assert [word.probability for word in found] == probabilities
    assert [(word.word, word.start, word.end) for word in found] == [
        (word.word, word.start, word.end) for word in words(*said)
    ]
