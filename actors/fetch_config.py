"""What files a server fetches by address: one of the value objects of `actors/config.py`.

Addresses are fetched unless an operator says otherwise: requests written for hosted APIs hold them. What
makes that safe is where they may not lead (`actors/fetching/networks.py`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, get_args

from .fetching.networks import Network, read_networks
from .option_checks import MIB, ConfigError, check

FetchMedia = Literal["on", "off"]

_NAME: Final = re.compile(r"(\*\.)?[a-z0-9_]([a-z0-9._-]*[a-z0-9_])?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class FetchConfig:
    """Files that a request names by address.

    Attributes
    ----------
    fetch_media
        Whether http: and https: addresses are fetched, on or off.
    allowed_media_domains
        Host whose files are fetched, as images.example.com, or *.example.com for all below it; repeat for
        several. If none is given, those of every host.
    allowed_media_networks
        Network whose files are fetched though it is not public, as 10.1.0.0/16 or 192.168.0.7; repeat for
        several. Any else that is private, of this machine or link, or special is refused.
    allowed_media_folder
        Folder whose files may be named by file: addresses; repeat for several. If none is given, no file of
        this machine.
    max_fetch_mib
        Largest file to fetch, and most of one request altogether, in MiB.
    fetch_timeout_s
        Seconds in which a file must have arrived, redirects and further attempts included.
    """

    fetch_media: FetchMedia = "on"
    allowed_media_domains: tuple[str, ...] = ()
    allowed_media_networks: tuple[str, ...] = ()
    allowed_media_folder: tuple[Path, ...] = ()
    max_fetch_mib: float = 100.0
    fetch_timeout_s: float = 20.0

    def __post_init__(self) -> None:
        if self.fetch_media not in get_args(FetchMedia):
            raise ConfigError(f"--fetch-media is {self.fetch_media!r}; allowed: on, off")
        for name in self.allowed_media_domains:
            if not _NAME.fullmatch(name):
                raise ConfigError(
                    f"--allowed-media-domains is {name!r}; allowed: a name as images.example.com or "
                    "*.example.com, without scheme and port"
                )
        for network in self.allowed_media_networks:
            try:
                read_networks([network])
            except ValueError:
                raise ConfigError(
                    f"--allowed-media-networks is {network!r}; allowed: a network as 10.1.0.0/16 or "
                    "fd00::/8, or an address"
                ) from None
        for folder in self.allowed_media_folder:
            if not folder.is_dir():
                raise ConfigError(f"--allowed-media-folder is '{folder}'; allowed: a folder that is there")
        check("max_fetch_mib", self.max_fetch_mib, 0.001)
        check("fetch_timeout_s", self.fetch_timeout_s, 0.1, 600)

    @property
    def max_fetch_bytes(self) -> int:
        """Largest file in bytes."""
        return int(self.max_fetch_mib * MIB)

    @property
    def networks(self) -> tuple[Network, ...]:
        """`allowed_media_networks`, read."""
        return read_networks(self.allowed_media_networks)

    def is_allowed_name(self, host: str) -> bool:
        """Whether files of a host, in lower case, are fetched, by its name alone."""
        if not self.allowed_media_domains:
            return True
        names = [name.lower() for name in self.allowed_media_domains]
        return any(host == name or (name[:2] == "*." and host.endswith(name[1:])) for name in names)
