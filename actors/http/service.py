"""What the routes share: the served models, the file decoder, the counters, and who is connected.

Made by `actors/server.py`, used by `actors/http/routes.py` and `actors/http/websocket.py`.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Final

import trio
from starlette.requests import HTTPConnection, Request

from ...protocols.errors import BadRequestError, NotFoundError, OverloadedError, UnauthorizedError
from ...protocols.messages import Lane
from ...protocols.realtime_session import SessionPatch
from ...realtime.config import RealtimeModel, SessionConfig
from ..config import ServerConfig
from ..engine.client import EngineClient
from ..lanes import lane_of
from ..live.hearing import OpenEar
from ..live.registry import SessionRegistry
from ..media import MediaHandle
from ..media_budget import MediaBudget
from ..metrics import Metrics
from ..speech.model import SpeechModel
from ..text.generation import TextModel
from .client_secrets import ClientSecrets

_KEY_SUBPROTOCOL: Final = "openai-insecure-api-key."
"""As OpenAI's clients in browsers name it."""

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

    @property
    def can_translate(self) -> bool:
        """Whether the model knows the task `translate`."""
        return self.transcription is not None and "translate" in self.transcription.tasks

    @property
    def abilities(self) -> tuple[str, ...]:
        """What the model can do, in words for people."""
        found: list[str] = []
        if self.transcription is not None:
            found += self.transcription.tasks
        if self.text is not None:
            found.append("complete")
            if self.text.prompter.builder.has_template:
                found.append("chat")
        return tuple(found)

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


