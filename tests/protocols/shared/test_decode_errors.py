"""What a value that is none of several is told: which there are, in live events and in bodies."""

from __future__ import annotations

import re
from typing import Literal

import msgspec
import pytest
from sensorium.protocols.errors import BadRequestError
from sensorium.protocols.realtime.codec import decode_client_event
from sensorium.protocols.realtime.events import InvalidEvent
from sensorium.protocols.shared import decode_errors as faults
from sensorium.protocols.shared.json_body import decoder


class Plain(msgspec.Struct, tag="plain"):
    """One of a tagged union."""

    speed: Literal["slow", "fast"] = "slow"


class Fine(msgspec.Struct, tag="fine"):
    """The other."""

    size: Literal[1, 2] = 1


class Whole(msgspec.Struct):
    """Choices wherever they may lie."""

    kind: Literal["int", "str"] | None = None
    each: list[Literal["a", "b"]] = []
    by_name: dict[str, tuple[Literal["c"], ...]] = {}
    part: Plain | Fine | None = None
    renamed: Literal["d", "e"] = msgspec.field(default="d", name="else")


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b'{"kind": "x"}', "`kind`: invalid enum value 'x'; allowed: int, str"),
        (b'{"each": ["a", "x"]}', "`each[1]`: invalid enum value 'x'; allowed: a, b"),
        (b'{"by_name": {"n": ["x"]}}', "`by_name[...][0]`: invalid enum value 'x'; allowed: c"),
        (b'{"part": {"type": "x"}}', "`part.type`: invalid value 'x'; allowed: plain, fine"),
        (
            b'{"part": {"type": "plain", "speed": "x"}}',
            "`part.speed`: invalid enum value 'x'; allowed: slow, ",
        ),
        (b'{"part": {"type": "fine", "size": 3}}', "`part.size`: invalid enum value 3; allowed: 1, 2"),
        (b'{"else": "x"}', "`else`: invalid enum value 'x'; allowed: d, e"),
        (b'{"kind": "%b"}' % (b"x" * 10_000), f"`kind`: invalid enum value '{'x' * 40}…; allowed: int, str"),
    ],
)
def test_a_body_is_told_what_is_allowed(body: bytes, told: str) -> None:
    with pytest.raises(BadRequestError) as caught:
        decoder(Whole)(body)
    assert caught.value.message.startswith(told)


def test_a_part_of_a_body_is_told_by_its_own_type() -> None:
    with pytest.raises(BadRequestError, match=r"`tools\[2\]\.speed`: .* allowed: slow, fast"):
        decoder(Plain)(b'{"type": "plain", "speed": "x"}', "tools[2]")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            '"transcription": {"delay": "ultra"}',
            "`session.audio.input.transcription.delay`: Invalid enum value 'ultra'; allowed: minimal, low, ",
        ),
        (
            '"turn_detection": {"type": "x"}',
            "`session.audio.input.turn_detection.type`: Invalid value 'x'; allowed: server_vad, semantic_vad",
        ),
        (
            '"turn_detection": {"type": "semantic_vad", "eagerness": "x"}',
            "`session.audio.input.turn_detection.eagerness`: Invalid enum value 'x'; allowed: low, medium, ",
        ),
    ],
)
@pytest.mark.parametrize("kind", ["realtime", "transcription"])
def test_a_live_event_is_told_what_is_allowed(kind: str, given: str, told: str) -> None:
    session = f'{{"type": "{kind}", "audio": {{"input": {{{given}}}}}}}'
    frame = f'{{"type": "session.update", "session": {session}}}'
    refused = decode_client_event(frame, answers=kind == "realtime")
    assert isinstance(refused, InvalidEvent)
    assert refused.message.startswith(told)


class _Looking:
    """A pattern that is only ever shown short texts."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self._pattern = pattern

    def match(self, text: str) -> re.Match[str] | None:
        assert len(text) <= 2000, "a client's text of any length, and nobody else runs meanwhile"
        return self._pattern.match(text)


class Strict(msgspec.Struct, forbid_unknown_fields=True):
    """Refuses what it does not know."""

    part: Whole | None = None
    parts: list[Strict] = []


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b'{"parts": [{"%b": 1}]}', f"`parts[0].{'x' * 60}…` is not a known field; allowed: part, parts"),
        (b'{"part": {"kind": "%b"}}', f"`part.kind`: invalid enum value '{'x' * 40}…; allowed: int, str"),
    ],
)
def test_what_a_client_wrote_is_not_searched_however_long_it_is(
    body: bytes, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_LOCATION", "_MISSING", "_UNKNOWN", "_CHOICE"):
        monkeypatch.setattr(faults, name, _Looking(getattr(faults, name)))
    with pytest.raises(BadRequestError) as caught:
        decoder(Strict)(body % (b"x" * 1_000_000))
    assert caught.value.message == told
