"""What is known of the words of one item, however long it grows."""

import random

from sensorium.protocols.engine.messages import ItemId
from sensorium.protocols.transcription.transcript import Transcript
from sensorium.realtime.transcript.pieces import pieces, plain, weight
from sensorium.realtime.turns.utterances import SpokenWords

PIECES = ["one", " two,", " three.", " ", "四", "五", "e\u0301", " \u17d2x", "…", " and"]


def test_of_a_long_text_the_words_are_counted_as_of_a_short_one() -> None:
    draws = random.Random(4)
    text, spoken = "", SpokenWords(ItemId("item"), 0, 0)
    longest = 0
    for at in range(1, 400):
        text += "".join(draws.choices(PIECES, k=draws.randint(0, 20)))
        if draws.random() < 0.03:
            text = text[: draws.randint(0, len(text))]
        before = spoken.num_words
        spoken.learn(Transcript(text, "en", 0.0), at, at)
        words = [plain(piece) for piece in pieces(text) if weight(piece)]
        assert spoken.num_words == len(words)
        if len(words) > before:
            assert spoken.end == at, "a word more was said last"
        longest = max(longest, len(words))
    assert longest > 500
