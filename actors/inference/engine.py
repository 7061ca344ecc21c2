"""The engine of one model in this process: holds encodings for callers, whose requests run at its place.

Composes the group of actors that share one device (executor, scheduler, detokenizer, encoder cache) under a
supervisor: the `EngineClient` of its own process. When one of them crashes, everything in flight fails at
once with UnavailableError and the group starts afresh. It knows no wire formats and no audio. Read
`docs/lifecycle.md` for a request's way through.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import count, islice
from typing import Final

import msgspec
import trio

from ...engine.models.info import ModelInfo
from ...engine.planning.activity import Presence
from ...engine.planning.encoder.admission_queue import Ticket
from ...engine.planning.encoder.cache import EncoderCache
from ...engine.planning.encoder.effects import FeaturesNeeded
from ...engine.planning.limits import SchedulerConfig
from ...engine.planning.scheduler import Scheduler
from ...engine.text.detokenizer import Decode, decoder_maker
from ...protocols.engine.messages import INTERACTIVE, EncoderItem, Lane, MediaSpan, SessionKey
from ...protocols.engine.statistics import EngineStatistics
from ...protocols.errors import (
    BadRequestError,
    DeviceLostError,
    InternalError,
    SensoriumError,
    UnavailableError,
)
from ..config.engine import STEP_TIMEOUT_S
from ..runtime.actor import InboxStatistics
from ..runtime.supervisor import Child, Health, RestartPolicy, Supervisor
from .client import EngineClient, Fetch, sent_with, unavailable
from .executor import ExecutorActor, Runner, ThreadWorker, Worker
from .grammars import COMPILE_TIMEOUT_S, GrammarCompiler, Grammars
from .incarnation import EngineGroup
from .place import EnginePlace

logger = logging.getLogger(__name__)

_MOST_NAMED: Final = 32
"""Requests in flight that are named when an engine crashes."""


def _no_encoder(_: int) -> int:
    raise BadRequestError("this model takes no audio and no images")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineText:
    """The text side of a model: how ids become text, and what its answers can be held to."""

    decode: Decode
    byte_table: Sequence[bytes] | None = None
    """Bytes of each id, where ids become text by joining them: then `decode` is not needed."""
    grammars: Grammars | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineBounds:
    """What an engine may hold, and how long things may take in it, beside its scheduler's bounds."""

    max_encoder_bytes: int = 1
    """Of encoder outputs kept, in use or for reuse; live turns' take a quarter of it at the most, when nobody
    uses them."""
    step_timeout_s: float = STEP_TIMEOUT_S
    survives_hanging: bool = True
    """Whether a new runner finds memory beside one whose step hangs: on a GPU it does not."""
    grammar_timeout_s: float = COMPILE_TIMEOUT_S


