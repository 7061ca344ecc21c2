"""From layers to groups: three models' layouts and bytes, and what a group holds at most."""

from __future__ import annotations

import pytest
from sensorium.engine.planning.kv.groups import HOLE, ONE_GROUP, PagedGroup, layout_of
from sensorium.engine.planning.kv.specs import (
    ChunkedLocal,
    CrossAttention,
    FullAttention,
    Latent,
    LayerSpec,
    NoCache,
    PagedSpec,
    SharedWith,
    SlidingWindow,
    State,
)

MIB = 2**20


def test_windows_are_split_into_groups_as_large_as_the_full_one() -> None:
    """Gemma 3 270M: every sixth layer attends to all tokens."""
    layers: list[LayerSpec] = [
        FullAttention(1024) if index % 6 == 5 else SlidingWindow(512, 1024) for index in range(18)
    ]
    layout = layout_of(layers)
    assert [len(group.layers) for group in layout.groups] == [3] * 6
    assert layout.groups[0] == PagedGroup(FullAttention(1024), (5, 11, 17))
    assert sorted(layer for group in layout.groups for layer in group.layers) == list(range(18))
    assert layout.token_bytes == 3 * 1024
    assert layout.places[:7] == ((1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (0, 0), (2, 2))
    assert layout.num_bytes(32_768, 16, 1) == (2048 + 5 * 34) * 16 * 3 * 1024


def test_states_of_all_layers_are_one_slot() -> None:
    """A hybrid of Qwen3-Next's shape."""
    state = State(32 * 128 * 128 * 4 + 8192 * 3 * 2)
    layers: list[LayerSpec] = [FullAttention(2048) if index % 4 == 3 else state for index in range(48)]
    layout = layout_of(layers)
    assert [len(group.layers) for group in layout.groups] == [12]
    assert layout.token_bytes == 24 * 1024
    assert layout.state_bytes == pytest.approx(73.7 * MIB, rel=1e-3)


def test_one_kind_of_layer_is_one_group() -> None:
    """DeepSeek-V3's latent vectors; and Whisper's decoder, whose encodings are the encoder cache's."""
    latent = layout_of([Latent(576 * 2)] * 61)
    assert [len(group.layers) for group in latent.groups] == [61]
    assert latent.num_bytes(131_072, 16, 1) / 2**30 == pytest.approx(8.58, rel=1e-3)
    whisper = layout_of([FullAttention(1024), CrossAttention()] * 4)
    assert [group.layers for group in whisper.groups] == [(0, 2, 4, 6)]
    assert whisper.places[:4] == ((0, 0), None, (0, 1), None)


def test_the_last_group_of_a_spec_may_have_fewer_layers_and_larger_tokens_fewer_a_group() -> None:
    full, window = FullAttention(100), SlidingWindow(8, 100)
    padded = layout_of([full] * 4 + [window] * 10)
    assert [len(group.layers) for group in padded.groups] == [4, 4, 4, 2]
    wide = layout_of([FullAttention(200)] * 2 + [window] * 6)
    assert [len(group.layers) for group in wide.groups] == [2, 4, 2]
    assert wide.token_bytes == 400
    odd = layout_of([FullAttention(300)] + [window] * 2 + [SlidingWindow(9, 200)] * 2)
    assert (odd.token_bytes, [group.layers for group in odd.groups]) == (600, [(0,), (1, 2), (3, 4)])


def test_layers_without_anything_of_their_own_are_in_no_group() -> None:
    layout = layout_of([FullAttention(10), NoCache(), SharedWith(0), FullAttention(10)])
    assert [group.layers for group in layout.groups] == [(0, 3)]
    alone = layout_of([State(5), State(6)])
    assert (alone.groups, alone.state_bytes, alone.token_bytes) == (ONE_GROUP, 11, 0)
    wrong: list[list[LayerSpec]] = [
        [SharedWith(0)],
        [NoCache(), SharedWith(0)],
        [FullAttention(1), SharedWith(2)],
    ]
    for layers in wrong:
        with pytest.raises(ValueError, match="it must be an earlier layer with its own cache"):
            layout_of(layers)


@pytest.mark.parametrize("spec", [SlidingWindow(1), SlidingWindow(5), ChunkedLocal(6), FullAttention()])
def test_a_group_never_holds_more_than_it_says(spec: PagedSpec) -> None:
    group, size = PagedGroup(spec), 4
    for step in (1, 3, 9):
        for start in range(60):
            for end in range(start + 1, start + step + 1):
                held = -(-end // size) - spec.first_needed(start) // size
                assert held <= group.max_blocks(end, size, step)


def test_a_table_serves_what_is_not_slid_out() -> None:
    group = PagedGroup(SlidingWindow(5))
    table = (HOLE, 7, 8)
    lengths = [num_tokens for num_tokens in range(14) if group.serves(table, num_tokens, 4)]
    assert lengths == [0, 8, 9, 10, 11, 12]
