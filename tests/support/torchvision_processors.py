"""Image processors of `transformers` that only torchvision can run, as references: tests that ask for one are
skipped where torchvision is missing.

`pip install torchvision==0.28.0 --no-deps` puts it next to a torch for CPUs. Two of its operators, which no
image processor calls, are then missing, and it cannot be imported without them. `conftest.py` defines them,
before `transformers` imports it.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

import pytest

_BOXES: Final = "(Tensor boxes, Tensor scores, float iou_threshold) -> Tensor"
_LIBRARIES: Final[list[object]] = []
"""What is defined here is so for as long as it is referenced."""


def define_missing_operators() -> None:
    """So that torchvision can be imported, if it is there."""
    if find_spec("torchvision") is None:
        return
    try:
        import_module("torchvision")
    except RuntimeError:
        library = import_module("torch").library.Library("torchvision", "DEF")
        _LIBRARIES.append(library)
        for operator in ("nms", "qnms"):
            library.define(operator + _BOXES)
        import_module("torchvision")


def torchvision_processor(model_type: str, name: str, *, kind: str = "image") -> Any:  # noqa: ANN401 (a class)
    """The class of that name among a type's processors of images or videos. Skips the test without
    torchvision."""
    if find_spec("torchvision") is None:
        pytest.skip("needs torchvision: pip install torchvision==0.28.0 --no-deps")
    module = f"transformers.models.{model_type}.{kind}_processing_{model_type}"
    return getattr(import_module(module), name)
