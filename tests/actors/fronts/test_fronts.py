"""What one front of a cluster knows of the others: whose an id is, its share of bounds, who is forgotten."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import trio
from sensorium.actors.callers import Caller, Shares
from sensorium.actors.config.engine import ProcessConfig
from sensorium.actors.errors import ConfigError
from sensorium.actors.fronts.fronts import FORGET_S, Front, Fronts
from sensorium.actors.nodes.directory import ListedFront, Listing
from sensorium.protocols.errors import OverloadedError
from sensorium.protocols.server.front_tags import is_tag, new_tag, tag_of
from trio.testing import MockClock

OURS, THEIRS, THIRD = "0000000a", "0000000b", "0000000c"


@pytest.fixture
def fronts(tmp_path: Path) -> Fronts:
    return make(tmp_path, OURS)


def make(folder: Path, tag: str) -> Fronts:
    (folder / "secret").write_text("0123456789abcdef")
    config = ProcessConfig(cluster="127.0.0.1:1", engine_secret_file=folder / "secret")
    return Fronts(config, tag)


def listing(tags: Sequence[str], port: int = 7000) -> Listing:
    listed = (ListedFront(tag, f"127.0.0.1:{port + index}") for index, tag in enumerate(tags))
    return Listing(("m",), (), tuple(listed))


def owner(fronts: Fronts, name: str) -> str | None:
    found = fronts.elsewhere(name)
    return None if found is None else found.tag


def test_tags() -> None:
    assert is_tag(new_tag())
    assert not any(map(is_tag, ("", "0000000A", "0000000", "000000000", 1, None)))
    for name in ("resp_0000000a1f", "msg_0000000a1f", "sess_0000000a1f", "ek_0000000a1f"):
        assert tag_of(name) == OURS
    assert not any(is_tag(tag_of(name)) for name in ("", "resp", "resp_", "sk-123", "ek_ABC"))


async def test_an_id_belongs_to_the_front_with_its_tag(fronts: Fronts) -> None:
    await trio.lowlevel.checkpoint()
    fronts.take(listing([OURS, THEIRS]))
    assert owner(fronts, f"resp_{THEIRS}{'1' * 40}") == THEIRS
    assert owner(fronts, f"resp_{OURS}{'1' * 40}") is None
    assert owner(fronts, f"resp_{THIRD}{'1' * 40}") is None
    assert fronts.elsewhere(None) is None


async def test_of_two_with_one_tag_the_newer_one_counts(fronts: Fronts) -> None:
    """A front that was started again with its store, while the directory still lists what it was before."""
    await trio.lowlevel.checkpoint()
    fronts.take(listing([THEIRS, OURS, THEIRS]))
    found = fronts.elsewhere(f"resp_{THEIRS}")
    assert found is not None
    assert found.address.port == 7002


async def test_a_front_is_forgotten_some_time_after_it_was_listed(
    fronts: Fronts, autojump_clock: MockClock
) -> None:
    """A directory that has begun anew has not heard of it yet; what is relayed to it ends with it."""
    fronts.take(listing([OURS, THEIRS]))
    found = fronts.elsewhere(f"resp_{THEIRS}")
    assert isinstance(found, Front)
    fronts.take(listing([OURS]))
    await trio.sleep(FORGET_S - 1)
    assert fronts.elsewhere(f"resp_{THEIRS}") is found
    fronts.take(listing([OURS, THEIRS]))
    fronts.take(listing([OURS]))
    with found.relaying() as scope:
        await trio.sleep(FORGET_S)
        assert not scope.cancel_called
        assert fronts.elsewhere(f"resp_{THEIRS}") is None, "also where no listing has come since"
        fronts.take(listing([OURS]))
        await trio.Event().wait()
    assert scope.cancelled_caught
    assert not fronts.num_others


async def test_the_shares_of_all_add_up_to_the_bound(tmp_path: Path) -> None:
    await trio.lowlevel.checkpoint()
    tags = [THEIRS, OURS, THIRD]
    for num in (1, 2, 3):
        each = [make(tmp_path, tag) for tag in tags[:num]]
        for one in each:
            one.take(listing(tags[:num]))
        for bound in (64, 7, 3):
            assert sum(one.share(bound) for one in each) == bound
        assert [one.share(0) for one in each] == [1] * num, "none is left without"


async def test_a_share_is_that_of_now(fronts: Fronts) -> None:
    await trio.lowlevel.checkpoint()
    shares, caller = Shares(4, "requests", share=fronts.share), Caller("a")
    with shares.holding(caller, 2):
        shares.check(caller, is_shared=False)
        fronts.take(listing([OURS, THEIRS]))
        with pytest.raises(OverloadedError, match="Too many requests in hand"):
            shares.check(caller, is_shared=False)


def test_options() -> None:
    with pytest.raises(ConfigError, match=r"--front-listen is '1\.2\.3\.4:5' without --cluster"):
        ProcessConfig(front_listen="1.2.3.4:5")
    with pytest.raises(ConfigError, match="--front-listen is 'here'; allowed: HOST:PORT"):
        ProcessConfig(front_listen="here")
