"""Responses, their events and their stored forms held to the open Responses schema (`support/`)."""

from __future__ import annotations

import os
from collections.abc import Iterator

import httpx
import pytest
from peers.cases import BAD, RESPONSE_BASE, RESPONSES
from support.open_responses import check_event, check_response

MODEL = os.environ["PEERS_MODEL"]


@pytest.fixture(scope="module")
def http() -> Iterator[httpx.Client]:
    """A client of the server that runs."""
    with httpx.Client(base_url=os.environ["PEERS_URL"], timeout=120) as client:
        yield client


@pytest.mark.parametrize("name", RESPONSES)
def test_a_response_and_its_stored_form(http: httpx.Client, name: str) -> None:
    answer = http.post("/v1/responses", json={"model": MODEL} | RESPONSE_BASE | RESPONSES[name])
    assert answer.status_code == 200, answer.text
    check_response(answer.content)
    if RESPONSES[name].get("store", True):
        check_response(http.get(f"/v1/responses/{answer.json()['id']}").content)


@pytest.mark.parametrize("name", RESPONSES)
def test_events(http: httpx.Client, name: str) -> None:
    body = {"model": MODEL} | RESPONSE_BASE | RESPONSES[name] | {"stream": True}
    answer = http.post("/v1/responses", json=body)
    assert answer.status_code == 200, answer.text
    found = [line[6:] for line in answer.text.splitlines() if line.startswith("data: {")]
    assert len(found) > 4
    for each in found:
        check_event(each.encode())


@pytest.mark.parametrize("name", BAD)
def test_errors_have_what_the_schema_requires(http: httpx.Client, name: str) -> None:
    answer = http.post("/v1/responses", json={"model": MODEL} | RESPONSE_BASE | BAD[name])
    assert 400 <= answer.status_code < 500
    error = answer.json()["error"]
    assert {"message", "type", "param", "code"} <= set(error)
    assert error["message"]
