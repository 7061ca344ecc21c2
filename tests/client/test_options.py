"""Where settings come from, and addresses made of them."""

from __future__ import annotations

import math
import socket

import pytest
from sensorium.client.options import client_options


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SENSORIUM_BASE_URL", raising=False)
    monkeypatch.delenv("SENSORIUM_CLIENT_API_KEY", raising=False)


def test_arguments_win_over_the_environment_and_that_over_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    assert client_options().base_url == "http://127.0.0.1:8000"
    monkeypatch.setenv("SENSORIUM_BASE_URL", "https://speech.example")
    monkeypatch.setenv("SENSORIUM_CLIENT_API_KEY", "secret")
    assert client_options().headers == {"Authorization": "Bearer secret"}
    assert client_options().base_url == "https://speech.example"
    assert client_options("http://other:1", "mine", 5.0).headers == {"Authorization": "Bearer mine"}


@pytest.mark.parametrize("url", ["http://h:1", "http://h:1/", "http://h:1/v1", "http://h:1/v1/"])
def test_the_address_may_end_in_v1(url: str) -> None:
    options = client_options(url)
    assert options.root_url == "http://h:1"
    assert options.realtime_url(model="a b") == "ws://h:1/v1/realtime?intent=transcription&model=a+b"


def test_https_becomes_wss() -> None:
    assert client_options("https://h").realtime_url() == "wss://h/v1/realtime?intent=transcription"


def test_a_key_that_is_given_as_a_header_is_the_only_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SENSORIUM_CLIENT_API_KEY", "secret")
    given = {"authorization": "Basic mine"}
    assert client_options(headers=given).headers == given


@pytest.mark.parametrize("key", ["secret\n", "schlüssel", "secret\t"])
def test_a_key_that_no_header_carries_is_refused_and_not_shown(key: str) -> None:
    with pytest.raises(ValueError, match="api_key has a character") as refused:
        client_options(api_key=key)
    assert key.strip() not in str(refused.value)


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://h", "http://", "http://h:65536", "http://h:x"])
def test_a_bad_address_is_named(url: str) -> None:
    with pytest.raises(ValueError, match=r"base_url is .*expected http://HOST:PORT"):
        client_options(url)


def test_a_bad_timeout_is_named() -> None:
    with pytest.raises(ValueError, match="timeout is 0: expected seconds above 0"):
        client_options(timeout=0)


def test_no_proxy_stands_in_front_of_this_machine() -> None:
    assert client_options("http://localhost:1").is_loopback
    assert not client_options("http://example.org").is_loopback


def test_a_timeout_without_end_is_one_that_sockets_take() -> None:
    with socket.socket() as taken:
        taken.settimeout(client_options(timeout=math.inf).timeout_s)
    assert client_options(timeout=3600.0).timeout_s == 3600.0
