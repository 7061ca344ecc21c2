"""Ephemeral keys: valid until they expire, bounded in number, kept as hashes."""

from __future__ import annotations

from collections.abc import ItemsView

import pytest
import trio
from sensorium.actors.callers import caller_by_key
from sensorium.actors.http.realtime.client_secrets import ClientSecrets, Secret
from sensorium.protocols.errors import OverloadedError
from sensorium.protocols.realtime.client_secrets import parse_client_secret
from sensorium.protocols.realtime.conversation_session import DialoguePatch
from sensorium.protocols.realtime.session import SessionPatch
from trio.testing import MockClock

PATCH = SessionPatch(model="m")
ALICE, BOB = caller_by_key("alice"), caller_by_key("bob")


def patch_of(secrets: ClientSecrets, value: str) -> SessionPatch | DialoguePatch | None:
    found = secrets.find(value)
    return None if found is None else found.patch


async def test_a_secret_is_valid_until_it_expires(autojump_clock: MockClock) -> None:
    secrets = ClientSecrets()
    value, _ = secrets.issue(PATCH, 60)
    await trio.sleep(59)
    assert patch_of(secrets, value) == PATCH
    assert patch_of(secrets, value) == PATCH  # it opens any number of sessions
    await trio.sleep(1)
    assert secrets.find(value) is None


async def test_other_values_are_not_valid() -> None:
    secrets = ClientSecrets()
    value, _ = secrets.issue(PATCH, 60)
    for other in (None, "", value[:-1], value + "x", value.removeprefix("ek_"), "ek_\udcff"):
        assert secrets.find(other) is None
    assert secrets.issue(PATCH, 60)[0] != value


async def test_expired_secrets_make_room(autojump_clock: MockClock) -> None:
    secrets = ClientSecrets(max_secrets=2)
    kept, _ = secrets.issue(PATCH, 100)
    secrets.issue(PATCH, 10)
    with pytest.raises(OverloadedError):
        secrets.issue(PATCH, 10)
    await trio.sleep(10)
    secrets.issue(PATCH, 10)
    assert len(secrets) == 2
    assert patch_of(secrets, kept) == PATCH


async def test_what_they_hold_together_is_bounded(autojump_clock: MockClock) -> None:
    """In bytes of settings; what a session shows and nobody reads is not kept."""
    secrets = ClientSecrets(max_bytes=25_000)
    body = b'{"session": {"limits": [%s], "audio": {"input": {"transcription": {"prompt": "%s"}}}}}'
    patch = parse_client_secret(body % (b"1," * 50_000 + b"1", b"x" * 10_000)).patch
    first, _ = secrets.issue(patch, 10)
    secrets.issue(patch, 10)
    with pytest.raises(OverloadedError):
        secrets.issue(patch, 10)
    found = patch_of(secrets, first)
    assert found is not None
    assert found.audio == patch.audio
    await trio.sleep(10)
    secrets.issue(patch, 10)
    assert len(secrets) == 1


async def test_one_callers_many_secrets_give_way_to_anothers(autojump_clock: MockClock) -> None:
    """Those that expire first, and never those of the caller that has fewer."""
    secrets = ClientSecrets(max_secrets=4)
    alices = secrets.issue(PATCH, 10, owner=ALICE)[0]
    bobs = [secrets.issue(PATCH, 100 - place, owner=BOB)[0] for place in range(3)]
    with pytest.raises(OverloadedError):
        secrets.issue(PATCH, 200, owner=BOB)
    more = secrets.issue(PATCH, 10, owner=ALICE)[0]
    assert [patch_of(secrets, value) is None for value in (alices, more, *bobs)] == [False] * 4 + [True]
    with pytest.raises(OverloadedError):
        secrets.issue(PATCH, 10, owner=ALICE)  # they have as many now


async def test_settings_give_way_by_their_size(autojump_clock: MockClock) -> None:
    secrets = ClientSecrets(max_bytes=25_000)
    body = b'{"session": {"audio": {"input": {"transcription": {"prompt": "%s"}}}}}'
    large, small = (parse_client_secret(body % (b"x" * size)).patch for size in (10_000, 100))
    bobs = [secrets.issue(large, 60, owner=BOB)[0] for _ in range(2)]
    alices = [secrets.issue(small, 10, owner=ALICE)[0] for _ in range(40)]
    assert all(patch_of(secrets, value) == small for value in alices)
    assert [patch_of(secrets, value) for value in bobs] == [None, large]


async def test_those_that_give_way_are_looked_for_once(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For each of some dozens that a large one takes the place of, ten thousand would be 2 ms."""
    num_looks = [0]

    class Counted(dict[bytes, Secret]):
        def items(self) -> ItemsView[bytes, Secret]:  # type: ignore[override]
            num_looks[0] += 1
            return super().items()

    secrets = ClientSecrets(max_bytes=25_000)
    monkeypatch.setattr(secrets, "_secrets", Counted())
    body = b'{"session": {"audio": {"input": {"transcription": {"prompt": "%s"}}}}}'
    large, small = (parse_client_secret(body % (b"x" * size)).patch for size in (5_000, 500))
    bobs = [secrets.issue(small, 60 + place, owner=BOB)[0] for place in range(40)]
    num_looks[0] = 0
    secrets.issue(large, 60, owner=ALICE)
    gone = [patch_of(secrets, value) is None for value in bobs]
    assert gone == sorted(gone, reverse=True), "those that expire first"
    assert sum(gone) > 3
    assert num_looks == [2]
