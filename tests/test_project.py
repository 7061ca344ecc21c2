"""The project's own shape: packages listed, rooms explained, files bounded."""

from __future__ import annotations

import re
import tomllib
from graphlib import TopologicalSorter
from pathlib import Path

from support.imports import ROOT, imported

NOT_PACKAGES = {"tests", "examples", "docs", "build"}
OWN_DISTRIBUTION = ROOT / "engine" / "checkpoints"
ROOMS = ("actors", "client", "engine", "kernels", "media", "protocols", "realtime", "testing")
MAX_LINES = 600
"""Files follow their subject: from 400 lines on, ask whether there are two."""
MAX_README_LINES = 40
MAX_MODULES = 20


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
    """But a kernel and its GPU side, which is imported where there is a GPU. Types count, too."""
    modules = {
        ".".join(("sensorium", *path.relative_to(ROOT).with_suffix("").parts)): path
        for path in source_files()
        if path.name != "__init__.py" and path.relative_to(ROOT).parts[0] not in NOT_PACKAGES
    }
    known = {name: imported(path) & modules.keys() for name, path in modules.items()}
    for name in known:
        kernel = name.rpartition(".")[2]
        known[name] = known[name] - {f"sensorium.kernels.gpu.{kernel}"}
    TopologicalSorter(known).prepare()  # CycleError names them


def test_every_room_says_what_it_holds() -> None:
    """Each folder of a room has its line in the room's README, and none is a drawer of all things."""
    for room in ROOMS:
        readme = (ROOT / room / "README.md").read_text()
        assert len(readme.splitlines()) <= MAX_README_LINES, f"{room}/README.md is too long"
        for package in (path.parent for path in (ROOT / room).rglob("__init__.py")):
            modules = [path for path in package.glob("*.py") if path.name != "__init__.py"]
            assert len(modules) <= MAX_MODULES, f"{package.relative_to(ROOT)} has {len(modules)} modules"
            if package.parent == ROOT / room:
                assert f"`{package.name}/`" in readme, f"{room}/README.md does not name {package.name}/"


def test_modules_that_prose_names_exist() -> None:
    """A path with a folder names a file of this repository, whole or from its end."""
    paths = {path.relative_to(ROOT).as_posix() for path in source_files()}
    missing = []
    for page in [*source_files(), *files("*.md")]:
        if page == ROOT / "docs" / "glossary.md":  # maps old paths to new ones
            continue
        missing += [
            f"{page.relative_to(ROOT)}: {name}"
            for name in re.findall(r"`([a-z_0-9]+/[a-z_0-9/]*\w\.py)`", page.read_text())
            if not any(path == name or path.endswith(f"/{name}") for path in paths)
        ]
    assert not missing


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
