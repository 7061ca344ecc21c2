"""Calls as providers stream them, against a real server: what both sides say, and what is refused."""

from __future__ import annotations

import json
import socket as socket_module
from dataclasses import replace

import httpx
import numpy as np
import pytest
from sensorium.actors.config.server import CallConfig, ListenConfig
from support.phone import begin, call, media, of, read_all, send, texts
from support.raw_socket import pcm, raw_session, resampled, silence
from support.server import Server, make_config, running_server, wait_until
from websockets.sync.client import connect
from websockets.typing import Subprotocol

pytestmark = pytest.mark.slow


def mu_law(pcm16: bytes) -> bytes:
    """G.711 mu-law of 16 kHz PCM16, by its definition: the code whose value is nearest."""
    codes = ~np.arange(256) & 0xFF
    magnitudes = ((2 * (codes & 15) + 33) << (codes >> 4 & 7)) - 33
    values = np.where(codes & 0x80, -magnitudes, magnitudes)
    order = np.argsort(values, kind="stable")
    samples = np.frombuffer(resampled(pcm16, 16_000, 8_000), "<i2") / 4.0
    edges = (values[order][1:] + values[order][:-1]) / 2
    return bytes(order[np.searchsorted(edges, samples)].astype(np.uint8))


def live(server: Server, audio: bytes) -> list[str]:
    """What a live session of G.711 says of the same bytes, a turn after the other."""
    with raw_session(server.realtime) as session:
        session.configure(container="audio/pcmu", turn_detection={"type": "server_vad"})
        for at in range(0, len(audio), 4_000):
            session.append(audio[at : at + 4_000])
        session.send({"type": "input_audio_buffer.flush"})
        session.until("flushed")
        while len(session.seen(".completed")) < len(session.seen(".committed")):
            session.receive()
        return [event["transcript"] for event in session.seen(".completed")]


def test_both_sides_of_a_call(server: Server, lights: bytes, conversation: bytes) -> None:
    sides = {
        "inbound": mu_law(pcm(lights) + silence(0.5)),
        "outbound": mu_law(pcm(conversation)[: 16_000 * 9]),
    }
    with connect(f"{server.realtime.replace('/realtime', '/calls/events')}") as supervisor:
        with call(server.realtime, "?model=tiny-whisper") as socket:
            begin(socket, *sides)
            send(socket, "dtmf", dtmf={"track": "inbound_track", "digit": "7"})
            for track, audio in sides.items():
                media(socket, audio, track)
            send(socket, "mark", mark={"name": "here"})
            send(socket, "stop", stop={"callSid": "CA1"})
            events = read_all(socket)
        observed = [json.loads(supervisor.recv(10)) for _ in events[:-1]]
    assert observed == events[:-1]
    assert [event["seq"] for event in observed] == list(range(1, len(observed) + 1))
    assert {event["call"] for event in observed} == {"CA1"}
    for track, audio in sides.items():
        assert texts(events, track) == live(server, audio)
    assert of(events, "mark")[0]["name"] == "here"
    (summary,) = of(events, "call.summary")
    assert (summary["reason"], events[-1]["code"]) == ("stop", 1000)
    inbound, outbound = summary["tracks"]
    assert (inbound["transcript"], inbound["digits"]) == ("\n".join(texts(events, "inbound")), "7")
    assert inbound["audio_s"] == pytest.approx(len(sides["inbound"]) / 8_000, abs=0.001)
    assert outbound["num_turns"] >= 2
    assert not of(events, "error")


def test_words_come_while_somebody_speaks(server: Server, lights: bytes) -> None:
    """As a telephone sends them, 20 ms at a time, but twice as fast."""
    audio = mu_law(pcm(lights) + silence(1.0))
    with call(server.realtime, "?utterance_end_ms=600") as socket:
        begin(socket, "inbound")
        media(socket, audio, "inbound", paced=True)
        send(socket, "stop")
        events = read_all(socket)
    kinds = [event["event"] for event in events]
    assert kinds.index("speech.started") < kinds.index("transcript.delta")
    assert kinds.index("transcript.delta") < kinds.index("transcript.completed")
    assert kinds.index("transcript.completed") < kinds.index("utterance.ended")
    (ended,) = of(events, "utterance.ended", "inbound")
    assert ended["item"] == of(events, "transcript.completed")[0]["item"]
    assert 2000 < ended["at_ms"] < of(events, "speech.stopped")[0]["at_ms"]


def test_binary_frames_of_another_provider(server: Server, lights: bytes) -> None:
    with call(server.realtime) as socket:
        greeting = {"event": "websocket:connected", "content-type": "audio/l16;rate=16000"}
        socket.send(json.dumps(greeting))
        audio = pcm(lights) + silence(0.5)
        for at in range(0, len(audio), 640):
            socket.send(audio[at : at + 640])
        send(socket, "stop")
        events = read_all(socket)
    assert of(events, "transcript.completed")[0]["text"] == "Set the kitchen lights to ninety percent."