class Engine(EngineClient):
    """One model behind one set of actors. All methods are called from the trio loop.

    `make_runner` is called in the device's thread at every start. Its runner must have
    `config.num_blocks` and `config.block_size`. `encoder_bytes` estimates what an encoding takes from its
    number of tokens. `presence` is that of the process's other engines.
    """

    def __init__(
        self,
        name: str,
        make_runner: Callable[[], Runner],
        *,
        text: EngineText,
        config: SchedulerConfig,
        bounds: EngineBounds | None = None,
        encoder_bytes: Callable[[int], int] | None = None,
        restart_policy: RestartPolicy | None = None,
        make_worker: Callable[[], Worker] = ThreadWorker,
        presence: Presence | None = None,
    ) -> None:
        self.name = name
        self.presence = presence or Presence()
        self._make_runner = make_runner
        self._make_decoder = decoder_maker(text.decode, text.byte_table)
        self._config = config
        self._served = config
        """As far as the model goes, once it is loaded."""
        self._bounds = bounds or EngineBounds()
        self._encoder_bytes = encoder_bytes or _no_encoder
        self._make_worker = make_worker
        self._grammars = GrammarCompiler(text.grammars, timeout_s=self._bounds.grammar_timeout_s)
        self._info: ModelInfo | None = None
        self._group: EngineGroup | None = None
        self._former = EngineStatistics()  # counters of the incarnations before
        self._ids = count(1)
        self._place = EnginePlace(
            live=self._live,
            limits=lambda: self._served,
            grammars=self._grammars,
            make_decoder=self._make_decoder,
            ids=self._ids,
            close_session=self.close_session,
        )
        self._supervisor = Supervisor(
            name, self._start, policy=restart_policy, on_crash=self._crashed, fatal=DeviceLostError
        )

    @property
    def health(self) -> Health:
        """Where the engine is in its life."""
        return self._supervisor.health

    @property
    def info(self) -> ModelInfo:
        """What may be known of the model, `max_context` being what is served of it.

        Raises UnavailableError before the first start is done.
        """
        if self._info is None:
            raise UnavailableError(f"the model {self.name} is not loaded yet")
        return self._info

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled; `started` once the model is loaded.

        Raises what the first start raised (ModelLoadError, for one). After that a crash restarts the group,
        unless the device is lost: then it raises DeviceLostError, and health is "failed".
        """
        try:
            await self._supervisor.run(task_status=task_status)
        finally:
            self._close(UnavailableError(f"the model {self.name} is no longer served"))

    @asynccontextmanager
    async def placed(
        self,
        items: Sequence[EncoderItem] = (),
        key: str | None = None,  # noqa: ARG002 (there is one engine)
        prompt_token_ids: Sequence[int] = (),  # noqa: ARG002
        *,
        spans: Sequence[MediaSpan] = (),  # noqa: ARG002
        lane: Lane = INTERACTIVE,
        fetch: Fetch | None = None,
    ) -> AsyncIterator[EnginePlace]:
        """See `EngineClient.placed`."""
        group = self._live()
        if not items:
            yield self._place
            return
        fetch = fetch or sent_with(items)
        ticket = Ticket(next(self._ids))
        try:
            answer = await group.cache.handle.need(ticket, tuple(item.key for item in items), lane)
            while isinstance(answer, FeaturesNeeded):
                features = await fetch(answer.missing)
                sent = dict(zip(answer.missing, features, strict=True))
                answer = await group.cache.handle.supply(ticket, sent)
            slots = {item.content_hash: slot for item, slot in zip(items, answer.slots, strict=True)}
            with group.holding(slots):
                yield self._place
        finally:
            group.cache.handle.release(ticket, is_passing=lane.service == "live")

    def close_session(self, session: SessionKey) -> None:
        """See `EngineClient.close_session`."""
        if self._group is not None:
            self._group.scheduler.handle.close_session(session)

    def statistics(self) -> EngineStatistics:
        now = EngineStatistics() if self._group is None else self._group.statistics()
        now = msgspec.structs.replace(now, num_restarts=self._supervisor.num_restarts)
        return self._former + now

    async def refresh(self) -> None:
        """See `EngineClient.refresh`: nothing to do."""

    def inboxes(self) -> Sequence[InboxStatistics]:
        return () if self._group is None else self._group.inboxes()

    def _live(self) -> EngineGroup:
        if self._group is None or self.health != "ready":
            raise unavailable(self.name, self.health)
        return self._group

    def _start(self) -> Sequence[Child]:
        self._group = EngineGroup(
            make_runner=self._make_runner,
            make_worker=self._make_worker,
            make_scheduler=self._make_scheduler,
            make_decoder=self._make_decoder,
            cache=EncoderCache(
                max_bytes=self._bounds.max_encoder_bytes,
                bytes_of=self._encoder_bytes,
                max_waiting=self._config.max_waiting,
                max_passing_bytes=self._bounds.max_encoder_bytes // 4,
            ),
            step_timeout_s=self._bounds.step_timeout_s,
            survives_hanging=self._bounds.survives_hanging,
        )
        return self._group.children()

    def _make_scheduler(self, executor: ExecutorActor) -> Scheduler:
        assert executor.info is not None, "the executor starts before the scheduler"
        of_runner = (executor.num_blocks, executor.block_size)
        if of_runner != (self._config.num_blocks, self._config.block_size):
            raise InternalError(
                f"the runner of {self.name} has {of_runner[0]} blocks of {of_runner[1]} tokens, its "
                f"scheduler {self._config.num_blocks} of {self._config.block_size}"
            )
        max_context = min(self._config.max_context, executor.info.max_context)
        self._info = replace(executor.info, max_context=max_context)
        # Its tensors know no id beyond: one would break the device for everybody.
        vocab_size = min(self._config.vocab_size or executor.info.vocab_size, executor.info.vocab_size)
        config = replace(self._config, max_context=max_context, vocab_size=vocab_size)
        self._served = replace(config, frames_per_row=executor.info.frames_per_row)
        return Scheduler(self._served, self.presence)

    def _crashed(self, crash: BaseException) -> None:
        names = dict.fromkeys(self._place.running.values())
        if names:
            logger.error("%s: requests in flight: %s", self.name, ", ".join(islice(names, _MOST_NAMED)))
        what_now = "is lost to this process" if isinstance(crash, DeviceLostError) else "is being restarted"
        self._close(UnavailableError(f"the model {self.name} failed and {what_now}"))

    def _close(self, error: SensoriumError) -> None:
        """Fail everything in flight and forget the group; its counters stay."""
        if self._group is not None:
            self._former += self._group.statistics().counters()
            self._group.fail(error)
            self._group = None
