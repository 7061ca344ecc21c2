"""The filter bank is the one `transformers` builds, and its sparse form is the same map."""

from __future__ import annotations

import numpy as np
import pytest
from sensorium.media.audio.mel import SparseFilters, mel_filters
from transformers.audio_utils import mel_filter_bank


@pytest.mark.parametrize(("num_mels", "num_bins"), [(80, 201), (128, 201), (40, 129), (128, 65)])
@pytest.mark.filterwarnings("ignore:At least one mel filter")
def test_filters_equal_the_reference(num_mels: int, num_bins: int) -> None:
    expected = mel_filter_bank(
        num_frequency_bins=num_bins,
        num_mel_filters=num_mels,
        min_frequency=0.0,
        max_frequency=8000.0,
        sampling_rate=16_000,
        norm="slaney",
        mel_scale="slaney",
    )
    filters = mel_filters(num_bins=num_bins, num_mels=num_mels, sampling_rate=16_000, max_hz=8000.0)
    np.testing.assert_allclose(filters, expected.T, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("num_mels", "num_bins"), [(80, 201), (128, 65)])
def test_sparse_filters_equal_the_matrix_and_rows_do_not_matter(num_mels: int, num_bins: int) -> None:
    filters = mel_filters(num_bins=num_bins, num_mels=num_mels, sampling_rate=16_000, max_hz=8000.0)
    power = np.square(np.random.default_rng(0).standard_normal((50, num_bins)))
    sparse = SparseFilters(filters)
    bands = sparse.apply(power)
    np.testing.assert_allclose(bands, power @ filters.T, rtol=1e-12, atol=1e-15)
    for rows in (slice(0, 1), slice(7, 20), slice(49, 50)):
        np.testing.assert_array_equal(sparse.apply(power[rows]), bands[rows])
