"""What libraries read from the environment when they are loaded. Imports next to nothing itself."""

from __future__ import annotations

from collections.abc import MutableMapping


def set_library_defaults(environment: MutableMapping[str, str]) -> None:
    """Set what torch and its libraries read when they are loaded, unless it is set."""
    # Read by OpenMP: how long its threads spin for each other before they sleep. Its own 300,000 rounds make
    # steps many times slower as soon as anything else wants a core (see docs/performance/kernels.md).
    environment.setdefault("GOMP_SPINCOUNT", "3000")
    # Read at their first use by oneDNN and by what torch has around it: how many compiled kernels each keeps,
    # one for every shape it has met. Its own 1024, of 256 KiB each, are most of what a live server holds.
    for cache in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
        environment.setdefault(cache, "128")
