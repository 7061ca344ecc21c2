"""Text and tokens of one request: joins equal the whole up to the stop string, and nothing of it leaks."""

from __future__ import annotations

import codecs
import itertools

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sensorium.engine.text.detokenizer import Collected, Detokenizer, decoder_maker
from sensorium.engine.text.text_decoder import ByteDecoder
from sensorium.engine.text.token_bytes import byte_of_character, byte_table
from sensorium.protocols.engine.messages import (
    Ending,
    PromptLogprobs,
    RequestId,
    SamplingParams,
    TextGenerated,
    TokensSampled,
)
from support.tokenizers import byte_level_tokenizer, first_stop

R = RequestId("r")
TOKENIZER = byte_level_tokenizer()
TABLE = byte_table(TOKENIZER)
assert TABLE is not None
make_decoder = decoder_maker(TOKENIZER.decode, TABLE)

texts = st.text(alphabet="theé語🎈 END\ufffd", max_size=40)
token_ids = st.one_of(
    texts.map(lambda text: list(TOKENIZER.encode(text).ids)),
    st.lists(st.integers(0, TOKENIZER.get_vocab_size() - 1), max_size=30),
)
stops = st.lists(
    st.one_of(
        st.sampled_from([" the", "END", "the cat", "語", "\ufffd", "é語", "ee"]), st.text("the ", min_size=1)
    ),
    min_size=1,
    max_size=3,
)
cuts = st.lists(st.integers(0, 40), max_size=10)


def ids_of(letters: str) -> list[int]:
    """One token for each letter."""
    vocabulary: dict[str, int] = TOKENIZER.get_vocab()
    return [vocabulary[letter] for letter in letters]


def sampled(ids: list[int], cuts: list[int], *, ends: bool, is_scored: bool = True) -> list[TokensSampled]:
    """Events with these ids, cut anywhere; log-probabilities, if any, count the tokens."""
    edges = [0, *sorted(min(cut, len(ids)) for cut in cuts), len(ids)]
    events = [
        TokensSampled(
            R,
            tuple(ids[start:end]),
            tuple(float(-number) for number in range(start, end) if is_scored),
            tuple(((ids[number], float(-number)),) for number in range(start, end) if is_scored),
        )
        for start, end in itertools.pairwise(edges)
    ]
    if ends:
        events.append(TokensSampled(R, (), finish_reason="length"))
    return events


def whole_of(ids: list[int]) -> str:
    """The text of ids that were cut there: without a character that is not complete."""
    written = b"".join(TABLE[token_id] for token_id in ids) if TABLE else b""
    return codecs.getincrementaldecoder("utf-8")(errors="replace").decode(written)


def run(detokenizer: Detokenizer, events: list[TokensSampled]) -> list[TextGenerated]:
    parts: list[TextGenerated] = []
    for event in events:
        parts.append(detokenizer.push(event))
        if parts[-1].finish_reason is not None:
            break
    return parts


def num_needed(ids: list[int], length: int) -> int:
    """The least number of tokens with which so many characters of the text are certain."""
    decoder = ByteDecoder(TABLE or ())
    certain = 0
    for number, token_id in enumerate(ids):
        if certain >= length:
            return number
        certain += len(decoder.push((token_id,)))
    return len(ids)


@given(token_ids, cuts)
def test_without_stop_strings_everything_passes_as_it_comes(ids: list[int], cuts: list[int]) -> None:
    events = sampled(ids, cuts, ends=True)
    parts = run(Detokenizer(make_decoder()), events)
    assert "".join(part.text for part in parts) == whole_of(ids)
    assert [part.token_ids for part in parts] == [event.token_ids for event in events]
    assert [part.logprobs for part in parts] == [event.logprobs for event in events]


@given(token_ids, stops, cuts, st.booleans(), st.booleans())
@example(ids_of("ENè"), ["END", "\ufffd"], [], False, False)  # è: the first third of a character
def test_a_stop_string_cuts_as_a_search_over_the_whole_text_does(
    ids: list[int], stops: list[str], cuts: list[int], includes_stop: bool, is_scored: bool
) -> None:
    whole = whole_of(ids)
    expected, stop = first_stop(whole, stops)
    if includes_stop and stop is not None:
        expected += stop
    sampling = SamplingParams(max_tokens=99, stop=tuple(stops), includes_stop=includes_stop)
    detokenizer = Detokenizer(make_decoder(), sampling)
    parts = run(detokenizer, sampled(ids, cuts, ends=True, is_scored=is_scored))
    assert "".join(part.text for part in parts) == expected
    assert (parts[-1].finish_reason, parts[-1].stop) == ("length" if stop is None else "stop", stop)
    tokens = [token for part in parts for token in part.token_ids]
    num_tokens = len(ids) if stop is None else num_needed(ids, len(expected))
    assert tokens == ids[:num_tokens]
    num_scored = num_tokens if is_scored else 0
    assert [each for part in parts for each in part.logprobs] == [-float(n) for n in range(num_scored)]
    assert [top for part in parts for ((top, _),) in part.top_logprobs] == tokens[:num_scored]
    assert not any(part.ending.token_ids for part in parts[:-1])
    ending = parts[-1].ending
    if stop is None:
        assert ending.token_ids == ()
        return
    # What ended it are the tokens up to the one with which the stop string is whole.
    num_sampled = max(num_tokens, num_needed(ids, len(expected) + (0 if includes_stop else len(stop))))
    assert list(ending.token_ids) == ids[num_tokens:num_sampled]
    scored = range(num_tokens, num_sampled) if is_scored else range(0)
    assert list(ending.logprobs) == [-float(number) for number in scored]
    assert [top for ((top, _),) in ending.top_logprobs] == [ids[number] for number in scored]


