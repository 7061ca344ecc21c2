"""The seam between what faces clients and an engine: the six ways in which speech, text and HTTP reach one.

Whatever implements it may live in another process: what goes through is plain data, and nothing that is
imported here loads torch. `actors/engine/engine.py` is the engine of this process.
"""

from __future__ import annotations

from collections.abc import AsyncIterable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from ...engine.models.info import ModelInfo
from ...protocols.messages import (
    INTERACTIVE,
    Align,
    EncoderItem,
    Generate,
    Lane,
    SessionKey,
    TextGenerated,
    TokensAligned,
)


class EngineClient(Protocol):
    """One model, wherever it runs. All methods are called from the trio loop.

    Every method raises OverloadedError where a bound is reached and UnavailableError where the engine is
    down or goes down meanwhile; leaving or cancelling gives back at once what was held.
    """

    @property
    def info(self) -> ModelInfo:
        """What may be known of the model, `max_context` being what is served of it."""
        ...

    def encoded(self, *items: EncoderItem, lane: Lane = INTERACTIVE) -> AbstractAsyncContextManager[object]:
        """Hold the encodings of `items` for the duration; all come at once, each is encoded at most once.

        Inside, the other methods may name their hashes. Hold one set at a time. Raises BadRequestError if
        they can never be held together. What only live requests held is the first to be forgotten.
        """
        ...

    def generate(self, request: Generate) -> AbstractAsyncContextManager[AsyncIterable[TextGenerated]]:
        """Run `request`; its text comes through the stream. Leaving before the end aborts it.

        Raises BadRequestError if it can never run.
        """
        ...

    async def complete(self, request: Generate) -> TextGenerated:
        """All of `request`'s text in one message. Raises as `generate` does."""
        ...

    async def align(self, command: Align) -> TokensAligned:
        """When each text token was spoken. InternalError if it failed alone."""
        ...

    def close_session(self, session: SessionKey) -> None:
        """Let go of what a session keeps between its requests. Unknown ones are nothing to let go of."""
        ...
