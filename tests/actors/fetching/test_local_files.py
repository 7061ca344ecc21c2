"""Files of this machine are read from the folders that are named, whatever links lead out of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from sensorium.actors.fetching.local_files import read_local_file
from sensorium.protocols.errors import FetchError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    inside = tmp_path / "media"
    inside.mkdir()
    (inside / "a b.txt").write_bytes(b"inside")
    (inside / "link").symlink_to(tmp_path / "secret")
    (inside / "linked").symlink_to(inside / "a b.txt")
    os.mkfifo(inside / "pipe")
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "media-not").mkdir()
    (tmp_path / "media-not" / "x").write_bytes(b"beside")
    return inside


def refusal(url: str, *folders: Path, max_bytes: int = 1000) -> FetchError:
    with pytest.raises(FetchError) as caught:
        read_local_file(url, folders, max_bytes)
    return caught.value


@pytest.mark.parametrize("name", ["a%20b.txt", "linked", "../media/a%20b.txt"])
def test_files_inside_are_read(folder: Path, name: str) -> None:
    assert read_local_file(f"file://{folder}/{name}", [folder], 1000) == b"inside"
    assert read_local_file(f"file://localhost{folder}/{name}", [folder], 1000) == b"inside"


def test_files_elsewhere_are_not_and_nobody_learns_whether_they_are_there(folder: Path) -> None:
    names = ("link", "../secret", "%2e%2e/secret", "none", ".", "../media-not/x", "pipe")
    urls = [f"file://{folder}/{name}" for name in names]
    refusals = {refusal(url, folder).message for url in (*urls, "file:///etc/passwd", "file:///dev/zero")}
    assert len(refusals) == 1


@pytest.mark.parametrize("name", ["a%00b", "a%20b.txt?query", "a%20b.txt#part"])
def test_odd_addresses_are_refused(folder: Path, name: str) -> None:
    assert refusal(f"file://{folder}/{name}", folder).code == "url_refused"
    assert refusal(f"file://host{folder}/{name}", folder).code == "url_refused"


@pytest.mark.parametrize("url", ["file://[x/a", "file://[::g]/a", "file://\u2100/a", "file://a]b/"])
def test_addresses_that_cannot_be_taken_apart_are_refused(folder: Path, url: str) -> None:
    assert refusal(url, folder).code == "url_refused"


def test_without_a_folder_none_is_read(folder: Path) -> None:
    assert "--allowed-media-folder" in refusal(f"file://{folder}/linked").message


def test_size_is_bounded(folder: Path) -> None:
    assert refusal(f"file://{folder}/linked", folder, max_bytes=5).code == "file_too_large"
    assert read_local_file(f"file://{folder}/linked", [folder], 6) == b"inside"
