"""`/v1/realtime`: who may open a session, and the socket a `SessionActor` talks through.

Refusals before the handshake are HTTP answers in the error shape (401); refusals after it are one `error`
event and a close, because that is all a WebSocket client can read. The session itself is
`actors/live/session.py`; a connection that cannot begin one may still resume one (`actors/live/registry.py`).
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

import msgspec
import trio
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket

from ....protocols.errors import (
    OverloadedError,
    SensoriumError,
    UnauthorizedError,
    UnavailableError,
    close_code,
)
from ....protocols.query_string import check_session_address
from ....protocols.realtime.codec import decode_client_event
from ....protocols.realtime.conversation_session import DialoguePatch
from ....protocols.realtime.lifecycle import SessionResume
from ....protocols.realtime.operations import REALTIME_QUERY
from ....protocols.realtime.session import SessionPatch
from ....protocols.shared.lenient_json import is_event
from ....realtime.config import SessionConfig
from ....realtime.replay import Replay
from ...callers import Caller, caller_by_address, has_room
from ...fronts.fronts import Front
from ...fronts.listener import RELAYED
from ...live.connection import Line, refusal
from ...live.outbox import Outbox, SlowReaderError
from ...live.responses import LiveAnswers, OpenAnswers
from ...live.session import SessionActor
from ...live.session_metrics import SessionMeter
from ...text.generation import TextModel
from ..api_keys import note_key, sent_key
from ..client_socket import ClientSocket, accepted
from ..fronts.sockets import End, SocketRelay
from ..service import Service
from .client_secrets import Secret, is_secret

_FIRST_EVENT_S: Final = 1.0
"""How long a connection that cannot get a session of its own may take to ask for one it has already."""
_RELAYED_EVENT_S: Final = 10.0
"""The same where another server has that event already, and relays it."""


@dataclass(frozen=True, slots=True)
class _Admission:
    """Who may come in, and what a session of theirs begins with."""

    caller: Caller
    initial: SessionPatch | DialoguePatch
    secret: Secret | None = None


def realtime_route(service: Service) -> WebSocketRoute:
    """The route of live sessions."""

    async def endpoint(websocket: WebSocket) -> None:
        if (relay := _relay_by_key(service, websocket)) is not None:
            await relay.from_handshake()
            return
        admission = _admit(service, websocket)
        await _serve(service, websocket, admission, await accepted(websocket))

    return WebSocketRoute("/v1/realtime", endpoint)


async def _serve(service: Service, websocket: WebSocket, admission: _Admission, socket: ClientSocket) -> None:
    line = Line(
        socket,
        new_outbox(service),
        None,
        caller=admission.caller,
        relay_of=partial(_relay_of, service, websocket, socket),
    )
    if websocket.scope.get(RELAYED) == "id":
        await _serve_relayed(service, socket, line)
        return
    try:
        line.session = _begin(service, websocket.query_params, admission)
    except SensoriumError as error:
        may_resume = service.sessions.may_resume or service.fronts is not None
        resumption = await _first_options(socket) if may_resume else None
        if resumption is not None:
            await service.sessions.serve_resumed(resumption, line)
            return
        line.outbox.put(refusal(error))
        line.outbox.close(close_code(error), error.message)
        await line.run(service.sessions.resume)
    else:
        await service.sessions.serve(line)


def new_outbox(service: Service) -> Outbox:
    """For what one socket is told."""
    limits = service.config.realtime
    return Outbox(
        max_events=limits.outbox_events,
        max_bytes=limits.outbox_bytes,
        # Before the connection itself is cut, so that the close frame may still arrive.
        send_timeout_s=service.config.listen.send_timeout_s / 2,
    )


def new_session(
    service: Service,
    caller: Caller,
    config: SessionConfig,
    *,
    open_answers: OpenAnswers | None = None,
    resume_token: str | None = None,
    has_room: Callable[[int], bool] = lambda _: True,
) -> SessionActor:
    """A session that nobody has begun yet; see `SessionActor`."""
    limits = service.config.realtime
    return SessionActor(
        config,
        {name: served.transcriber for name, served in service.transcribing.items()},
        service.open_vad_stream,
        service.open_sound,
        SessionMeter(service.metrics),
        # Half of what may wait for a slow reader, for a resumed client is sent it at once.
        Replay(max_events=limits.outbox_events // 2, max_bytes=limits.outbox_bytes // 2),
        open_answers=open_answers,
        resume_token=resume_token,
        tag=service.tag,
        caller=caller,
        shares_as=service.lane(caller).caller,
        has_room=has_room,
    )


def _begin(service: Service, query: Mapping[str, str], admission: _Admission) -> SessionActor:
    """A session for a new client.

    Raises UnavailableError while draining, OverloadedError if there are too many sessions, and ClientError
    for a model that is not served, or a secret that has opened its one session.
    """
    limits, caller = service.config.realtime, admission.caller
    most = service.share(limits.max_sessions)
    if service.is_draining:
        raise UnavailableError("The server is shutting down.", code="draining")
    if admission.secret is not None and admission.secret.is_used_up:
        raise _used_up()
    num_held, num_taken = service.sessions.held_by(caller), service.sessions.num_places
    if not has_place(service, caller):
        whose = "The server already serves" if num_taken >= most else f"You have {num_held} of"
        raise OverloadedError(f"{whose} {most} sessions; try again later.", code="too_many_sessions")
    check_session_address(query, REALTIME_QUERY)
    model, intent = query.get("model"), query.get("intent")
    if isinstance(admission.initial, DialoguePatch):
        model, intent = model or admission.initial.model or None, intent or "realtime"
    answering = service.answering_model(model, intent)
    config = service.session_config(model, admission.initial, answering)
    session = new_session(
        service,
        caller,
        config,
        open_answers=None if answering is None else _open_answers(service, answering, caller, config),
        resume_token=secrets.token_urlsafe(24) if limits.resume_grace_s > 0 else None,
        has_room=partial(has_place, service, caller),
    )
    if admission.secret is not None:
        admission.secret.opened = session.id
    return session


def has_place(service: Service, caller: Caller, num: int = 1) -> bool:
    """Whether a caller may have so many more places of sessions: each channel heard apart takes one."""
    num_held, num_taken = service.sessions.held_by(caller), service.sessions.num_places
    most = service.share(service.config.realtime.max_sessions)
    return has_room(num_held, num_taken, most, num, is_shared=service.is_shared)


def _open_answers(service: Service, model: TextModel, caller: Caller, config: SessionConfig) -> OpenAnswers:
    assert config.dialogue is not None
    num_frames = config.dialogue.video.num_frames
    lane, salt = service.lane(caller), service.cache_salt(caller, None)
    return partial(LiveAnswers, model, lane=lane, cache_salt=salt, num_frames=num_frames)


def _relay_by_key(service: Service, websocket: WebSocket) -> SocketRelay | None:
    """What relays a WebSocket whose ephemeral key another server of the cluster has made."""
    key = sent_key(websocket)
    if key is None or not is_secret(key) or RELAYED in websocket.scope:
        return None
    front = service.elsewhere(websocket.scope, key)
    if front is None:
        return None
    address = websocket.client.host if websocket.client else ""
    return service.socket_relay(front, caller_by_address(address), websocket)


async def _serve_relayed(service: Service, socket: ClientSocket, line: Line) -> None:
    """Another server has relayed a WebSocket here for the session that its first event resumes."""
    resumption = await _first_options(socket, _RELAYED_EVENT_S)
    if resumption is None:
        await socket.close(1008, "no session.resume came with what was relayed")
        return
    await service.sessions.serve_resumed(resumption, line)


def _relay_of(
    service: Service, websocket: WebSocket, socket: ClientSocket, resumption: SessionResume
) -> Callable[[Line], Awaitable[None]] | None:
    """What relays a WebSocket to the server that has the session; None where it is for this one."""
    front = service.elsewhere(websocket.scope, resumption.session_id)
    return (
        None if front is None else partial(_resume_elsewhere, service, front, websocket, socket, resumption)
    )


async def _resume_elsewhere(
    service: Service,
    front: Front,
    websocket: WebSocket,
    socket: ClientSocket,
    resumption: SessionResume,
    line: Line,
) -> None:
    """Relay a WebSocket on which a session of another server is resumed, to its end."""
    outbox = line.outbox

    async def send(frame: str | bytes) -> None:
        await outbox.room()
        outbox.put(frame if isinstance(frame, str) else frame.decode())

    relay = service.socket_relay(front, line.caller, websocket)
    try:
        end = await relay.go_on([msgspec.json.encode(resumption).decode()], socket, send)
    except UnavailableError as error:
        is_lost = error.code == "front_lost"
        error.code = "session_lost" if is_lost else "unavailable"
        outbox.put(refusal(error, resumption=resumption))
        end = End(1012 if is_lost else 1013, error.message)
    except SlowReaderError as error:
        outbox.close(1008, str(error), drop=True)
        return
    if end is not None:
        outbox.close(end.code, end.reason)


async def _first_options(socket: ClientSocket, within_s: float = _FIRST_EVENT_S) -> SessionResume | None:
    """The client's `session.resume`, if that is its first event and comes soon."""
    with trio.move_on_after(within_s):
        frame = await socket.receive()
        is_text = isinstance(frame, str) or (frame is not None and is_event(frame))
        event = decode_client_event(frame) if frame is not None and is_text else None
        return event if isinstance(event, SessionResume) else None
    return None


def _admit(service: Service, websocket: WebSocket) -> _Admission:
    """Who may come in. Raises UnauthorizedError.

    A secret also where everybody may: a session without the settings of its expired secret would surprise.
    """
    if websocket.scope.get(RELAYED) == "id":
        return _Admission(service.caller(websocket), SessionPatch())
    key = sent_key(websocket)
    secret = service.secrets.find(key)
    if secret is not None and service.keys.knows(secret.owner):
        if secret.is_used_up and secret.opened not in service.sessions:
            raise _used_up()
        note_key(websocket)
        return _Admission(secret.owner, secret.patch, secret)
    if key is not None and is_secret(key) and not service.keys.are_needed:
        raise UnauthorizedError("The client secret has expired, or another server made it.")
    return _Admission(service.caller(websocket), SessionPatch())


def _used_up() -> UnauthorizedError:
    return UnauthorizedError("The client secret has opened its one session.", code="client_secret_used")