@dataclass(slots=True)
class Service:
    """One running server's shared state. The first of `models` that can do what is asked is the default."""

    config: ServerConfig
    models: dict[str, ServedModel]
    media: MediaHandle
    budget: MediaBudget
    open_ear: OpenEar
    metrics: Metrics
    sessions: SessionRegistry = field(init=False)
    secrets: ClientSecrets = field(default_factory=ClientSecrets)
    num_requests: int = 0
    num_light: int = 0
    """Of the requests, those with a small body and no media."""
    is_draining: bool = False
    _num_open: Counter[str] = field(default_factory=Counter)
    _quiet: trio.Event = field(default_factory=trio.Event)

    def __post_init__(self) -> None:
        limits = self.config.realtime
        self.sessions = SessionRegistry(
            self.metrics,
            grace_s=limits.resume_grace_s,
            max_detached=limits.max_detached,
            on_end=lambda: self._quiet.set(),
        )

    @property
    def is_ready(self) -> bool:
        """Whether every model can take work now."""
        return not self.is_draining and all(model.engine.health == "ready" for model in self.models.values())

    def model(self, name: str | None) -> ServedModel:
        """The model of that name, or the default one for None. Raises NotFoundError."""
        if name is None:
            return next(iter(self.models.values()))
        if name not in self.models:
            raise NotFoundError(
                f"The model `{name[:80]}` does not exist; served here: {', '.join(self.models)}.",
                code="model_not_found",
                param="model",
            )
        return self.models[name]

    @property
    def transcribing(self) -> dict[str, ServedModel]:
        """The models that transcribe."""
        return {name: model for name, model in self.models.items() if model.transcription is not None}

    def transcribing_model(self, name: str | None) -> ServedModel:
        """The model of that name, or the first that transcribes for None.

        Raises NotFoundError, and BadRequestError if it does not transcribe.
        """
        model = next(iter(self.transcribing.values()), None) if name is None else None
        model = model or self.model(name)
        assert model.transcriber is not None
        return model

    def session_config(self, model: str | None, initial: SessionPatch) -> SessionConfig:
        """What a live session begins with. Raises as `transcribing_model` does."""
        limits = self.config.realtime
        return SessionConfig(
            model=self.transcribing_model(model).name,
            models=tuple(
                RealtimeModel(name, served.transcriber.languages)
                for name, served in self.transcribing.items()
            ),
            initial=initial,
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

    def authenticate(self, key: str | None) -> None:
        """Raise UnauthorizedError unless `key` is one of ours (or none is needed).

        Takes the same time whichever key is compared and however much of it is right.
        """
        accepted = self.config.listen.api_key
        if not accepted:
            return
        given = hashlib.sha256((key or "").encode()).digest()
        matches = [hmac.compare_digest(given, hashlib.sha256(ours.encode()).digest()) for ours in accepted]
        if not any(matches):
            raise UnauthorizedError(
                "No API key was given; send it as `Authorization: Bearer KEY`."
                if not key
                else "The API key is not accepted."
            )

    def admission(self, caller: str, *, is_light: bool = False) -> Hold:
        """What counts a request while it is worked on: a context to enter for each of its stages in turn.

        The first entrance raises OverloadedError if that is one request too many. Light ones (a small body)
        hold little but their place in an engine, so as many may be in hand as may wait there. A request that
        was let in is finished, also where the server is told to stop between its stages.
        """
        is_admitted = False

        def hold() -> AbstractContextManager[None]:
            nonlocal is_admitted
            if not is_admitted:
                self._check_admission(is_light=is_light)
            is_admitted = True
            return self._counted(caller, is_light=is_light)

        return hold

    def cache_salt(self, key: str | None, asked: str | None) -> str:
        """What keeps a request's cached prompts apart: from those of other keys, and as the client asks.

        Where no key is needed, everybody shares. Else two clients never find each other's prompts, nor can
        they tell from `cached_tokens` that somebody has asked the same.
        """
        if not self.config.listen.api_key:
            return asked or ""
        return f"{hashlib.sha256((key or '').encode()).hexdigest()}{asked or ''}"

    @contextmanager
    def _counted(self, caller: str, *, is_light: bool) -> Iterator[None]:
        self.num_requests += 1
        self.num_light += is_light
        self._num_open[caller] += 1
        self.metrics.requests_active.inc()
        try:
            yield
        finally:
            self.num_requests -= 1
            self.num_light -= is_light
            self._num_open[caller] -= 1
            if not self._num_open[caller]:
                del self._num_open[caller]
            self.metrics.requests_active.dec()
            self._quiet.set()

    def lane(self, caller: str, *, priority: int = 0, num_answers: int = 1, audio_s: float = 0.0) -> Lane:
        """The class of a request in hand, which depends on how many more its caller has open."""
        num_open = self._num_open[caller]
        return lane_of(priority=priority, num_answers=num_answers, num_open=num_open, audio_s=audio_s)

    async def wait_quiet(self) -> None:
        """Return when no session and no request is left."""
        while self.sessions or self.num_requests:
            self._quiet = trio.Event()
            await self._quiet.wait()

    def _check_admission(self, *, is_light: bool) -> None:
        if self.is_draining:
            raise OverloadedError("The server is shutting down.", code="draining", retry_after_s=5.0)
        files = self.config.files.max_requests
        num, most = self.num_requests - self.num_light, files
        if is_light:
            num, most = self.num_light, files + self.config.engine.max_waiting
        if num >= most:
            raise OverloadedError("Too many requests are in hand; try again.", retry_after_s=1.0)


def caller_of(request: Request) -> str:
    """Who asks: the key that was sent, or else the address."""
    key = bearer_key(request.headers.get("authorization"))
    return key or (request.client.host if request.client else "")


def sent_key(connection: HTTPConnection) -> str | None:
    """The key that came with a request or a handshake; browsers can send one as a subprotocol only."""
    key = bearer_key(connection.headers.get("authorization"))
    if key is not None:
        return key
    for offered in connection.scope.get("subprotocols", []):
        if offered.startswith(_KEY_SUBPROTOCOL):
            return str(offered.removeprefix(_KEY_SUBPROTOCOL))
    return None


def bearer_key(authorization: str | None) -> str | None:
    """The key of an `Authorization: Bearer …` header."""
    if authorization is None:
        return None
    scheme, _, key = authorization.partition(" ")
    return key.strip() or None if scheme.lower() == "bearer" else None
