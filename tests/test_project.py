"""The project's own shape: packages listed, rooms explained, files bounded."""

from __future__ import annotations

import re
import tomllib
from graphlib import TopologicalSorter
from pathlib import Path

from support.imports import ROOT, imported

NOT_PACKAGES = {"tests", "examples", "docs", "build"}
OWN_DISTRIBUTION = ROOT / "engine" / "checkpoints"
MAX_LINES = 600


def files(name: str) -> list[Path]:
    """Every file of that name or pattern, hidden folders and build products left out."""
    return [
        path
        for path in ROOT.rglob(name)
        if not any(part.startswith(".") or part == "build" for part in path.relative_to(ROOT).parts)
    ]


def source_files() -> list[Path]:
    """Every Python file."""
    return files("*.py")


def test_every_package_is_listed() -> None:
    listed = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"])
    found = {
        ".".join(("sensorium", *path.parent.relative_to(ROOT).parts))
        for path in source_files()
        if path.name == "__init__.py"
        and path.relative_to(ROOT).parts[0] not in NOT_PACKAGES
        and path.parent != OWN_DISTRIBUTION
    }
    assert listed == found


def test_no_file_knows_one_that_knows_it() -> None:
    """But a kernel and its Triton side, which is imported where there is a GPU. Types count, too."""
    modules = {
        ".".join(("sensorium", *path.relative_to(ROOT).with_suffix("").parts)): path
        for path in source_files()
        if path.name != "__init__.py" and path.relative_to(ROOT).parts[0] not in NOT_PACKAGES
    }
    known = {name: imported(path) & modules.keys() for name, path in modules.items()}
    for name in known:
        room, _, kernel = name.rpartition(".")
        known[name] = known[name] - {f"{room}.triton_{kernel}"}
    TopologicalSorter(known).prepare()  # CycleError names them


def test_every_room_says_what_it_holds() -> None:
    for room in ("actors", "client", "engine", "kernels", "media", "protocols", "realtime"):
        readme = ROOT / room / "README.md"
        assert readme.exists(), f"{room}/README.md is missing"
        assert len(readme.read_text().splitlines()) <= 10, f"{room}/README.md is longer than ten lines"


def test_no_file_is_too_long() -> None:
    too_long = {
        str(path.relative_to(ROOT)): lines
        for path in source_files()
        if (lines := len(path.read_text().splitlines())) > MAX_LINES
    }
    assert not too_long


def anchors(page: Path) -> set[str]:
    """What may follow `#` in a link to a page: its headings, lower case, without punctuation."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_between_pages_lead_somewhere() -> None:
    broken = []
    for page in files("*.md"):
        for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
            target, _, anchor = link.partition("#")
            if "://" in link:
                continue
            found = page.parent / target if target else page
            if not found.exists() or (anchor and anchor not in anchors(found)):
                broken.append(f"{page.relative_to(ROOT)}: {link}")
    assert not broken


def test_every_source_file_says_its_job() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path in source_files()
        if path.name != "__init__.py" and not path.read_text().lstrip().startswith(('"""', "#!"))
    ]
    assert not silent


def test_the_embedded_weights_stay_small() -> None:
    weights = list(OWN_DISTRIBUTION.rglob("*.safetensors"))
    assert weights
    for path in weights:
        assert path.stat().st_size <= 12 * 2**20, f"{path.name} is larger than 12 MiB"
