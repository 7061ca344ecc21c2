"""The seam between what faces clients and an engine: the ways in which speech, text and HTTP reach one.

Whatever implements it may live in another process: what goes through is plain data, and nothing that is
imported here loads torch. `actors/inference/engine.py` is the engine of this process.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol, TypeVar

from ...engine.models.info import ModelInfo
from ...protocols.engine.messages import (
    INTERACTIVE,
    ContentHash,
    EncoderItem,
    Features,
    ItemKey,
    Lane,
    Outcome,
    PromptRequest,
    SampleRequest,
    SessionKey,
    TextGenerated,
)
from ...protocols.engine.statistics import EngineStatistics
from ...protocols.errors import BadRequestError, EngineFailedError, InternalError, UnavailableError
from ..runtime.actor import InboxStatistics
from ..runtime.supervisor import Health

logger = logging.getLogger(__name__)

OutcomeT = TypeVar("OutcomeT", bound=Outcome)

Fetch = Callable[[Sequence[ContentHash]], Awaitable[Sequence[Features]]]
"""Gives the features of items, in order."""


def unavailable(name: str, health: Health, *, back_in_s: float = 1.0) -> UnavailableError:
    """Why a model is asked nothing that is not "ready", and expected to be in so many seconds."""
    if health == "failed":
        return EngineFailedError(f"the model {name} has failed; the server must be restarted")
    error = UnavailableError(f"the model {name} is {health}", code="engine_unavailable")
    error.retry_after_s = back_in_s
    return error


class EngineClient(Protocol):
    """One model, wherever it runs. All methods are called from the trio loop.

    Every method raises OverloadedError where a bound is reached and UnavailableError where the engine is
    down or goes down meanwhile; leaving or cancelling gives back at once what was held.
    """

    @property
    def info(self) -> ModelInfo:
        """What may be known of the model, `max_context` being what is served of it."""
        ...

    @property
    def health(self) -> Health:
        """Where the engine is in its life; requests are served while it is "ready"."""
        ...

    def statistics(self) -> EngineStatistics:
        """Counters since the first start, restarts included; gauges of now.

        Of another process they are as it last told them, some times a second: `refresh` first where that is
        too old.
        """
        ...

    def inboxes(self) -> Iterable[InboxStatistics]:
        """Statistics of its actors' inboxes, as old as `statistics`; none while the engine is down."""
        ...

    async def refresh(self) -> None:
        """Bring `statistics` and `health` up to now, or give up within a second. Raises nothing."""
        ...

    @asynccontextmanager
    async def encoded(self, *items: EncoderItem, lane: Lane = INTERACTIVE) -> AsyncIterator[None]:
        """Hold the encodings of `items` for the duration; all come at once, each is encoded at most once.

        Inside, the other methods may name their hashes. Features go to the engine only where it has not
        got the hash yet. Hold one set at a time: who waits for a second while holding a first can block
        others for ever. What only live requests held is the first to be forgotten. Raises BadRequestError
        if they can never be held together.
        """
        features = {item.content_hash: item.features for item in items}

        async def fetch(missing: Sequence[ContentHash]) -> Sequence[Features]:
            return [features[content_hash] for content_hash in missing]

        async with self.held(tuple(item.key for item in items), fetch, lane=lane):
            yield

    def held(
        self, items: tuple[ItemKey, ...], fetch: Fetch, *, lane: Lane = INTERACTIVE
    ) -> AbstractAsyncContextManager[None]:
        """`encoded` by name: `fetch` is asked for the features of what nobody has sent yet.

        It may be asked several times, as others give up that were to send something. What it raises, this
        raises; others who need the same are then asked.
        """
        ...

    def generate(self, request: SampleRequest) -> AbstractAsyncContextManager[AsyncIterable[TextGenerated]]:
        """Run `request`; its text comes through the stream. Leaving before the end aborts it.

        With a session it ends the session's previous request (its reason is "abort") and takes over what
        that computed; in a restart of the engine sessions are lost, which costs time and changes no result.
        Raises BadRequestError if it can never run, and for more than one beam.
        """
        ...

    async def complete(self, request: SampleRequest) -> TextGenerated:
        """All of `request`'s text in one message. Raises as `generate` does.

        A search with several beams (`SamplingParams.num_beams`) ends only here.
        """
        ...

    async def perform(self, request: PromptRequest) -> Outcome:
        """The outcome of a request that does not sample; see `outcome_of`. Raises as `generate` does."""
        ...

    def close_session(self, session: SessionKey) -> None:
        """Let go of what a session keeps between its requests. Unknown ones are nothing to let go of."""
        ...


def check_answer(answer: TextGenerated) -> None:
    """Raise if the request failed alone: BadRequestError if its own rules left nothing to say."""
    if answer.finish_reason == "abort":
        raise UnavailableError("The request was aborted.")
    if answer.finish_reason != "error":
        return
    match answer.fault:
        case "no_token" | "cannot_follow":
            raise BadRequestError(f"The answer cannot continue: {answer.error}.", code="no_possible_token")
        case _:
            raise InternalError(f"Generating failed: {failed_alone(answer)}.")


async def outcome_of(engine: EngineClient, request: PromptRequest, kind: type[OutcomeT]) -> OutcomeT:
    """The outcome of `request`, which is one of `kind`. Raises as `EngineClient.perform` does, and
    InternalError if the request failed alone."""
    outcome = await engine.perform(request)
    if isinstance(outcome, kind):
        return outcome
    raise InternalError(f"The engine failed on this request: {failed_alone(outcome)}.")


def failed_alone(answer: TextGenerated | Outcome) -> str:
    """Why an engine could not do what was asked of it, though it goes on: said in the log as well."""
    reason = getattr(answer, "error", None) or "no reason is known"
    logger.error("a request failed alone: %s", reason)
    return reason