def test_jambonz_with_its_subprotocol(server: Server, lights: bytes) -> None:
    address = server.realtime.replace("/realtime", "/calls")
    with connect(address, subprotocols=[Subprotocol("audio.jambonz.org")], open_timeout=60) as socket:
        assert socket.subprotocol == "audio.jambonz.org"
        greeting = {"callSid": "j-1", "sampleRate": 16000, "mixType": "mono", "metadata": {"language": "en"}}
        socket.send(json.dumps(greeting))
        audio = pcm(lights) + silence(0.5)
        for at in range(0, len(audio), 640):
            socket.send(audio[at : at + 640])
        socket.send(b'{"event": "stop"}')  # some clients send all frames as binary ones
        events = read_all(socket)
    assert of(events, "transcript.completed")[0]["text"] == "Set the kitchen lights to ninety percent."
    assert of(events, "call.summary")[0]["call"] == "j-1"


def test_what_is_no_call_is_told_by_name(server: Server) -> None:
    with call(server.realtime) as socket:
        send(socket, "media", media={"payload": "AAAA"})
        begin(socket, "inbound")
        send(socket, "media", media={"track": "sideways", "payload": "AAAA"})
        send(socket, "media", media={"track": "inbound", "payload": "%%%"})
        send(socket, "media")
        send(socket, "hold")
        socket.send("{")
        send(socket, "stop")
        events = read_all(socket)
    codes = [(event["code"], event.get("param")) for event in of(events, "error")]
    assert codes == [
        ("unexpected_event", "event"),
        ("invalid_value", "media.track"),
        ("invalid_frame", "media.payload"),
        ("invalid_frame", "media"),
        ("unknown_event", "event"),
        ("invalid_frame", None),
    ]
    assert of(events, "call.summary")


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("?model=none", "model"),
        ("?voice=x", "voice"),
        ("?delay=never", "delay"),
        ("?utterance_end_ms=soon", "utterance_end_ms"),
        ("?utterance_end_ms=60000", "utterance_end_ms"),
        ("?left_context_ms=24001", "left_context_ms"),
        ("?left_context_ms=6000", "left_context_ms"),
        ("?callback=http://127.0.0.1/", "callback"),
    ],
)
def test_an_address_that_is_wrong(query: str, param: str, server: Server) -> None:
    with call(server.realtime, query) as socket:
        error, closed = read_all(socket)
    assert (error["event"], closed["code"]) == ("error", 1008)
    assert error["param"] == param


def test_an_option_that_calls_do_not_have(server: Server) -> None:
    with call(server.realtime, "?turn_detection=captions") as socket:
        error, _ = read_all(socket)
    assert error["param"] == "turn_detection"
    assert "allowed: callback, delay, events, language, left_context_ms, model, " in error["message"]


def test_options_are_parameters_of_start_where_the_address_has_none(server: Server, lights: bytes) -> None:
    """Of a provider that cuts an address off at its query."""
    audio = mu_law(pcm(lights) + silence(0.5))
    options = {"model": "none", "language": "en", "caller": "Ada"}
    with connect(f"{server.realtime.replace('/realtime', '/calls/events')}") as supervisor:
        with call(server.realtime, "?model=tiny-whisper") as socket:
            begin(socket, "inbound", **options, events="off")
            media(socket, audio, "inbound")
            send(socket, "stop")
            assert read_all(socket) == [{"event": "closed", "code": 1000}]
        observed = [json.loads(supervisor.recv(10))]
        while observed[-1]["event"] != "call.summary":
            observed.append(json.loads(supervisor.recv(10)))
    assert observed[0]["parameters"] == options | {"events": "off"}
    assert texts(observed, "inbound")


@pytest.mark.parametrize(
    ("parameters", "param"),
    [
        ({"model": "none"}, "model"),
        ({"language": "xx"}, "language"),
        ({"language": "klingon"}, "language"),
        ({"left_context_ms": "1000"}, "left_context_ms"),
        ({"events": "no"}, "events"),
    ],
)
def test_a_parameter_that_is_wrong_ends_the_call(
    parameters: dict[str, str], param: str, server: Server
) -> None:
    with call(server.realtime) as socket:
        begin(socket, "inbound", **parameters)
        error, closed = read_all(socket)
    assert (error["event"], error["seq"], closed["code"]) == ("error", 1, 1008)
    assert error["param"] == param
    assert "session." not in error["message"]


def test_the_address_wins_over_a_parameter(server: Server) -> None:
    with call(server.realtime, "?language=en&utterance_end_ms=1000.0") as socket:
        begin(socket, "inbound", language="xx")
        send(socket, "stop")
        assert read_all(socket)[-2]["event"] == "call.summary"


def test_a_host_that_does_not_answer_keeps_no_call_open() -> None:
    """What is told of it is posted after the call, and is what counts then."""
    allowed = CallConfig(("localhost",), ("127.0.0.1", "::1"), "a secret of an operator")
    config = replace(make_config(listen=ListenConfig(port=0, drain_s=0.2)), calls=allowed)
    with socket_module.create_server(("127.0.0.1", 0)) as host, running_server(config) as server:
        with call(server.realtime, f"?callback=http://localhost:{host.getsockname()[1]}/") as socket:
            send(socket, "media", media={"payload": "eA=="})  # told there, too, though no call has begun
            begin(socket, "inbound")
            send(socket, "stop", stop={"callSid": "CA1"})
            events = read_all(socket)
        assert (events[-2]["event"], events[-1]["code"]) == ("call.summary", 1000)
        wait_until(lambda: not server.service.on_drain)
        assert len(server.service.posting) == 1
        scraped = httpx.get(f"{server.url}/metrics").text
        assert "sensorium_callbacks_active 1.0" in scraped
        assert f"sensorium_callback_events_waiting {len(events) - 1:.1f}" in scraped
