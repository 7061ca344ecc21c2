"""Keywords as phrases, the tree of their tokens, and the watch, against a slow look at all that was said."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sensorium.engine.text.keyword_boosting import MAX_TOKENS, PhraseTree, PhraseWatch, phrases_of, tree_of
from sensorium.protocols.engine.messages import Phrases
from support.slow_phrases import belongs, bonuses, under_way

MARK = 9
Ids = tuple[int, ...]

TOKEN = st.integers(0, 2)
PHRASES = st.lists(st.lists(TOKEN, min_size=1, max_size=4).map(tuple), max_size=4).map(tuple)
TREES = st.builds(Phrases, st.just(MARK), PHRASES, PHRASES, st.just(1.0), st.just(2.0))
OFTEN = st.sampled_from((0, 0, 0, 1, 1, 1, 2, 2, MARK))
WRITTEN = st.lists(OFTEN, max_size=6).map(tuple)
ANSWERS = st.lists(st.tuples(OFTEN, st.booleans()), max_size=14)


def watched(phrases: Phrases, prompt: Ids, answer: Sequence[tuple[int, bool]]) -> tuple[int, int | None]:
    """How many tokens of an answer are sure, and the one to go back to."""
    tokens = prompt + tuple(token for token, _ in answer)
    for index, (token, is_lifted) in enumerate(answer):
        at = len(prompt) + index
        if is_lifted and token != MARK and MARK in tokens[:at]:
            is_of_one = belongs(phrases, tokens, at)
            if not is_of_one:
                return index, index if is_of_one is False else None
    return len(answer), None


@given(TREES, WRITTEN, WRITTEN)
@settings(max_examples=300)
def test_bonuses_are_those_of_a_look_at_everything(phrases: Phrases, prompt: Ids, answer: Ids) -> None:
    """However the tokens come: all in the prompt, all later, or one by one."""
    tree = PhraseTree(phrases)
    tokens = prompt + answer
    one_by_one = tree.beginning(prompt)
    for token in answer:
        one_by_one = tree.follow(one_by_one, (token,))
    for places in (tree.beginning(tokens), tree.follow(tree.beginning(prompt), answer), one_by_one):
        assert tree.bonuses(places) == bonuses(phrases, tokens)
        assert any(map(tree.ends_at, places)) == bool(under_way(phrases, tokens).complete)


def test_a_phrase_of_equal_words_is_not_said_for_ever() -> None:
    """Behind it none begins, and the bonuses of places in it do not add up."""
    tree = PhraseTree(made("you you"))
    places = tree.beginning((MARK,))
    added: list[float] = []
    for token in encode(" you you you you"):
        added.append(tree.bonuses(places).get(token, 0.0))
        places = tree.follow(places, (token,))
    assert max(added) == 3.0
    assert added[8] == 0.0


@given(TREES, WRITTEN, ANSWERS)
@settings(max_examples=600)
def test_the_watch_says_what_a_look_at_everything_says(
    phrases: Phrases, prompt: Ids, answer: list[tuple[int, bool]]
) -> None:
    watch = PhraseWatch(PhraseTree(phrases), prompt)
    for index, (token, is_lifted) in enumerate(answer):
        watch.push(token, is_lifted=is_lifted)
        sure, back_to = watched(phrases, prompt, answer[: index + 1])
        assert (watch.num_sure, watch.back_to) == (sure, back_to)
        if back_to is not None:
            return
    sure = watch.num_sure
    watch.end()
    assert watch.back_to == (None if sure == len(answer) else sure)


@given(TREES, WRITTEN, ANSWERS, st.integers(0, 14))
@settings(max_examples=300)
def test_a_watch_begun_inside_the_answer_goes_on_as_one_that_saw_it_all(
    phrases: Phrases, prompt: Ids, answer: list[tuple[int, bool]], cut: int
) -> None:
    """From where all so far is sure."""
    tree = PhraseTree(phrases)
    whole = PhraseWatch(tree, prompt)
    part: PhraseWatch | None = None
    start = 0
    for index, (token, is_lifted) in enumerate(answer):
        if part is None and index >= cut and whole.num_sure == index:
            start = index
            part = PhraseWatch(tree, prompt + tuple(each for each, _ in answer[:start]))
        whole.push(token, is_lifted=is_lifted)
        if part is not None:
            part.push(token, is_lifted=is_lifted)
            assert part.num_sure + start == whole.num_sure
            assert (None if part.back_to is None else part.back_to + start) == whole.back_to
        if whole.back_to is not None:
            return


def encode(text: str) -> Iterator[int]:
    """A token for each character."""
    yield from map(ord, text)


def spelt(sequences: Sequence[Ids]) -> list[str]:
    return sorted("".join(map(chr, token_ids)) for token_ids in sequences)


def made(*keywords: str) -> Phrases:
    phrases = phrases_of(keywords, 1.5, encode, start_token=MARK)
    assert phrases is not None
    return phrases


def test_a_phrase_may_begin_with_a_space_or_a_capital() -> None:
    """Without the space only at the beginning, where other words need none in front."""
    phrases = made("dial plan")
    assert spelt(phrases.first) == [" Dial plan", " dial plan", "Dial plan", "dial plan"]
    assert spelt(phrases.within) == [" dial plan"]
    assert (phrases.start_token, phrases.begin, phrases.go_on) == (MARK, 1.5, 3.0)


def test_capitals_stay_and_nothing_comes_twice() -> None:
    phrases = made("Digium", "iPhone", "IPhone", "Digium")
    assert spelt(phrases.within) == [" Digium", " IPhone", " iPhone"]
    assert len(phrases.first) == 6
    assert spelt(made("élan").first) == sorted(("élan", " élan", "Élan", " Élan"))
    assert spelt(made("112").first) == [" 112", "112"]


@pytest.mark.parametrize("keyword", ["a", "5G", "C++", "...", "no", "\u200b", "東", "₿"])
def test_what_nearly_every_sound_could_be_is_no_phrase(keyword: str) -> None:
    assert phrases_of((keyword,), 1.5, encode, start_token=MARK) is None
    assert spelt(made(keyword, "Kiel").within) == [" Kiel"]


@pytest.mark.parametrize("keyword", ["東京", "カラオケ", "ภาษาไทย"])
def test_scripts_without_spaces_have_none_in_front(keyword: str) -> None:
    phrases = made(keyword)
    assert spelt(phrases.first) == sorted((keyword, f" {keyword}"))
    assert spelt(phrases.within) == [keyword]


def test_scripts_with_spaces_have_one_in_front() -> None:
    assert spelt(made("서울").within) == [" 서울"]
    assert spelt(made("улица").within) == [" улица"]


def test_no_keywords_or_no_bonus_is_nothing() -> None:
    assert phrases_of((), 1.5, encode, start_token=MARK) is None
    assert phrases_of(("dial",), 0.0, encode, start_token=MARK) is None


def test_long_phrases_are_complete_at_their_bound() -> None:
    long = "X" * (3 * MAX_TOKENS)
    phrases = made(long)
    assert {len(each) for each in phrases.first + phrases.within} == {MAX_TOKENS}
    watch = PhraseWatch(PhraseTree(phrases), (MARK,))
    for token in encode(long[: MAX_TOKENS - 1]):
        watch.push(token, is_lifted=True)
        assert watch.num_sure == 0
    watch.push(ord("X"), is_lifted=False)
    assert (watch.num_sure, watch.back_to) == (MAX_TOKENS, None)


def test_equal_phrases_share_a_tree() -> None:
    assert tree_of(made("dial")) is tree_of(made("dial"))
    assert tree_of(made("dial")) is not tree_of(made("dials"))


def sure_and_back(phrases: Phrases, text: str, *, prompt: Ids = (MARK,)) -> list[int]:
    """How much is sure behind each character, -1 - the place to go back to; lifted ones are marked by !."""
    watch = PhraseWatch(PhraseTree(phrases), prompt)
    found: list[int] = []
    for index, character in enumerate(text):
        if character != "!" and watch.back_to is None:
            watch.push(ord(character), is_lifted=text[index + 1 : index + 2] == "!")
            found.append(watch.num_sure if watch.back_to is None else -1 - watch.back_to)
    return found


def test_a_false_start_is_known_with_the_first_other_token() -> None:
    assert sure_and_back(made("Dig"), "D!ig.") == [0, 0, 3, 4]
    assert sure_and_back(made("Dig"), "D!ie") == [0, 0, -1]
    assert sure_and_back(made("Dig"), "a D!") == [1, 2, 2]
    assert sure_and_back(made("Dig"), "aD!") == [1, -2], "behind other words it has a space"
    assert sure_and_back(made("Dig"), "a !D!ie") == [1, 1, 1, 1, -2]


def test_going_on_by_the_bonus_is_as_doubtful_as_beginning() -> None:
    assert sure_and_back(made("Dig"), "Di!g") == [1, 1, 3]
    assert sure_and_back(made("Dig"), "Di!e") == [1, 1, -2]
    assert sure_and_back(made("Dig", "Digium"), "D!igi!e") == [0, 0, 3, 3, -4], "a shorter one was complete"


def test_a_phrase_inside_another_makes_it_sure() -> None:
    assert sure_and_back(made("A bcd e", "bcd"), "A b!cdx") == [1, 2, 2, 2, 5, 6], "it ends first"
    assert sure_and_back(made("A b c d", "A b x"), "A! b x") == [0, 0, 0, 0, 5]


def test_one_begun_later_does_not_save_what_is_doubtful() -> None:
    assert sure_and_back(made("A bc", "Cde"), "A! Cde") == [0, 0, -1]
    assert sure_and_back(made("A Cx", "Cde"), "A! C!de") == [0, 0, 0, -1]


def test_nothing_counts_before_the_mark() -> None:
    phrases = made("Dig")
    assert sure_and_back(phrases, "D!ie", prompt=(1, 2)) == [1, 2, 3]
    assert sure_and_back(phrases, f"D!{chr(MARK)}D!ie", prompt=()) == [1, 2, 2, 2, -3]
