"""What training prompts say: the server's form, words that are said among words that are not."""

import random

import pytest
from contexts import context, drawn_context, prompt_words, with_words
from sensorium.actors.speech.families.qwen3_asr import _context
from sensorium.protocols.transcription.transcript import TranscriptionOptions
from support.word_samples import open_text

TEXT = "Tell Brennick that the Okanda kitchen light is on."


@pytest.mark.parametrize("keywords", [(), ("Brennick",), ("Brennick", "Okanda")])
@pytest.mark.parametrize("prompt", ["", "About the house."])
def test_the_form_is_the_servers(keywords: tuple[str, ...], prompt: str) -> None:
    assert context(keywords, prompt) == _context(TranscriptionOptions(keywords=keywords, prompt=prompt))


def test_unknown_words_are_told_first() -> None:
    texts = open_text("en")
    known = [word for word in texts.lists.words if len(word) > 4][:8]
    spoken = " ".join([*known, "Brennick", "Okanda."])
    rng = random.Random(1)
    firsts = [prompt_words(spoken, texts, rng, 1)[0] for _ in range(200)]
    assert sum(word in ("Brennick", "Okanda") for word in firsts) > 100
    assert set(prompt_words(spoken, texts, rng, 20)) == {*known, "Brennick", "Okanda"}


def test_contexts_are_of_all_kinds_and_repeatable() -> None:
    texts = open_text("en")
    drawn = [drawn_context(TEXT, texts, random.Random(seed)) for seed in range(200)]
    assert drawn == [drawn_context(TEXT, texts, random.Random(seed)) for seed in range(200)]
    assert 60 < drawn.count("") < 120
    assert any("\n" in each for each in drawn)
    assert any("Brennick" in each for each in drawn)
    everything = {word.strip(".") for word in TEXT.split() if len(word) > 3}
    assert 10 < sum(all(word in each for word in everything) for each in drawn) < 60
    assert any(each and "Brennick" not in each and "Okanda" not in each for each in drawn)


def test_words_are_put_into_a_sentence() -> None:
    sentence = with_words("Open the door.", ["Brennick", "Okanda"], random.Random(2))
    assert sorted(sentence.split()) == sorted(["Open", "the", "door.", "Brennick", "Okanda"])
    assert sentence.endswith("door.")
