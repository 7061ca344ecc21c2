"""What the routes share: the served models, the file decoder, the counters, and who is connected.

Made by `actors/server.py`, used by `actors/http/routes.py` and `actors/http/realtime/websocket.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import cast

import msgspec
import trio
from starlette.requests import HTTPConnection
from starlette.types import Scope
from starlette.websockets import WebSocket

from ...protocols.engine.messages import Lane
from ...protocols.errors import (
    BadRequestError,
    ClientError,
    NotFoundError,
    OverloadedError,
    UnauthorizedError,
)
from ...protocols.realtime.conversation_session import DialoguePatch
from ...protocols.realtime.session import SessionPatch
from ...realtime.config import RealtimeModel, SessionConfig
from ...realtime.dialogue.settings import audio_patch
from ..callers import Caller, Shares, caller_by_address
from ..calls.call import Audience
from ..calls.callback_queue import PostingActor
from ..config.server import ServerConfig
from ..fetching.dns import Names
from ..fronts.fronts import Front, Fronts
from ..fronts.listener import RELAYED
from ..inference.client import EngineClient
from ..live.container_decoder import OpenSound
from ..live.registry import SessionRegistry
from ..live.voice_activity import OpenVadStream
from ..mcp.client import McpClients
from ..media_decoding.memory_budget import MediaBudget
from ..media_decoding.worker_pool import MediaHandle
from ..runtime.compute_pool import LANE
from ..served_model import abilities_of
from ..service_class import lane_of
from ..speech.model import SpeechModel
from ..telemetry.metrics import Metrics
from ..text.embedding import EmbeddingModel
from ..text.generation import TextModel
from ..text.media_urls import AddressBook
from ..transport.trusted_proxies import CALLER
from .api_keys import ApiKeys, note_key, sent_key
from .fronts.relaying import RelayedResponse
from .fronts.sockets import SocketRelay
from .origins import is_loopback
from .pending_auth import PendingAuth
from .realtime.client_secrets import ClientSecrets
from .realtime.conversation_config import dialogue_config
from .responses.store import ResponseStore

Hold = Callable[[], AbstractContextManager[None]]
"""Counts a request while it is worked on; see `Service.admission`."""


@dataclass(frozen=True, slots=True)
class ServedModel:
    """One model under its public name, and the ways of asking it that it knows."""

    name: str
    engine: EngineClient
    created: int
    """Unix seconds, for `/v1/models`."""
    transcription: SpeechModel | None = None
    """Files and live audio into text."""
    text: TextModel | None = None
    """Prompts into answers."""
    embeds: EmbeddingModel | None = None
    """Texts into vectors."""

    @property
    def can_translate(self) -> bool:
        """Whether the model knows the task `translate`."""
        return self.transcription is not None and "translate" in self.transcription.tasks

    @property
    def can_chat(self) -> bool:
        """Whether the model answers conversations."""
        return self.text is not None and self.text.prompter.builder.has_template

    @property
    def abilities(self) -> tuple[str, ...]:
        """What the model can do, in words for people."""
        prompts = None if self.text is None else self.text.prompter.builder
        return abilities_of(self.transcription, prompts, self.embeds)

    @property
    def input_modalities(self) -> tuple[str, ...]:
        """What the model takes: `text`, `image`, `video`, `audio`."""
        kinds: set[str] = set() if self.transcription is None else {"audio"}
        if self.text is not None:
            kinds |= {"text", *self.text.prompter.builder.media.kinds}
        if self.embeds is not None:
            kinds.add("text")
        return tuple(kind for kind in ("text", "image", "video", "audio") if kind in kinds)

    @property
    def transcriber(self) -> SpeechModel:
        """Transcribes with the model. Raises BadRequestError, saying what it can do, if it cannot do that."""
        if self.transcription is None:
            raise BadRequestError(
                f"The model `{self.name}` cannot transcribe here; it can {', '.join(self.abilities)}.",
                param="model",
                code="unsupported_task",
            )
        return self.transcription


def preferred(able: Iterable[ServedModel]) -> ServedModel | None:
    """Which model answers where none is named: the first, but those that transcribe come last."""
    return min(able, key=lambda model: model.transcription is not None, default=None)


@dataclass(slots=True)
class Service:
    """One running server's shared state. The first of `models` that can do what is asked is the default."""

    config: ServerConfig
    models: dict[str, ServedModel]
    media: MediaHandle
    budget: MediaBudget
    addresses: AddressBook
    names: Names
    open_vad_stream: OpenVadStream
    open_sound: OpenSound
    metrics: Metrics
    keys: ApiKeys
    aliases: dict[str, str] = field(init=False)
    """Other names of models, and whose they are."""
    sessions: SessionRegistry = field(init=False)
    posting: PostingActor = field(init=False)
    mcp: McpClients = field(init=False)
    secrets: ClientSecrets = field(init=False)
    pending_auth: PendingAuth = field(default_factory=PendingAuth)
    audience: Audience = field(default_factory=Audience)
    on_drain: set[Callable[[], None]] = field(default_factory=set)
    """Called when the server begins to stop: of calls, and of sockets on which responses are made."""
    responses: ResponseStore = field(default_factory=ResponseStore)
    fronts: Fronts | None = None
    """The servers of the cluster, where this is one of several."""
    is_draining: bool = False
    response_sockets: Shares = field(init=False)
    _heavy: Shares = field(init=False)
    _light: Shares = field(init=False)
    """Requests in hand with a small body and no media."""
    _answers: Shares = field(init=False)
    """That requests in hand ask for, where one may ask for several."""
    _quiet: trio.lowlevel.ParkingLot = field(default_factory=trio.lowlevel.ParkingLot)
    _answering: set[trio.CancelScope] = field(default_factory=set)

    def __post_init__(self) -> None:
        limits = self.config.realtime
        self.secrets = ClientSecrets(tag=self.tag)
        self.aliases = self.config.aliases
        num_heavy = self.config.files.max_requests
        num_light = num_heavy + self.config.engine.max_waiting
        self.response_sockets = Shares(limits.max_sessions, "WebSockets for responses", share=self.share)
        self._heavy = Shares(num_heavy, "requests", share=self.share)
        self._light = Shares(num_light, "requests", share=self.share)
        self._answers = Shares(num_light, "answers", share=self.share)
        self.sessions = SessionRegistry(
            self.metrics,
            grace_s=limits.resume_grace_s,
            max_detached=limits.max_detached,
            on_end=self._quiet.unpark_all,
        )
        self.posting = PostingActor(
            self.config.calls, self.names, most=limits.max_sessions, on_end=self._quiet.unpark_all
        )

        self.mcp = McpClients(self.config.mcp, self.names, self.metrics)

    @property
    def is_ready(self) -> bool:
        """Whether every model can take work now."""
        return not self.is_draining and all(model.engine.health == "ready" for model in self.models.values())

    @property
    def tag(self) -> str:
        """What ids that are made here begin with, behind their prefix; empty without a cluster."""
        return "" if self.fronts is None else self.fronts.tag

    def share(self, bound: int) -> int:
        """This server's part of a bound that all servers of the cluster keep together."""
        return bound if self.fronts is None else self.fronts.share(bound)

    def elsewhere(self, scope: Scope, *names: str | None) -> Front | None:
        """The server of the cluster that has what a request names, by the first name that is another one's;
        None where that is this one, or not known, or another server has relayed the request for that."""
        if self.fronts is None or scope.get(RELAYED) == "id":
            return None
        return next(filter(None, map(self.fronts.elsewhere, names)), None)

    def relayed(
        self, front: Front, caller: Caller, body: bytes = b"", hold: Hold = nullcontext
    ) -> RelayedResponse:
        """That server's answer to a request of a caller's."""
        assert self.fronts is not None, "it is one of these"
        return RelayedResponse(front, self.fronts, self.metrics, caller, body=body, hold=hold)

    def socket_relay(self, front: Front, caller: Caller, websocket: WebSocket) -> SocketRelay:
        """What relays a WebSocket of a caller's to that server."""
        assert self.fronts is not None, "it is one of these"
        return SocketRelay(front, self.fronts, self.metrics, websocket, caller, self.on_drain)

    async def refresh(self) -> None:
        """Bring what engines count up to now, where they are in another process."""
        async with trio.open_nursery() as nursery:
            for model in self.models.values():
                nursery.start_soon(model.engine.refresh)

    def model(self, name: str | None) -> ServedModel:
        """The model of that name or alias, or the default one where there is none. Raises NotFoundError."""
        if not name:
            return next(iter(self.models.values()))
        known = self.aliases.get(name, name)
        if known not in self.models:
            served = ", ".join((*self.models, *self.aliases))
            raise NotFoundError(
                f"The model `{name[:80]}` does not exist; served here: {served}. "
                "`sensorium serve --alias ALIAS=NAME` gives a model another name.",
                code="model_not_found",
                param="model",
            )
        return self.models[known]

    def aliases_of(self, name: str) -> tuple[str, ...]:
        """The other names of a model."""
        return tuple(alias for alias, known in self.aliases.items() if known == name)

    @property
    def has_chat_template(self) -> bool:
        """Whether any served model can answer a conversation."""
        texts = (model.text for model in self.models.values())
        return any(text is not None and text.prompter.builder.has_template for text in texts)

    @property
    def transcribing(self) -> dict[str, ServedModel]:
        """The models that transcribe."""
        return {name: model for name, model in self.models.items() if model.transcription is not None}

    def transcribing_model(self, name: str | None) -> ServedModel:
        """The model of that name, or the first that transcribes where there is none.

        Raises NotFoundError, and BadRequestError if it does not transcribe.
        """
        model = None if name else next(iter(self.transcribing.values()), None)
        model = model or self.model(name)
        assert model.transcriber is not None
        return model

    def answering_model(self, name: str | None, intent: str | None) -> TextModel | None:
        """What answers in a live session; None for one that only transcribes.

        `intent` decides, `transcription` or `realtime`; else a model that transcribes does so, and another
        one answers. Without a name it is the first that can. Raises NotFoundError, and BadRequestError for
        a model that cannot do what is asked.
        """
        if intent not in (None, "transcription", "realtime"):
            raise BadRequestError(f"`intent` is {intent[:40]!r}; allowed: transcription, realtime")
        named = self.model(name) if name else None
        transcribes = bool(self.transcribing) if named is None else named.transcription is not None
        if intent == "transcription" or (intent is None and transcribes):
            return None
        found = named or preferred(each for each in self.models.values() if each.can_chat)
        if found is None or found.text is None or not found.can_chat:
            what = "No model that is served can" if found is None else f"The model `{found.name}` cannot"
            raise BadRequestError(f"{what} answer conversations.", param="model", code="unsupported_task")
        return found.text

    def begun_with(
        self, patch: SessionPatch | DialoguePatch
    ) -> tuple[str | None, SessionPatch | DialoguePatch, TextModel | None]:
        """What `session_config` takes for a session that only its settings are known of.

        Raises as `answering_model` does, with the field of the settings.
        """
        if isinstance(patch, SessionPatch):
            return None, patch, None
        try:
            return patch.model or None, patch, self.answering_model(patch.model or None, "realtime")
        except ClientError as error:
            error.param = "session.model"
            raise

    def session_config(
        self, model: str | None, initial: SessionPatch | DialoguePatch, answers: TextModel | None = None
    ) -> SessionConfig:
        """What a live session begins with. `answers` answers in it, and then `model` is that one's name.

        Raises as `transcribing_model` does.
        """
        limits, dialogue = self.config.realtime, None
        transcriber = "" if answers is not None else self.transcribing_model(model).name
        if answers is not None:
            transcriber = next(iter(self.transcribing), "")
            dialogue = dialogue_config(answers, self.aliases_of(answers.name))
            if isinstance(initial, DialoguePatch):
                dialogue = msgspec.structs.replace(dialogue, initial=initial)
        if isinstance(initial, DialoguePatch):
            initial = audio_patch(initial)
        return SessionConfig(
            model=transcriber,
            models=tuple(
                RealtimeModel(
                    name,
                    served.transcriber.languages,
                    spells_numbers=served.transcriber.spells_numbers,
                    supports_left_context=served.transcriber.supports_left_context,
                    tasks=served.transcriber.tasks,
                    delays=served.transcriber.delays,
                    takes_hints=served.transcriber.takes_hints,
                    aliases=self.aliases_of(name),
                )
                for name, served in self.transcribing.items()
            ),
            initial=initial,
            dialogue=dialogue,
            max_append_bytes=limits.max_append_bytes,
            max_backlog_ms=limits.max_backlog_ms,
            delay=limits.release_delay,
            force_turn_s=limits.force_turn_s,
            max_turn_s=limits.max_turn_s,
            max_session_s=limits.max_session_s,
            idle_s=limits.idle_s,
            drain_s=self.config.listen.drain_s,
            resume_grace_s=limits.resume_grace_s,
        )

    @property
    def num_requests(self) -> int:
        """Requests in hand."""
        return self._heavy.total() + self._light.total()

    @property
    def is_shared(self) -> bool:
        """Whether there may be more than one caller. All of a machine that nobody else reaches are one."""
        if self.keys.are_needed and not self.config.listen.caller_secret:
            return self.keys.num_callers > 1
        return bool(self.config.listen.trusted_proxies) or not is_loopback(self.config.listen.host)

    def caller(self, connection: HTTPConnection) -> Caller:
        """Who asks; the task works for it from now on.

        Raises UnauthorizedError where a key is needed and another one, or none, was sent.
        """
        caller = caller_by_address(connection.client.host if connection.client else "")
        is_relayed = connection.scope.get(RELAYED) == "id"  # by a server that has checked the key
        if self.keys.are_needed and not is_relayed:
            caller = self.keys.check(sent_key(connection))
            note_key(connection)
        caller = cast(Caller, connection.scope.get(CALLER, caller))
        if is_relayed and self.keys.are_needed and not (caller.has_key and self.keys.knows(caller)):
            raise UnauthorizedError("The API key is not accepted by the server that has what it names.")
        LANE.set(Lane("interactive", caller=caller.name if self.is_shared else ""))
        return caller

    def admission(self, caller: Caller, *, is_light: bool = False) -> Hold:
        """What counts a request while it is worked on: a context to enter for each of its stages in turn.

        The first entrance raises OverloadedError if that is one request too many for its caller
        (`actors/callers.py`). Light ones (a small body) hold little but their place in an engine, so as many
        may be in hand as may wait there. A request that was let in is finished, also where the server is told
        to stop between its stages.
        """
        is_admitted = False

        def hold() -> AbstractContextManager[None]:
            nonlocal is_admitted
            if not is_admitted:
                self._check_admission(caller, is_light=is_light)
            is_admitted = True
            return self._counted(caller, is_light=is_light)

        return hold

    @contextmanager
    def answers(self, caller: Caller, num: int) -> Iterator[None]:
        """Count the answers that a request asks for, while they are made.

        Raises OverloadedError if they are too many for a caller that has others. An engine refuses them, too,
        but one by one, and thousands keep it from everybody meanwhile.
        """
        if self._answers.of(caller):
            self._answers.check(caller, num, is_shared=self.is_shared)
        with self._answers.holding(caller, num):
            yield

    def cache_salt(self, caller: Caller, requested: str | None) -> str:
        """What keeps a request's cached prompts apart: from those of other keys, and as the client asks.

        Where no key is needed, everybody shares. Else two clients never find each other's prompts, nor can
        they tell from `cached_tokens` that somebody has asked the same.
        """
        return f"{caller.name if caller.has_key else ''}{requested or ''}"

    @contextmanager
    def _counted(self, caller: Caller, *, is_light: bool) -> Iterator[None]:
        try:
            with (
                (self._light if is_light else self._heavy).holding(caller),
                self.metrics.requests_active.track_inprogress(),
            ):
                yield
        finally:
            self._quiet.unpark_all()

    def lane(self, caller: Caller, *, priority: int = 0, num_answers: int = 1, audio_s: float = 0.0) -> Lane:
        """The class of a request in hand, which depends on how many more its caller has open."""
        num_open = self._heavy.of(caller) + self._light.of(caller)
        return lane_of(
            priority=priority,
            num_answers=num_answers,
            num_open=num_open,
            audio_s=audio_s,
            caller=caller.name if self.is_shared else "",
        )

    @contextmanager
    def answering(self) -> Iterator[trio.CancelScope]:
        """Surrounds the answer to a request; cancelled where the server ends before it."""
        with trio.CancelScope() as scope:
            self._answering.add(scope)
            try:
                yield scope
            finally:
                self._answering.discard(scope)

    def let_finish(self, scope: trio.CancelScope) -> None:
        """The answer has begun, and cannot be ended any better than by its own end."""
        self._answering.discard(scope)

    def give_up_requests(self) -> None:
        """Cancel every answer that is still being made."""
        for scope in self._answering:
            scope.cancel()

    async def wait_quiet(self) -> None:
        """Return when no session and no request is left, and nothing to post of calls."""
        while self.sessions or self.num_requests or self.posting:
            await self._quiet.park()

    def _check_admission(self, caller: Caller, *, is_light: bool) -> None:
        if self.is_draining:
            raise OverloadedError("The server is shutting down.", code="draining", retry_after_s=5.0)
        (self._light if is_light else self._heavy).check(caller, is_shared=self.is_shared)
