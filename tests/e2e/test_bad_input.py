"""Bad input on a live socket gets one clear answer, the session goes on, and nothing stays behind."""

from __future__ import annotations

import base64
import json

import httpx
import pytest
from support.raw_socket import RawSession, check_shape, pcm, raw_session, silence
from support.server import Server
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

pytestmark = pytest.mark.slow


def still_works(session: RawSession, audio: bytes) -> None:
    """The session transcribes as if nothing had happened."""
    session.configure()
    session.append(audio)
    session.commit()
    assert session.until("completed")["transcript"]


def update(session: object) -> str:
    return json.dumps({"type": "session.update", "session": session})


def append(audio: str, **more: object) -> str:
    return json.dumps({"type": "input_audio_buffer.append", "audio": audio, **more})


BAD_FRAMES = [
    ("{not json", "invalid_json", None),
    ("[1, 2, 3]", "invalid_event", None),
    ('"text"', "invalid_event", None),
    ("{}", "missing_required_parameter", "type"),
    ('{"type": 7}', "invalid_value", "type"),
    ('{"type": "input_audio_buffer.fly"}', "unknown_event", "type"),
    ('{"type": "response.create"}', "unsupported_event", "type"),
    ('{"type": "input_audio_buffer.append"}', "missing_required_parameter", "audio"),
    (append("%%%not base64%%%"), "invalid_audio", "audio"),
    (append(base64.b64encode(b"abc").decode()), "invalid_audio", "audio"),
    (update({"type": "transcription", "audio": {"input": {"format": {"type": "audio/mp3"}}}}), None, None),
    (
        update({"type": "transcription", "audio": {"input": {"transcription": {"language": "xx"}}}}),
        None,
        None,
    ),
    (
        update({"type": "transcription", "audio": {"input": {"transcription": {"model": "gpt-9"}}}}),
        None,
        None,
    ),
    ('{"type": "input_audio_buffer.commit"}', "input_audio_buffer_commit_empty", None),
    ("[" * 100_000, "invalid_json", None),
]


@pytest.mark.parametrize(("frame", "code", "param"), BAD_FRAMES, ids=range(len(BAD_FRAMES)))
def test_one_error_and_the_session_goes_on(
    server: Server, lights: bytes, frame: str, code: str | None, param: str | None
) -> None:
    with raw_session(server.realtime) as session:
        session.send_text(frame)
        error = session.receive()
        assert error["type"] == "error"
        if code is not None:
            assert (error["error"]["code"], error["error"]["param"]) == (code, param)
        else:
            assert error["error"]["param"].startswith("session.")
        still_works(session, pcm(lights))
        assert len(session.seen("error")) == 1


def test_errors_name_the_event_to_blame(server: Server) -> None:
    with raw_session(server.realtime) as session:
        session.send_text(append("!", event_id="mine"))
        assert session.receive()["error"]["event_id"] == "mine"


def test_a_binary_frame_of_odd_length(server: Server, lights: bytes) -> None:
    with raw_session(server.realtime) as session:
        session.append_binary(b"\x00" * 333)
        error = session.receive()
        assert (error["type"], error["error"]["code"]) == ("error", "invalid_audio")
        still_works(session, pcm(lights))


def test_an_append_over_the_size_limit(server: Server, lights: bytes) -> None:
    with raw_session(server.realtime) as session:
        session.configure()
        session.append(bytes(15 * 1024 * 1024 + 2))
        error = session.receive()
        assert (error["type"], error["error"]["param"]) == ("error", "audio")
        still_works(session, pcm(lights))


def test_a_message_over_the_frame_limit_closes(server: Server) -> None:
    with raw_session(server.realtime) as session:
        session.append_binary(bytes(48 * 1024 * 1024))
        code, _ = session.until_closed()
        assert code == 1009


def test_committing_twice_is_answered_once_each(server: Server, lights: bytes) -> None:
    with raw_session(server.realtime) as session:
        session.configure()
        session.append(pcm(lights))
        session.commit()
        session.commit()
        while len(session.seen("completed")) < 2:
            assert session.receive()["type"] != "error"
        assert len(session.seen("committed")) == 2
        # The second found nothing new: an item without text, because clients take errors for fatal.
        assert session.seen("completed")[1]["transcript"] == ""
        still_works(session, pcm(lights))


def test_clearing_an_empty_buffer_is_no_error(server: Server) -> None:
    with raw_session(server.realtime) as session:
        session.send({"type": "input_audio_buffer.clear"})
        session.until("cleared")


def test_silence_has_no_text(server: Server) -> None:
    with raw_session(server.realtime) as session:
        session.configure()
        session.append(silence(3.0))
        session.commit()
        assert session.until("completed")["transcript"] == ""


def test_an_unknown_model_in_the_url(server: Server) -> None:
    with connect(f"{server.realtime}?model=gpt-9") as socket:
        error = json.loads(socket.recv(60))
        check_shape(error)
        assert (error["error"]["code"], error["error"]["param"]) == ("model_not_found", "model")
        session = RawSession(socket)
        assert session.until_closed()[0] == 1008


def test_an_unknown_path_is_refused(server: Server) -> None:
    with pytest.raises(InvalidStatus) as caught, connect(f"{server.realtime}/nowhere"):
        pass
    assert caught.value.response.status_code == 404
    assert caught.value.response.body is not None
    assert json.loads(caught.value.response.body)["error"]["code"] == "not_found"


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("/audio/transcriptions", "Did you mean /v1/audio/transcriptions?"),
        ("/v1/v1/audio/transcriptions/", "Did you mean /v1/audio/transcriptions?"),
        ("/no/such/route", "GET /docs lists those there are."),
        ("/inference", "Use /v1/audio/transcriptions."),
    ],
)
def test_a_wrong_base_address_is_told_the_right_one(server: Server, path: str, hint: str) -> None:
    answer = httpx.post(f"{server.url}{path}")
    assert answer.status_code == 404
    assert answer.json()["error"]["message"].endswith(f"for the models served here. {hint}")


def test_a_socket_that_vanishes_in_the_middle_of_a_turn(server: Server, lights: bytes) -> None:
    for _ in range(3):
        with raw_session(server.realtime) as session:
            session.configure(turn_detection={"type": "server_vad"})
            session.append(pcm(lights)[: 2 * 20_000])
            session.until("speech_started")
            # The connection is cut, without a closing handshake.
            session.socket.socket.close()
        server.wait_quiet()
