"""Where what is told of calls may be sent: one of the value objects of `actors/config.py`.

Nowhere, unless an operator names hosts: a call's callback address is written by whoever sets up the call.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from .fetching.networks import Network, read_networks
from .option_checks import ConfigError

_NAME: Final = re.compile(r"(\*\.)?[a-z0-9_]([a-z0-9._-]*[a-z0-9_])?", re.IGNORECASE)
_MIN_SECRET_CHARS: Final = 16


@dataclass(frozen=True, slots=True)
class CallConfig:
    """Telephone calls (docs/calls.md).

    Attributes
    ----------
    call_callback_domains
        Host that events of calls may be posted to, as hooks.example.com, or *.example.com for all below it;
        repeat for several. If none is given, no call may name a callback.
    call_callback_networks
        Network that they may be posted to though it is not public, as 10.1.0.0/16; repeat for several.
    call_callback_secret
        Secret that signs them, 16 characters at least; better set as SENSORIUM_CALL_CALLBACK_SECRET.
    """

    call_callback_domains: tuple[str, ...] = ()
    call_callback_networks: tuple[str, ...] = ()
    call_callback_secret: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        for name in self.call_callback_domains:
            if not _NAME.fullmatch(name):
                raise ConfigError(
                    f"--call-callback-domains is {name!r}; allowed: a name as hooks.example.com or "
                    "*.example.com, without scheme and port"
                )
        for network in self.call_callback_networks:
            try:
                read_networks([network])
            except ValueError:
                raise ConfigError(
                    f"--call-callback-networks is {network!r}; allowed: a network as 10.1.0.0/16 or "
                    "fd00::/8, or an address"
                ) from None
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
        names = [name.lower() for name in self.call_callback_domains]
        return any(host == name or (name[:2] == "*." and host.endswith(name[1:])) for name in names)
