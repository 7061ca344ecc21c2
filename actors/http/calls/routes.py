"""`/v1/calls`: telephone calls as providers stream them, and `/v1/calls/events`: what is told of all of them.

Who may come in is decided as for live sessions, by key and origin; a secret of a browser opens no calls. Some
providers send no headers and cut an address off at its query, so that a call's options may be parameters of
its `start`, too: `model`, `language`, `delay`, `utterance_end_ms`, `left_context_ms`, `prompt`, `callback`,
`events=off` where the provider expects no frames of ours, and, of a socket that came without a key, the
`key`. Until then it is a stranger (`actors/http/pending_auth.py`). The call itself is `actors/calls/call.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket

from ....protocols.calls.frames import MAX_START_CHARS, CallEvent, encode_call_event
from ....protocols.errors import (
    BadRequestError,
    OverloadedError,
    SensoriumError,
    UnauthorizedError,
    UnavailableError,
    close_code,
    wrong,
)
from ....protocols.query_string import check_body_address
from ....protocols.realtime.codec import decode_client_event
from ....protocols.realtime.events import SessionUpdate
from ....protocols.realtime.session import SessionPatch
from ....protocols.shared.audio_format import WIRE_TYPES, AudioFormat
from ....realtime.calls.call import KEY_PARAMETER
from ...callers import Caller, caller_by_address
from ...calls.call import CallActor, OpenCallback, Terms
from ...calls.callbacks import read_address
from ...live.connection import Line, Socket
from ...live.outbox import Outbox
from ...live.session import SessionActor
from ...transport.websocket import BYTE_BOUND
from ..api_keys import note_key, sent_key
from ..client_socket import ClientSocket
from ..realtime.websocket import has_place, new_outbox, new_session
from ..service import Service

_OPTIONS: Final = frozenset(
    {"model", "language", "delay", "utterance_end_ms", "left_context_ms", "prompt", "events", "callback"}
)
_SUBPROTOCOLS: Final = frozenset({"audio.jambonz.org", "audio.drachtio.org", "media"})
"""jambonz', drachtio's and Asterisk's, who leave a server that does not agree on theirs."""
_DELAY: Final = "low"
"""Somebody waits at the other end. Models are seldom sure of telephone sound, and `medium` waits two seconds
until they are; the text of a whole turn is exact in any case."""
_UNAUTHENTICATED_BYTES: Final = 2 * MAX_START_CHARS
"""That a socket may send before it has shown its key."""
_WHOLE: Final = re.compile(r"([0-9]{1,8})(\.0*)?", re.ASCII)
_MAX_SUPERVISORS: Final = 16
"""Of one caller."""


def call_routes(service: Service) -> list[WebSocketRoute]:
    """The routes of calls."""

    async def call(websocket: WebSocket) -> None:
        is_unauthenticated = service.keys.are_needed and sent_key(websocket) is None
        caller = None if is_unauthenticated else service.caller(websocket)
        offered = websocket.scope.get("subprotocols", [])
        await websocket.accept(next((name for name in offered if name in _SUBPROTOCOLS), None))
        await _serve_call(service, websocket, caller)

    async def events(websocket: WebSocket) -> None:
        caller = service.caller(websocket)
        check_body_address(websocket.query_params, "/v1/calls/events")
        await websocket.accept()
        await _serve_events(service, websocket, caller)

    return [WebSocketRoute("/v1/calls", call), WebSocketRoute("/v1/calls/events", events)]


async def _serve_call(service: Service, websocket: WebSocket, caller: Caller | None) -> None:
    """`caller` None: its key is to come by `start`."""
    socket, outbox = ClientSocket(websocket), new_outbox(service)
    query = dict(websocket.query_params)
    try:
        unknown = sorted(set(query) - _OPTIONS)
        if unknown:
            name = unknown[0][:40]
            allowed = ", ".join(sorted(_OPTIONS))
            raise BadRequestError(f"{name!r} is not an option of a call; allowed: {allowed}", param=name)
        # Says now what is wrong with the address.
        known = None if caller is None else _terms(service, query, caller)
        get_known = None if caller is not None else _meet(service, websocket, outbox)

        def agree(parameters: Mapping[str, str]) -> Terms:
            options = {name: value for name, value in parameters.items() if name in _OPTIONS} | query
            if get_known is None:
                assert caller is not None
                return _terms(service, options, caller)
            found = _caller_of(service, parameters)
            get_known()
            note_key(websocket)
            return _terms(service, options, found)

        actor = CallActor(
            socket,
            outbox,
            agree,
            service.sessions.serve,
            service.audience,
            caller,
            is_quiet=query.get("events") == "off",
            open_callback=None if known is None else known.open_callback,
        )
    except SensoriumError as error:
        ready = CallEvent(
            event="error", call="", seq=1, code=error.code, message=error.message, param=error.param
        )
        await socket.send(encode_call_event(ready))
        await socket.close(close_code(error), error.message)
        return
    service.on_drain.add(actor.drain)
    try:
        await actor.run()
    finally:
        service.on_drain.discard(actor.drain)
        if get_known is not None:
            get_known()


