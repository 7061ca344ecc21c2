"""The classes of service in order: a better class takes slots and tokens from a worse one.

By which rules: `engine/planning/policies/service_classes.py`. Which request belongs to which class:
`actors/service_class.py`.
"""

from __future__ import annotations

from typing import Final, get_args

from ...protocols.engine.messages import Service

SERVICES: Final[tuple[Service, ...]] = get_args(Service)
"""Best first; a class is its place here."""
