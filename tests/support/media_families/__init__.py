"""All families of models that see or hear which tests make checkpoints of: a file for each kind.

A file of this folder has `FAMILIES` (they see), `AUDIO_FAMILIES` (they hear), or both. It is found by being
here.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from support.media_family import Family

_FILES = [import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__)]
FAMILIES: tuple[Family, ...] = tuple(family for file in _FILES for family in getattr(file, "FAMILIES", ()))
AUDIO_FAMILIES: tuple[Family, ...] = tuple(
    family for file in _FILES for family in getattr(file, "AUDIO_FAMILIES", ())
)
BY_NAME = {family.model_type: family for family in (*FAMILIES, *AUDIO_FAMILIES)}
