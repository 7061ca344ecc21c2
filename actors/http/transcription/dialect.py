"""The dialect of files to text."""

from __future__ import annotations

from typing import Final

from starlette.routing import Route

from ....protocols.transcription.operations import OPERATIONS
from ..dialect import Dialect, route
from ..service import Service
from .routes import TranscriptionRoutes


def _routes(service: Service) -> list[Route]:
    files = TranscriptionRoutes(service)
    found = []
    if service.transcribing:
        found.append(route("/v1/audio/transcriptions", files.transcriptions, "POST"))
    if any(model.can_translate for model in service.models.values()):
        found.append(route("/v1/audio/translations", files.translations, "POST"))
    return found


TRANSCRIPTION: Final = Dialect(operations=OPERATIONS, routes=_routes)
