"""REST through both clients over a real socket, against fixed answers."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import aclosing, closing
from pathlib import Path

import pytest
from sensorium.client import (
    APIError,
    AsyncClient,
    Client,
    SensoriumConnectionError,
    SensoriumTimeoutError,
    TextDelta,
    TextDone,
)
from support.both_loops import both_loops
from support.fake_server import Answer, Received, serve_rest

pytestmark = pytest.mark.slow

VERBOSE = b'{"task":"transcribe","language":"en","duration":1.5,"text":"good day","words":[]}'
STREAM = (
    b': hi\n\ndata: {"type":"transcript.text.delta","delta":"good"}\n\n'
    b'data: {"type":"transcript.text.done","text":"good day"}\n\ndata: [DONE]\n\n'
)
Server = tuple[str, list[Received]]


@pytest.fixture
def server() -> Iterator[Server]:
    """A server with an answer on every path the client uses."""
    answers = {
        "/v1/audio/transcriptions": Answer(VERBOSE),
        "/v1/audio/translations": Answer(VERBOSE),
        "/v1/models": Answer(b'{"object":"list","data":[{"id":"m","created":1,"object":"model"}]}'),
        "/version": Answer(b'{"version":"9.9"}'),
        "/health": Answer(b"{}", 503),
        "/metrics": Answer(b"sensorium_x 3\n", content_type="text/plain"),
    }
    with serve_rest(answers) as running:
        yield running


def test_a_transcription_is_typed(server: Server, tmp_path: Path) -> None:
    path = tmp_path / "talk.wav"
    path.write_bytes(b"RIFFxxxx")
    url, requests = server
    with Client(url, "secret") as client:
        transcript = client.transcribe(path, model="m", timestamp_granularities=["word"])
    assert (transcript.text, transcript.language, transcript.duration) == ("good day", "en", 1.5)
    (request,) = requests
    assert request.headers["authorization"] == "Bearer secret"
    assert b'filename="talk.wav"' in request.body
    assert b"RIFFxxxx" in request.body
    assert b'name="timestamp_granularities[]"\r\n\r\nword' in request.body


def test_the_other_calls(server: Server) -> None:
    url, requests = server
    with Client(url) as client:
        assert client.translate(b"x").text == "good day"
        assert [model.id for model in client.models()] == ["m"]
        assert client.version() == "9.9"
        assert client.health() is False
        assert client.metrics() == {"sensorium_x": 3.0}
    assert requests[0].path == "/v1/audio/translations"


def test_text_formats_are_the_document_itself() -> None:
    answer = Answer(b"1\n00:00", content_type="text/plain")
    with serve_rest({"/v1/audio/transcriptions": answer}) as (url, _), Client(url) as client:
        assert client.transcribe(b"x", response_format="srt") == "1\n00:00"


def test_a_stream_yields_deltas_then_the_whole() -> None:
    with (
        serve_rest({"/v1/audio/transcriptions": Answer(STREAM, content_type="text/event-stream")}) as (
            url,
            _,
        ),
        Client(url) as client,
    ):
        assert list(client.transcribe_stream(b"x")) == [TextDelta("good"), TextDone("good day")]


@both_loops
async def test_a_stream_that_breaks_off_says_so() -> None:
    cut = STREAM[: STREAM.index(b"data: {", 10)]
    with serve_rest({"/v1/audio/transcriptions": Answer(cut)}) as (url, _):
        async with AsyncClient(url) as client, aclosing(client.transcribe_stream(b"x")) as events:
            assert await anext(events) == TextDelta("good")
            with pytest.raises(SensoriumConnectionError, match="broke off"):
                await anext(events)
        with Client(url) as sync, closing(sync.transcribe_stream(b"x")) as deltas:
            assert next(deltas) == TextDelta("good")
            with pytest.raises(SensoriumConnectionError, match="broke off"):
                next(deltas)


def test_tls_to_a_plain_server_is_not_told_as_no_server(server: Server) -> None:
    url, _ = server
    with Client(url.replace("http:", "https:")) as client:
        with pytest.raises(SensoriumConnectionError, match=r"^cannot reach https://127.*SSL"):
            client.models()
        with (
            pytest.raises(SensoriumConnectionError, match=r"^cannot reach https://127.*SSL"),
            client.realtime(),
        ):
            pass


def test_refusals_carry_the_servers_words(server: Server) -> None:
    body = b'{"error":{"message":"no such model","type":"t","param":"model","code":"not_found"}}'
    with serve_rest({"/v1/audio/transcriptions": Answer(body, 404)}) as (url, _), Client(url) as client:
        for call in (lambda: client.transcribe(b"x"), lambda: list(client.transcribe_stream(b"x"))):
            with pytest.raises(APIError, match=r"no such model \(404, not_found, param: model\)"):
                call()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_no_server_says_what_to_do(host: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://{host}:{free.getsockname()[1]}"
    with Client(url) as client:
        for call in (client.models, client.health, lambda: client.transcribe(b"x")):
            with pytest.raises(SensoriumConnectionError) as caught:
                call()
            assert str(caught.value) == f"no server at {url}; start one with: sensorium serve"


def test_a_server_that_never_answers_is_a_timeout() -> None:
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        with (
            Client(f"http://127.0.0.1:{mute.getsockname()[1]}", timeout=0.1) as client,
            pytest.raises(SensoriumTimeoutError, match=r"did not answer within 0\.1 s"),
        ):
            client.models()


@both_loops
async def test_the_async_client_does_the_same(server: Server, tmp_path: Path) -> None:
    path = tmp_path / "talk.wav"
    path.write_bytes(b"RIFFxxxx")
    url, requests = server

    async with AsyncClient(url) as client:
        assert (await client.transcribe(path)).text == "good day"
        assert (await client.translate(b"x")).text == "good day"
        assert [model.id for model in await client.models()] == ["m"]
        assert await client.version() == "9.9"
        assert await client.health() is False
        assert await client.metrics() == {"sensorium_x": 3.0}
    assert b"RIFFxxxx" in requests[0].body


@both_loops
async def test_the_async_stream_and_errors() -> None:
    answer = Answer(STREAM, content_type="text/event-stream")
    with serve_rest({"/v1/audio/transcriptions": answer}) as (url, _):
        async with AsyncClient(url) as client:
            events = [event async for event in client.transcribe_stream(b"x")]
            assert events == [TextDelta("good"), TextDone("good day")]
            with pytest.raises(APIError, match="not here"):
                await client.models()
            with pytest.raises(APIError, match="not here"):
                await client.translate(b"x")


def test_the_sdk_needs_only_the_base_install() -> None:
    code = (
        "import sys, sensorium.client, sensorium.client.cli.commands as c; "
        "heavy = {'numpy', 'torch', 'cyclopts', 'starlette'} & set(sys.modules); "
        "sys.exit(', '.join(heavy) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
