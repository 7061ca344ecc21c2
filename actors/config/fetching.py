"""What files a server fetches by address: one of the value objects of `actors/config/server.py`.

Addresses are fetched unless an operator says otherwise: requests written for hosted APIs hold them. What
makes that safe is where they may not lead (`actors/config/blocked_networks.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from ..errors import ConfigError
from .blocked_networks import Network, read_networks
from .host_patterns import check_hosts, check_networks, is_named
from .validation import MIB, check, check_word

FetchMedia = Literal["on", "off"]


@dataclass(frozen=True, slots=True)
class FetchConfig:
    """Files that a request names by address.

    Attributes
    ----------
    fetch_media
        Whether http: and https: addresses are fetched, on or off.
    allowed_media_domains
        Host whose files are fetched, as images.example.com, or *.example.com for all below it; repeat it for
        several. Default: every host.
    allowed_media_networks
        Private network whose files are fetched, as 10.1.0.0/16 or 192.168.0.7; repeat it for several. Other
        private, loopback, link-local and reserved addresses are refused.
    allowed_media_folder
        Folder whose files may be named by file: addresses; repeat it for several. Default: none.
    max_fetch_mib
        Largest file to fetch, and largest total of one request, in MiB.
    fetch_timeout_s
        Seconds in which a file must arrive, redirects and retries included.
    """

    fetch_media: FetchMedia = "on"
    allowed_media_domains: tuple[str, ...] = ()
    allowed_media_networks: tuple[str, ...] = ()
    allowed_media_folder: tuple[Path, ...] = ()
    max_fetch_mib: float = 100.0
    fetch_timeout_s: float = 20.0

    def __post_init__(self) -> None:
        check_word("fetch_media", self.fetch_media, get_args(FetchMedia))
        check_hosts("--allowed-media-domains", self.allowed_media_domains, "images")
        check_networks("--allowed-media-networks", self.allowed_media_networks)
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
        return not self.allowed_media_domains or is_named(host, self.allowed_media_domains)
