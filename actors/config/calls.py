"""Where what is told of calls may be sent: one of the value objects of `actors/config/server.py`.

Nowhere, unless an operator names hosts: a call's callback address is written by whoever sets up the call.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from ..errors import ConfigError
from .blocked_networks import Network, read_networks
from .host_patterns import check_hosts, check_networks, is_named

_MIN_SECRET_CHARS: Final = 16


@dataclass(frozen=True, slots=True)
class CallConfig:
    """Telephone calls (docs/calls.md).

    Attributes
    ----------
    call_callback_domains
        Host that events of calls may be posted to, as hooks.example.com, or *.example.com for all below it;
        repeat it for several. Without it, no call may name a callback.
    call_callback_networks
        Private network that they may be posted to, as 10.1.0.0/16; repeat it for several.
    call_callback_secret
        Secret that signs them, 16 characters at least; better set as SENSORIUM_CALL_CALLBACK_SECRET.
    """

    call_callback_domains: tuple[str, ...] = ()
    call_callback_networks: tuple[str, ...] = ()
    call_callback_secret: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        check_hosts("--call-callback-domains", self.call_callback_domains, "hooks")
        check_networks("--call-callback-networks", self.call_callback_networks)
        if self.call_callback_domains and len(self.call_callback_secret) < _MIN_SECRET_CHARS:
            raise ConfigError(
                f"--call-callback-secret has {len(self.call_callback_secret)} characters; allowed with "
                f"--call-callback-domains: {_MIN_SECRET_CHARS} or more"
            )

    @property
    def networks(self) -> tuple[Network, ...]:
        """`call_callback_networks`, read."""
        return read_networks(self.call_callback_networks)

    def is_allowed_name(self, host: str) -> bool:
        """Whether events may be posted to a host, in lower case, by its name alone."""
        return is_named(host, self.call_callback_domains)
