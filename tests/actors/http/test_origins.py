"""The names by which a server may be called, by where it listens and whether it asks for keys."""

from __future__ import annotations

import pytest
from sensorium.actors.config.server import ListenConfig
from sensorium.actors.http.origins import Origins
from sensorium.protocols.errors import ForbiddenError
from starlette.datastructures import Headers

PUBLIC = "evil.example:8000"
PRIVATE = ("gpu1:8000", "sensorium.default.svc.cluster.local", "studio.local", "host.docker.internal")


def takes(config: ListenConfig, host: str) -> bool:
    try:
        Origins(config).check(Headers({"host": host}))
    except ForbiddenError:
        return False
    return True


@pytest.mark.parametrize("host_option", ["127.0.0.1", "localhost", "::1"])
@pytest.mark.parametrize("keys", [(), ("alice",)])
def test_where_only_this_machine_comes_names_are_this_machines(
    host_option: str, keys: tuple[str, ...]
) -> None:
    config = ListenConfig(host_option, api_key=keys)
    assert all(
        takes(config, host) for host in ("localhost:8000", "app.localhost", "[::1]:8000", "192.168.1.5")
    )
    assert not any(takes(config, host) for host in (PUBLIC, *PRIVATE, "", "127.0.0.1.evil.example"))


@pytest.mark.parametrize("host_option", ["0.0.0.0", "192.168.1.5", "::"])
def test_on_a_network_without_keys_names_are_those_that_nobody_can_own(host_option: str) -> None:
    config = ListenConfig(host_option)
    assert all(takes(config, host) for host in ("localhost", "192.168.1.5:8000", *PRIVATE))
    assert not takes(config, PUBLIC)
    assert takes(ListenConfig(host_option, allowed_hosts=("*",)), PUBLIC)


def test_on_a_network_with_keys_every_name_will_do() -> None:
    """A page that comes by a name of its own does not know the key."""
    assert takes(ListenConfig("0.0.0.0", api_key=("alice",)), PUBLIC)
    named = ListenConfig("0.0.0.0", api_key=("alice",), allowed_hosts=("asr.example.com",))
    assert takes(named, "asr.example.com.:443")
    assert takes(named, "10.0.0.7:8000")
    assert not any(takes(named, host) for host in (PUBLIC, "www.asr.example.com", "gpu1"))


def test_programs_without_a_host_pass() -> None:
    Origins(ListenConfig()).check(Headers({}))
