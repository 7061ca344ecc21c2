"""How sure a model is of each word: from the tokens that wrote it."""

from __future__ import annotations

import math

import pytest
from msgspec import UNSET
from sensorium.media.transcript.word_probabilities import tokens_of_text, with_probabilities
from sensorium.protocols.transcription.transcript import TokenLogProb, Word


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
        ([(b" a\xe4", 0.5), (b"\xbb", 0.25), (b" b\xff", 0.75)], ["a\ufffd", "b\ufffd"], [0.375, 0.75]),
        ([], ["a"], [UNSET]),
    ],
    ids=[
        "several tokens",
        "shared tokens",
        "half characters",
        "no spaces",
        "not said",
        "no characters",
        "no tokens",
    ],
)
def test_a_word_is_as_sure_as_its_tokens(
    pieces: list[tuple[bytes, float]], said: list[str], probabilities: list[object]
) -> None:
    found = list(with_probabilities(words(*said), tokens(*pieces)))
    assert [word.probability for word in found] == probabilities
    assert [(word.word, word.start, word.end) for word in found] == [
        (word.word, word.start, word.end) for word in words(*said)
    ]


@pytest.mark.parametrize(
    ("pieces", "text", "kept"),
    [
        ([b" no", b" no", b" no", b" way", b"."], "no no way.", [0, 1, 3, 4]),
        ([b" I", b" am", b" I", b" am", b" I", b" was"], "I am I was", [0, 1, 2, 5]),
        ([b" ", b"a", b"b "], "ab ", [0, 1, 2]),
        ([b" no", b" nono"], "no no", [0, 1]),
        ([b" \xe4", b"\xbb"], "\ufffd", [0, 1]),
        ([b" \xe4\xbb", b" no", b" no", b" no", b"\xff."], "\ufffd no\ufffd.", [0, 1, 4]),
        ([b" no"], "", []),
    ],
    ids=[
        "a loop was cut",
        "of several tokens",
        "no loop",
        "amid a token",
        "no characters",
        "a loop beside no characters",
        "nothing is left",
    ],
)
def test_tokens_are_those_of_the_text(pieces: list[bytes], text: str, kept: list[int]) -> None:
    said = tokens(*((data, (index + 1) / 10) for index, data in enumerate(pieces)))
    assert tokens_of_text(said, text) == tuple(said[index] for index in kept)
