"""What the package exports, and that importing it loads no model code."""

from __future__ import annotations

import subprocess
import sys

import pytest
from sensorium import testing


def test_everything_exported_is_there() -> None:
    assert sorted(testing.__all__) == sorted(testing._MODULES)
    assert all(getattr(testing, name) is not None for name in testing.__all__)
    assert set(testing.__all__) <= set(dir(testing))
    with pytest.raises(AttributeError, match="has no attribute 'Sever'"):
        _ = testing.Sever


@pytest.mark.slow
def test_a_server_is_imported_without_torch() -> None:
    code = (
        "import sys; from sensorium.testing import make_config, InlineWorker; print('torch' in sys.modules)"
    )
    done = subprocess.run((sys.executable, "-c", code), capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