def _meet(service: Service, websocket: WebSocket, outbox: Outbox) -> Callable[[], None]:
    """Bound what a stranger may do; call what is given back where it is none any more."""
    bound = websocket.scope[BYTE_BOUND]
    bound(_UNAUTHENTICATED_BYTES)
    address = caller_by_address(websocket.client.host if websocket.client else "")
    leave = service.pending_auth.enter(
        address, partial(outbox.close, 1013, "other sockets without a key have come since")
    )

    def get_known() -> None:
        leave()
        bound()

    return get_known


def _caller_of(service: Service, parameters: Mapping[str, str]) -> Caller:
    """Raises UnauthorizedError."""
    key = parameters.get(KEY_PARAMETER)
    if not key:
        raise UnauthorizedError(
            "No API key was given; send it with the handshake as `Authorization: Bearer KEY`, or as the "
            f"parameter `{KEY_PARAMETER}` of `start`.",
            param=KEY_PARAMETER,
        )
    try:
        return service.keys.check(key)
    except UnauthorizedError as error:
        error.param = KEY_PARAMETER
        raise


def _terms(service: Service, query: Mapping[str, str], caller: Caller) -> Terms:
    """What a call has. Raises SensoriumError for options that are wrong, or where there is no room."""
    if query.get("events", "on") not in ("on", "off"):
        raise wrong("events", "must be on or off")
    open_callback = _callback(service, query, caller)
    try:
        _session(service, query, AudioFormat("pcmu", 8_000), caller)
    except BadRequestError as error:
        path = error.param or ""
        name = path.rpartition(".")[2]  # as the call has it
        message = error.message.replace(f"`{path}`", f"`{name}`")
        raise BadRequestError(message, code=error.code, param=name or None) from error
    return Terms(
        caller,
        partial(_open_track, service, query, caller),
        is_quiet=query.get("events") == "off",
        open_callback=open_callback,
    )


def _callback(service: Service, query: Mapping[str, str], caller: Caller) -> OpenCallback | None:
    """Raises BadRequestError for an address that may not be one."""
    if "callback" not in query:
        return None
    target = read_address(query["callback"], service.config.calls)
    return partial(service.posting.open, target, caller, is_shared=service.is_shared)


def _open_track(
    service: Service, query: Mapping[str, str], caller: Caller, socket: Socket, audio_format: AudioFormat
) -> Line:
    return Line(socket, new_outbox(service), _session(service, query, audio_format, caller), caller=caller)


def _session(
    service: Service, query: Mapping[str, str], audio_format: AudioFormat, caller: Caller
) -> SessionActor:
    """A session for a track. Raises SensoriumError for options that are wrong, or where there is no room."""
    limits = service.config.realtime
    if service.is_draining:
        raise UnavailableError("The server is shutting down.", code="draining")
    if not has_place(service, caller):
        num_taken = service.sessions.num_places
        raise OverloadedError(
            f"There is no room for a track: {num_taken} of {service.share(limits.max_sessions)} sessions are "
            "taken.",
            code="too_many_sessions",
        )
    config = service.session_config(query.get("model"), _patch(query, audio_format), None)
    return new_session(service, caller, config)


def _patch(query: Mapping[str, str], audio_format: AudioFormat) -> SessionPatch:
    """What a track's session begins with; read as an update is, so that it is refused as one."""
    named: dict[str, object] = {
        name: query[name] for name in ("language", "delay", "prompt") if name in query
    }
    for name in ("utterance_end_ms", "left_context_ms"):
        if name in query:
            whole = _WHOLE.fullmatch(query[name])
            named[name] = query[name] if whole is None else int(whole[1])
    sound: dict[str, object] = {"type": WIRE_TYPES[audio_format.encoding]}
    if audio_format.encoding == "pcm16":
        sound["rate"] = audio_format.rate
    audio_input = {"format": sound, "transcription": {"delay": _DELAY, **named}}
    session = {"type": "transcription", "audio": {"input": audio_input}}
    event = decode_client_event(json.dumps({"type": "session.update", "session": session}))
    if not isinstance(event, SessionUpdate) or not isinstance(event.session, SessionPatch):
        message = getattr(event, "message", "the options are wrong")
        raise BadRequestError(message, param=getattr(event, "param", None))
    return event.session


async def _serve_events(service: Service, websocket: WebSocket, caller: Caller) -> None:
    """Tell all that is told of the caller's calls; what a supervisor sends is passed over."""
    socket, outbox = ClientSocket(websocket), new_outbox(service)
    if service.audience.num_listening(caller) >= _MAX_SUPERVISORS:
        await socket.close(1013, f"{_MAX_SUPERVISORS} sockets listen to your calls already")
        return
    service.audience.join(caller, outbox)
    try:
        await Line(socket, outbox, None, caller=caller).run(service.sessions.resume)
    finally:
        service.audience.leave(caller, outbox)
