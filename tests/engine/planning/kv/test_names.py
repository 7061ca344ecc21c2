"""Names of blocks: equal for equal content, different for any difference that reaches the block."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st
from sensorium.engine.planning.kv.names import BlockHash, BlockHasher
from sensorium.protocols.engine.messages import (
    ContentHash,
    MediaSpan,
    Request,
    RequestId,
    Sample,
    SamplingParams,
)

SIZE = 4
TOKENS = tuple([9] * 16)


def names(
    tokens: tuple[int, ...] = TOKENS,
    *media: MediaSpan,
    encoder: str | None = None,
    encoder_span: tuple[int, int] | None = None,
    salt: str = "",
    fingerprint: str = "",
) -> list[BlockHash]:
    request = Request(
        RequestId("r"),
        tokens,
        Sample(SamplingParams(max_tokens=1)),
        encoder_hash=None if encoder is None else ContentHash(encoder),
        encoder_span=encoder_span,
        media=media,
        cache_salt=salt,
    )
    return list(BlockHasher(request, SIZE, fingerprint).extend(tokens, len(tokens) // SIZE))


def span(name: str, start: int, num_tokens: int, grid: tuple[int, int, int] | None = None) -> MediaSpan:
    return MediaSpan(ContentHash(name), start, num_tokens, grid)


def num_shared(first: list[BlockHash], second: list[BlockHash]) -> int:
    """Blocks at the front with the same names; behind a difference nothing is the same."""
    same = [one == other for one, other in zip(first, second, strict=False)]
    front = same.index(False) if False in same else len(same)
    assert not any(same[front:])
    return front


@given(st.lists(st.integers(0, 2**31), min_size=1, max_size=40), st.data())
def test_a_token_changes_its_block_and_all_behind(tokens: list[int], data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(tokens) - 1))
    changed = [*tokens[:index], tokens[index] + 1, *tokens[index + 1 :]]
    expected = min(index // SIZE, len(tokens) // SIZE)
    assert num_shared(names(tuple(tokens)), names(tuple(changed))) == expected


@given(st.lists(st.integers(0, 5), max_size=40), st.lists(st.integers(0, 10), max_size=5))
def test_names_do_not_depend_on_when_they_are_asked_for(tokens: list[int], cuts: list[int]) -> None:
    media = (span("A", 0, 2), span("B", 5, 9), span("A", 14, 1)) if len(tokens) > 15 else ()
    request = Request(RequestId("r"), tuple(tokens), Sample(SamplingParams(max_tokens=1)), media=media)
    hasher = BlockHasher(request, SIZE)
    for cut in sorted(cuts):
        hasher.extend(tokens, min(cut, len(tokens) // SIZE))
    assert hasher.extend(tokens, len(tokens) // SIZE) == names(tuple(tokens), *media)


def test_what_holds_for_the_whole_sequence_is_in_every_name() -> None:
    encoder_span = (
        names(encoder="A"),
        names(encoder="B"),
        *(names(encoder="A", encoder_span=(at, 9)) for at in (0, 1)),
    )
    for one, other in combinations((names(), *encoder_span, names(salt="A"), names(fingerprint="A")), 2):
        assert num_shared(one, other) == 0
    halves = names(salt="\ud800"), names(salt="\udc00"), names(salt="\\ud800")  # no UTF-8 has the first two
    assert all(num_shared(one, other) == 0 for one, other in combinations(halves, 2))


def test_items_behind_the_same_placeholders_are_told_apart() -> None:
    plain = names(TOKENS)
    for other in (
        names(TOKENS, span("A", 6, 3)),
        names(TOKENS, span("B", 6, 3)),
        names(TOKENS, span("A", 5, 3)),
        names(TOKENS, span("A", 6, 4, (1, 2, 2))),
        names(TOKENS, span("A", 6, 4, (1, 1, 4))),
        names(TOKENS, span("A", 6, 1), span("A", 7, 1)),
    ):
        assert num_shared(plain, other) == 1
    assert num_shared(names(TOKENS, span("A", 5, 3)), names(TOKENS, span("A", 6, 3))) == 1
    assert num_shared(names(TOKENS, span("A", 4, 8)), names(TOKENS, span("A", 4, 4), span("A", 8, 4))) == 2
    assert num_shared(names(TOKENS, span("A", 12, 2)), names(TOKENS, span("B", 12, 2))) == 3


def test_an_item_ends_where_it_ends_and_has_the_shape_it_has() -> None:
    """Also where the tokens behind it, or those of another grid, are the same."""
    whole = names(TOKENS, span("A", 4, 8))
    assert num_shared(whole, names(TOKENS, span("A", 4, 4))) == 2, "its second half is not there"
    assert num_shared(whole, names(TOKENS, span("A", 4, 6))) == 2, "its last quarter is not there"
    tall, wide = span("A", 4, 4, (1, 4, 1)), span("A", 4, 4, (1, 1, 4))
    assert num_shared(names(TOKENS, tall), names(TOKENS, wide)) == 1
