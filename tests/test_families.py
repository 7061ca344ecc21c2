"""A model family is a unit: a folder, one speech file where it listens, one line in the registry.

Nobody else names a family or what is in its folder; what has to be known is asked of `ModelSource` and
`ModelInfo`. `tests/engine/models/test_third_family.py` adds a family.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from support.imports import ROOT, imported, nodes

MODELS = ROOT / "engine" / "models"
FAMILIES = sorted(path.parent.name for path in MODELS.glob("*/__init__.py"))
ROOMS = ("actors", "client", "engine", "kernels", "media", "protocols", "realtime")
SPEECH = ROOT / "actors" / "speech" / "families"
REGISTRY = MODELS / "families.py"


def outside(family: str) -> Iterator[Path]:
    """Source files of everybody who must not know a family."""
    for room in ROOMS:
        for path in (ROOT / room).rglob("*.py"):
            if (MODELS / family) not in path.parents:
                yield path


def is_of_a_family(path: Path) -> bool:
    """Whether a source file lies in a family's folder."""
    return MODELS in path.parents and path.parent != MODELS


def test_there_are_families() -> None:
    assert {"dense", "multimodal", "qwen3_asr", "qwen3_vl", "transformers", "whisper"} <= set(FAMILIES)


def test_nobody_imports_a_family() -> None:
    """But other families, which may build on one, and its speech side, which nobody imports."""
    found = []
    for family in FAMILIES:
        module = re.compile(rf"sensorium\.(engine\.models|actors\.speech\.families)\.{family}(\.|$)")
        for path in outside(family):
            is_its_own = is_of_a_family(path) or path == SPEECH / f"{family}.py"
            if not is_its_own and any(map(module.match, imported(path))):
                found.append(f"{path.relative_to(ROOT)} imports {family}")
    assert not found


def test_nobody_names_a_family() -> None:
    """Neither compares with a name nor looks one up; the registry's own lines apart."""
    found = []
    for family in FAMILIES:
        for path in outside(family):
            if path == REGISTRY:
                continue
            found += [
                f"{path.relative_to(ROOT)}:{node.lineno} says {family!r}"
                for node in nodes(path)
                if isinstance(node, ast.Constant) and node.value == family
            ]
    assert not found


def test_what_family_a_model_is_of_is_for_people() -> None:
    """`info.family` is put into texts, and nothing is decided by it."""
    found = []
    for path in (path for room in ROOMS for path in (ROOT / room).rglob("*.py")):
        shown = {id(node.value) for node in nodes(path) if isinstance(node, ast.FormattedValue)}
        found += [
            f"{path.relative_to(ROOT)}:{node.lineno}"
            for node in nodes(path)
            if isinstance(node, ast.Attribute)
            and re.search(r"\binfo\.family$", ast.unparse(node))
            and id(node) not in shown
        ]
    assert not found


def test_nobody_asks_what_class_an_info_or_a_text_side_is() -> None:
    found = []
    for path in (path for room in ROOMS for path in (ROOT / room).rglob("*.py")):
        if is_of_a_family(path):
            continue
        for node in nodes(path):
            match node:
                case ast.Call(func=ast.Name(id="isinstance"), args=[subject, _]):
                    if isinstance(subject, ast.Attribute | ast.Name) and re.search(
                        r"\b(info|text|source)$", ast.unparse(subject)
                    ):
                        found.append(f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}")
    assert not found


def test_a_family_brings_its_own_feature_extractors() -> None:
    """What reads their files (`media/audio/features.py`) knows none of them by name, but for a rule that is
    one family's."""
    found = [
        f"{path.relative_to(ROOT)}: {node.value}"
        for room in ROOMS
        for path in (ROOT / room).rglob("*.py")
        if not is_of_a_family(path) and path.parent.name != "rules"
        for node in nodes(path)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.fullmatch(r"\w+FeatureExtractor", node.value)
    ]
    assert not found
