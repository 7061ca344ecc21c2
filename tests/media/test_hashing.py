"""Equal arrays hash equally whatever their layout; different shape, type or bytes hash differently."""

from __future__ import annotations

import numpy as np
from sensorium.media.hashing import content_hash, encoder_item, to_features


def test_the_hash_is_stable() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert content_hash(array) == content_hash(array.copy())
    assert content_hash(array) == content_hash(np.asfortranarray(array))
    assert len(content_hash(array)) == 32


def test_shape_type_and_bytes_all_count() -> None:
    array = np.arange(6, dtype=np.float32)
    variants = [
        array,
        array.reshape(2, 3),
        array.reshape(3, 2),
        array.reshape(6, 1),
        array.view(np.int32),
        array[:5],
        -array,
        np.zeros(0, np.float32),
        np.zeros((0, 3), np.float32),
        np.zeros((), np.float32),
    ]
    assert len({content_hash(variant) for variant in variants}) == len(variants)


def test_one_changed_bit_changes_the_hash() -> None:
    array = np.zeros((80, 3000), np.float32)
    changed = array.copy()
    changed[79, 2999] = np.float32(1e-45)
    assert content_hash(array) != content_hash(changed)


def test_features_carry_the_array_in_c_order() -> None:
    array = np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3))
    features = to_features(array)
    assert features.shape == (2, 3)
    np.testing.assert_array_equal(np.frombuffer(features.data, np.float32).reshape(features.shape), array)
    assert encoder_item(array).content_hash == content_hash(array)
    assert encoder_item(array).features == features


def test_items_of_other_modalities_or_grids_differ() -> None:
    array = np.zeros((8, 4), np.float32)
    items = [
        encoder_item(array),
        encoder_item(array, modality="image", grid=(1, 2, 4)),
        encoder_item(array, modality="image", grid=(1, 4, 2)),
        encoder_item(array, modality="video", grid=(1, 2, 4), num_tokens=2),
    ]
    assert len({item.content_hash for item in items}) == len(items)
    assert items[3].features.grid == (1, 2, 4)
    assert items[3].num_tokens == 2
