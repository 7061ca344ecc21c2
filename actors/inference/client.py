"""The seam between what faces clients and an engine: the one way in which speech, text and HTTP reach one.

It is two verbs: an `EngineClient` gives a `Place`, which holds encodings, and a place runs requests. Whatever
implements it may live in another process, or be a set of engines: what goes through is plain data, and
nothing that is imported here loads torch. `actors/inference/engine.py` is the engine of this process.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Generic, Protocol, Self, TypeVar, overload

import msgspec

from ...engine.models.info import ModelInfo
from ...protocols.engine.messages import (
    INTERACTIVE,
    ContentHash,
    EncoderItem,
    Features,
    InputChunk,
    Lane,
    MediaSpan,
    Outcome,
    PromptRequest,
    SampleRequest,
    SessionKey,
    TextGenerated,
    TransduceEvent,
    TransduceRequest,
)
from ...protocols.engine.statistics import EngineStatistics
from ...protocols.errors import BadRequestError, EngineFailedError, InternalError, UnavailableError
from ..runtime.actor import InboxStatistics
from ..runtime.supervisor import Health

logger = logging.getLogger(__name__)

OutcomeT = TypeVar("OutcomeT", bound=Outcome)

AnswerT = TypeVar("AnswerT", covariant=True)

Fetch = Callable[[Sequence[ContentHash]], Awaitable[Sequence[Features]]]
"""Gives the features of items, in order."""


def unavailable(name: str, health: Health, *, back_in_s: float = 1.0) -> UnavailableError:
    """Why a model is asked nothing that is not "ready", and expected to be in so many seconds."""
    if health == "failed":
        return EngineFailedError(f"the model {name} has failed; the server must be restarted")
    error = UnavailableError(f"the model {name} is {health}", code="engine_unavailable")
    error.retry_after_s = back_in_s
    return error


def sent_with(items: Sequence[EncoderItem]) -> Fetch:
    """Gives the features that `items` come with."""

    async def fetch(missing: Sequence[ContentHash]) -> Sequence[Features]:
        features = {item.content_hash: item.features for item in items}
        return [features[content_hash] for content_hash in missing]

    return fetch


class Run(Protocol[AnswerT]):
    """A request that runs: iterate over its answers as they come, or await its `outcome`.

    Both raise UnavailableError if the engine goes down.
    """

    def __aiter__(self) -> AsyncIterator[AnswerT]:
        """Answers as they come; the last text has a finish reason."""
        ...

    async def outcome(self) -> AnswerT:
        """The only answer, or all that was not iterated over in one.

        Of a request that samples, `Sample.tokens_a_message` of None saves waking the caller for each token:
        see `whole_answer`. A search with several beams (`SamplingParams.num_beams`) ends only here.
        """
        ...


class FedRun(Run[TransduceEvent], Protocol):
    """A request whose input arrives while it runs: the caller feeds it chunks, which it answers in order.

    Tokens are final when they are given. `StateEvicted` says that the request has lost what it computed: it
    goes on once all of its input is fed again, from the first chunk on, and that of a fork begins where its
    parent's does. All tokens are then given again, the same, each with its frame: `fed_runs.unanswered` drops
    those that a caller has.
    """

    async def outcome(self) -> TransduceEvent:
        """All that was not iterated over in one, once the last chunk is answered; or `StateEvicted`, after
        which the outcome is awaited again."""
        ...

    async def feed(self, chunk: InputChunk) -> None:
        """The next part of the input.

        Raises OverloadedError if too many chunks wait to be run, BadRequestError for a chunk that can never
        be run or if the input or the request has ended.
        """
        ...

    def fork(self, request: TransduceRequest) -> AbstractAsyncContextManager[FedRun]:
        """Run `request` at the same place: it goes on behind what was fed so far, with input of its own.

        So a caller learns what the answer would be if the input ended here. This run may go on meanwhile, or
        end.
        """
        ...


class OutcomeRun(Generic[AnswerT]):
    """The `Run` of a request with one answer, which is asked for when it is awaited."""

    def __init__(self, ask: Callable[[], Awaitable[AnswerT]]) -> None:
        self._ask = ask
        self._is_over = False

    async def outcome(self) -> AnswerT:
        """See `Run.outcome`."""
        answer = await self._ask()
        self._is_over = True
        return answer

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> AnswerT:
        if self._is_over:
            raise StopAsyncIteration
        return await self.outcome()


class Place(Protocol):
    """An engine that holds the encodings of some items."""

    @overload
    def run(self, request: SampleRequest) -> AbstractAsyncContextManager[Run[TextGenerated]]: ...
    @overload
    def run(self, request: PromptRequest) -> AbstractAsyncContextManager[Run[Outcome]]: ...
    @overload
    def run(self, request: TransduceRequest) -> AbstractAsyncContextManager[FedRun]: ...
    def run(
        self, request: SampleRequest | PromptRequest | TransduceRequest
    ) -> AbstractAsyncContextManager[Run[TextGenerated] | Run[Outcome] | FedRun]:
        """Run `request`, whose hashes are those of items held here. Leaving before the end aborts it.

        With a session it ends the session's previous request (its reason is "abort") and takes over what
        that computed; in a restart of the engine sessions are lost, which costs time and changes no result.
        Raises BadRequestError if it can never run: on entering, or by its first answer.
        """
        ...


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

    def placed(
        self,
        items: Sequence[EncoderItem] = (),
        key: str | None = None,
        prompt_token_ids: Sequence[int] = (),
        *,
        spans: Sequence[MediaSpan] = (),
        lane: Lane = INTERACTIVE,
        fetch: Fetch | None = None,
    ) -> AbstractAsyncContextManager[Place]:
        """Where requests on `items` run; the encodings of all items are held until the place is left.

        All items come at once, and each is encoded at most once. Features go to the engine only where it
        lacks the hash: those of `items`, or what `fetch` gives of items that come without. `fetch` may be
        called several times, as others give up that were to send something; what it raises, this raises.
        Hold one set of items at a time: a caller that waits for a second set while holding a first can block
        others for ever. What only live requests held is the first to be evicted.

        A set of engines chooses one of them by hints, which a single engine ignores. `key` names a
        session or conversation: all of its requests go to one engine, until `close_session(key)`.
        `prompt_token_ids` begins like the prompts to come, with the media of `spans` in it: an engine that
        has their prefix cached is better.

        Raises BadRequestError if the items can never be held together.
        """
        ...

    def close_session(self, session: SessionKey) -> None:
        """Let go of what a session keeps between its requests, and of its place in a set of engines.

        Unknown sessions are ignored.
        """
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


async def whole_answer(place: Place, request: SampleRequest) -> TextGenerated:
    """All of `request`'s text in one message, whose `finish_reason` is "error" if it failed alone."""
    task = msgspec.structs.replace(request.task, tokens_a_message=None)
    async with place.run(msgspec.structs.replace(request, task=task)) as run:
        return await run.outcome()


async def outcome_of(place: Place, request: PromptRequest, kind: type[OutcomeT]) -> OutcomeT:
    """The outcome of `request`, which is one of `kind`. Raises InternalError if the request failed alone."""
    async with place.run(request) as run:
        outcome = await run.outcome()
    if isinstance(outcome, kind):
        return outcome
    raise InternalError(f"The engine failed on this request: {failed_alone(outcome)}.")


def failed_alone(answer: TextGenerated | Outcome) -> str:
    """Why an engine could not do what was asked of it, though it goes on: said in the log as well."""
    reason = getattr(answer, "error", None) or "no reason is known"
    logger.error("a request failed alone: %s", reason)
    return reason
