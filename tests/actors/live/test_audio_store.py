"""The audio store gives back what was put in, by absolute position, in bounded memory."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sensorium.actors.live.audio_store import AudioStore


@given(
    st.lists(
        st.tuples(st.integers(0, 90_000), st.floats(0, 1), st.booleans()),
        min_size=1,
        max_size=12,
    )
)
def test_every_kept_range_reads_back(steps: list[tuple[int, float, bool]]) -> None:
    store = AudioStore()
    everything = np.arange(sum(size for size, _, _ in steps), dtype=np.float32)
    for size, share, forget in steps:
        store.append(everything[store.end : store.end + size])
        middle = store.start + int((store.end - store.start) * share)
        np.testing.assert_array_equal(store.copy(middle, store.end), everything[middle : store.end])
        if forget:
            store.forget_before(middle)
            assert store.start == middle
        np.testing.assert_array_equal(store.copy(store.start, store.end), everything[store.start : store.end])


def test_memory_follows_what_is_held() -> None:
    store = AudioStore()
    second = np.zeros(16_000, dtype=np.float32)
    for _ in range(2_000):
        store.append(second)
        store.forget_before(store.end - 32_000)
    assert store.num_bytes < 300_000
    store.forget_before(store.end)
    assert store.num_bytes <= 64_000
    assert AudioStore().num_bytes <= 64_000


def test_asking_outside_is_our_bug() -> None:
    store = AudioStore()
    store.append(np.zeros(100, dtype=np.float32))
    store.forget_before(50)
    with pytest.raises(IndexError):
        store.copy(10, 60)
    with pytest.raises(IndexError):
        store.copy(60, 101)
    store.forget_before(10)
    store.forget_before(1_000)
    assert (store.start, store.end) == (100, 100)
