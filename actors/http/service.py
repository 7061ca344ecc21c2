"""What the routes share: the served models, the file decoder, the counters, and who is connected.

Made by `actors/server.py`, used by `actors/http/routes.py` and `actors/http/websocket.py`.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import trio

from ...media.voice_activity import VoiceActivityModel
from ...protocols.errors import BadRequestError, NotFoundError, OverloadedError, UnauthorizedError
from ...protocols.realtime_session import SessionPatch
from ...realtime.config import RealtimeModel, SessionConfig
from ..config import ServerConfig
from ..engine.engine import Engine
from ..live.registry import SessionRegistry
from ..media import MediaHandle
from ..media_budget import MediaBudget
from ..metrics import Metrics
from ..speech.model import SpeechModel
from ..text.generation import TextModel
from .client_secrets import ClientSecrets


@dataclass(frozen=True, slots=True)
class ServedModel:
    """One model under its public name, and the ways of asking it that it knows."""

    name: str
    engine: Engine
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
    activity: VoiceActivityModel
    metrics: Metrics
    sessions: SessionRegistry = field(init=False)
    secrets: ClientSecrets = field(default_factory=ClientSecrets)
    num_requests: int = 0
    num_light: int = 0
    """Of the requests, those with a small body and no media."""
    is_draining: bool = False
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
        return not self.is_draining and all(model.engine.ready for model in self.models.values())

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

    @contextmanager
    def in_hand(self, *, is_light: bool = False) -> Iterator[None]:
        """Count a request while it is worked on. Raises OverloadedError if that is one too many.

        Light ones (a small body) hold little but their place in an engine, so as many may be in hand as may
        wait there.
        """
        self._check_admission(is_light=is_light)
        self.num_requests += 1
        self.num_light += is_light
        self.metrics.requests_active.inc()
        try:
            yield
        finally:
            self.num_requests -= 1
            self.num_light -= is_light
            self.metrics.requests_active.dec()
            self._quiet.set()

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


def bearer_key(authorization: str | None) -> str | None:
    """The key of an `Authorization: Bearer …` header."""
    if authorization is None:
        return None
    scheme, _, key = authorization.partition(" ")
    return key.strip() or None if scheme.lower() == "bearer" else None