@given(token_ids, stops)
def test_tokens_never_run_ahead_of_their_text(ids: list[int], stops: list[str]) -> None:
    detokenizer = Detokenizer(make_decoder(), SamplingParams(max_tokens=99, stop=tuple(stops)))
    text, num_tokens = "", 0
    for event in sampled(ids, list(range(len(ids))), ends=False):
        part = detokenizer.push(event)
        text += part.text
        num_tokens += len(part.token_ids)
        assert num_tokens <= num_needed(ids, len(text))
        if part.finish_reason is not None:
            return


@given(token_ids, st.booleans())
def test_an_answer_that_ends_by_itself_is_all_that_its_ids_say(ids: list[int], has_stops: bool) -> None:
    sampling = SamplingParams(max_tokens=99, stop=("no such text",) if has_stops else ())
    ended = TokensSampled(R, tuple(ids), finish_reason="stop", stop_token_id=7)
    assert Detokenizer(make_decoder(), sampling).push(ended).text == TOKENIZER.decode(ids)


@pytest.mark.parametrize("character", ["é", "語", "🎈"])
@pytest.mark.parametrize("stops", [(), ("END",)])
@pytest.mark.parametrize("by_bytes", [True, False])
def test_an_answer_cut_inside_a_character_ends_before_it(
    character: str, stops: tuple[str, ...], by_bytes: bool
) -> None:
    make = make_decoder if by_bytes else decoder_maker(TOKENIZER.decode)
    names = {byte: name for name, byte in byte_of_character().items()}
    vocabulary: dict[str, int] = TOKENIZER.get_vocab()
    of_bytes = [vocabulary[names[byte]] for byte in character.encode()]
    for num in range(1, len(of_bytes) + 1):
        ids = [*ids_of("cat"), *of_bytes[:num]]
        for size in (1, len(ids)):
            detokenizer = Detokenizer(make(), SamplingParams(max_tokens=len(ids), stop=stops))
            cut = [tuple(ids[start : start + size]) for start in range(0, len(ids), size)]
            events = [TokensSampled(R, each) for each in cut[:-1]]
            parts = run(detokenizer, [*events, TokensSampled(R, cut[-1], finish_reason="length")])
            assert "".join(part.text for part in parts) == "cat" + character * (num == len(of_bytes))
            assert [token_id for part in parts for token_id in part.token_ids] == ids


def test_a_stop_string_across_tokens_never_leaks() -> None:
    ids = ids_of("catEND")
    detokenizer = Detokenizer(make_decoder(), SamplingParams(max_tokens=9, stop=("END",)))
    parts = [detokenizer.push(event) for event in sampled(ids, [1, 2, 3, 4, 5], ends=False)]
    assert [part.text for part in parts] == ["c", "a", "t", "", "", ""]
    assert [len(part.token_ids) for part in parts] == [1, 1, 1, 0, 0, 0]
    assert [part.stop for part in parts] == [None] * 5 + ["END"]


def test_what_was_held_for_a_stop_string_that_did_not_come_is_given_with_its_tokens() -> None:
    ids = ids_of("catENd")
    detokenizer = Detokenizer(make_decoder(), SamplingParams(max_tokens=9, stop=("END",)))
    parts = [detokenizer.push(event) for event in sampled(ids, [1, 2, 3, 4, 5], ends=False)]
    assert [part.text for part in parts] == ["c", "a", "t", "", "", "ENd"]
    assert parts[-1].token_ids == tuple(ids[3:])
    ended = Detokenizer(make_decoder(), SamplingParams(max_tokens=9, stop=("END",)))
    assert "".join(part.text for part in run(ended, sampled(ids[:5], [2], ends=True))) == "catEN"


def test_the_first_min_tokens_are_not_searched() -> None:
    ids = ids_of("eeceece")
    for min_tokens, text in ((0, ""), (1, "eec"), (2, "eec"), (4, "eeceece")):
        sampling = SamplingParams(max_tokens=9, stop=("ee",), min_tokens=min_tokens)
        parts = run(Detokenizer(make_decoder(), sampling), sampled(ids, [1, 2, 3, 4, 5], ends=True))
        assert "".join(part.text for part in parts) == text


def test_a_stop_token_is_what_ended_an_answer() -> None:
    ended = TokensSampled(R, tuple(ids_of("ca")), finish_reason="stop", stop_token_id=7)
    for stops in ((), ("END",)):
        for scored, expected in (
            ({}, Ending((7,))),
            (
                {"stop_logprob": -0.5, "stop_top_logprobs": ((7, -0.5),)},
                Ending((7,), (-0.5,), (((7, -0.5),),)),
            ),
        ):
            detokenizer = Detokenizer(make_decoder(), SamplingParams(max_tokens=9, stop=stops))
            part = detokenizer.push(msgspec.structs.replace(ended, **scored))
            assert (part.text, part.ending, part.num_sampled) == ("ca", expected, 3)


def test_collected_events_are_one_event() -> None:
    prompt = PromptLogprobs((-1.0,), (((3, -1.0),),), (1,))
    collected = Collected()
    events = [
        TokensSampled(R, (1, 2), (-0.5, -1.0), ((), ()), prompt, 7, num_draft_accepted=1),
        TokensSampled(R, (3,), (-2.0,), ((),), num_draft_accepted=2, probe_probability=0.25),
        TokensSampled(R, ()),
    ]
    for event in events:
        collected.add(event)
    assert collected.joined(TokensSampled(R, (), finish_reason="stop")) == TokensSampled(
        R, (1, 2, 3), (-0.5, -1.0, -2.0), ((), (), ()), prompt, 7, "stop", 3, 0.25
    )
