"""An item's id says where it is, and of which call."""

from __future__ import annotations

import pytest
from sensorium.protocols.responses.item_ids import call_id_of, item_id, new_response_id, place_of


@pytest.mark.parametrize("place", [0, 9, 10, 255, 70_000])
def test_an_items_id_says_its_place(place: int) -> None:
    response = new_response_id()
    for call_id in ("", "functions.f:0", "mcp_a_b", "call\n1", "c" * 300):
        assert place_of(item_id("mcp", response, place, call_id)) == (response, place)
    assert place_of(item_id("msg", response, place)) == (response, place)


@pytest.mark.parametrize(
    "foreign", ["", "msg_1", "item_0", "resp_" + "0" * 48, "msg_" + "0" * 90, "msg_" + "g" * 49]
)
def test_others_have_none(foreign: str) -> None:
    assert place_of(foreign) is None


def test_an_items_id_holds_its_calls() -> None:
    for call_id in ("functions.f:0", "mcp_a_b", "call\n1"):
        assert call_id_of(item_id("mcp", new_response_id(), 3, call_id)) == call_id
        assert call_id_of(item_id("mcpr", new_response_id(), 3, call_id)) == call_id
    for foreign in ("mcp_68a", "call_1", "mcp_68a_b", item_id("fc", new_response_id(), 1), ""):
        assert call_id_of(foreign) == foreign
