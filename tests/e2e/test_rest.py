"""The REST routes with the `openai` package and plain HTTP against a real server and model."""

from __future__ import annotations

import asyncio
import io
import json
import re
import socket
import time
import wave

import httpx
import numpy as np
import pytest
import soundfile
from openai import AsyncOpenAI, NotFoundError, OpenAI
from sensorium.actors.http.routes import routes
from support.audio_files import sound_file
from support.event_frames import event_frames
from support.server import Server, wait_until

pytestmark = pytest.mark.slow


def post(server: Server, data: bytes, **form: str | list[str]) -> httpx.Response:
    names = {name.replace("granularities", "granularities[]"): value for name, value in form.items()}
    return httpx.post(
        f"{server.api}/audio/transcriptions", files={"file": ("a.wav", data)}, data=names, timeout=60
    )


def text_of(server: Server, data: bytes, **form: str | list[str]) -> str:
    response = post(server, data, **form)
    assert response.status_code == 200, response.text
    return str(response.json()["text"])


def error_of(response: httpx.Response) -> dict[str, str | None]:
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return {name: error[name] for name in ("param", "code")}


def seconds(data: bytes) -> float:
    with wave.open(io.BytesIO(data)) as file:
        return float(file.getnframes() / file.getframerate())


def test_openai_transcribes_a_file(server: Server, lights: bytes) -> None:
    with OpenAI(base_url=server.api, api_key="none") as client:
        answer = client.audio.transcriptions.create(model="tiny-whisper", file=("lights.wav", lights))
    assert answer.text == text_of(server, lights)
    assert answer.text
    assert answer.usage is not None
    assert answer.usage.type == "tokens"
    assert answer.usage.output_tokens > 0
    details = json.loads(answer.to_json())["usage"]["input_token_details"]  # LiteLLM's proxy needs them
    assert sum(details.values()) == answer.usage.input_tokens > details["audio_tokens"] > 0


def test_openai_async_client_under_asyncio(server: Server, lights: bytes) -> None:
    async def transcribe() -> list[str]:
        async with AsyncOpenAI(base_url=server.api, api_key="none") as client:
            answers = await asyncio.gather(
                *(
                    client.audio.transcriptions.create(model="tiny-whisper", file=("lights.wav", lights))
                    for _ in range(4)
                )
            )
        return [answer.text for answer in answers]

    assert set(asyncio.run(transcribe())) == {text_of(server, lights)}


@pytest.mark.parametrize(
    ("query", "form", "has_usage"),
    [
        ("", {"stream_include_usage": "true", "stream_continuous_usage_stats": "true"}, True),
        ("?dialect=vllm", {}, False),
    ],
)
def test_a_stream_as_the_tools_of_vllm_read_it(
    query: str, form: dict[str, str], has_usage: bool, server: Server, lights: bytes
) -> None:
    address = f"{server.api}/audio/transcriptions{query}"
    answer = httpx.post(address, files={"file": lights}, data={"stream": "true", **form}, timeout=60)
    *frames, done = [frame.removeprefix("data: ") for frame in answer.text.split("\n\n") if frame]
    assert done == "[DONE]"
    chunks = [json.loads(frame) for frame in frames if not frame.startswith(":")]
    assert {chunk["object"] for chunk in chunks} == {"transcription.chunk"}
    assert len({(chunk["id"], chunk["created"], chunk["model"]) for chunk in chunks}) == 1
    if has_usage:
        last = chunks.pop()
        assert last["choices"] == []
        plain = post(server, lights).json()["usage"]
        assert last["usage"]["completion_tokens"] == plain["output_tokens"] > 0
        assert last["usage"]["total_tokens"] == plain["total_tokens"]
    text = "".join(chunk["choices"][0]["delta"]["content"] for chunk in chunks)
    assert text == text_of(server, lights)
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"


def test_openai_stream_joins_to_the_same_text(server: Server, sentences: bytes) -> None:
    deltas = []
    done = None
    with (
        OpenAI(base_url=server.api, api_key="none") as client,
        client.audio.transcriptions.create(
            model="tiny-whisper", file=("talk.wav", sentences), stream=True
        ) as stream,
    ):
        for event in stream:
            if event.type == "transcript.text.delta":
                deltas.append(event.delta)
            elif event.type == "transcript.text.done":
                done = event
    assert done is not None
    assert "".join(deltas) == done.text == text_of(server, sentences)
    assert len(deltas) > 1


def test_stream_is_server_sent_events_and_ends_with_done(server: Server, lights: bytes) -> None:
    response = post(server, lights, stream="true")
    assert response.headers["content-type"].startswith("text/event-stream")
    frames = event_frames(response.text)
    assert frames[-1] == "data: [DONE]"
    assert json.loads(frames[-2].removeprefix("data: "))["type"] == "transcript.text.done"


def test_text_formats(server: Server, lights: bytes) -> None:
    text = post(server, lights, response_format="text")
    assert text.headers["content-type"] == "text/plain; charset=utf-8"
    assert text.text == text_of(server, lights) + "\n"
    srt = post(server, lights, response_format="srt")
    assert re.match(r"1\n00:00:0\d,\d{3} --> 00:00:0\d,\d{3}\n\S", srt.text)
    vtt = post(server, lights, response_format="vtt")
    assert re.match(r"WEBVTT\n\n00:00:0\d\.\d{3} --> 00:00:0\d\.\d{3}\n\S", vtt.text)


def test_verbose_json_has_segments_and_words(server: Server, conversation: bytes) -> None:
    response = post(
        server, conversation, response_format="verbose_json", timestamp_granularities=["word", "segment"]
    )
    body = response.json()
    assert body["task"] == "transcribe"
    assert body["language"] in {"en", "de", "es"}
    assert body["duration"] == pytest.approx(seconds(conversation), abs=0.01)
    times = [(part["start"], part["end"]) for part in body["segments"]]
    assert times == sorted(times)
    assert all(0 <= start <= end <= body["duration"] + 0.05 for start, end in times)
    words = body["words"]
    assert [word["start"] for word in words] == sorted(word["start"] for word in words)
    assert words[-1]["end"] <= body["duration"] + 0.05
    assert " ".join(word["word"] for word in words).replace(" ", "") == body["text"].replace(" ", "")


def test_only_what_was_asked_for_is_timed(server: Server, lights: bytes) -> None:
    plain = post(server, lights, response_format="verbose_json").json()
    assert "segments" in plain
    assert "words" not in plain
    words = post(server, lights, response_format="verbose_json", timestamp_granularities=["word"]).json()
    assert "segments" not in words
    assert words["words"]
    assert all(0.0 < word["probability"] <= 1.0 for word in words["words"])
    assert 0.0 < words["language_probability"] <= 1.0


def test_a_named_language_is_used(server: Server, lights: bytes) -> None:
    body = post(server, lights, response_format="verbose_json", language="es").json()
    assert body["language"] == "es"


def test_models(server: Server) -> None:
    with OpenAI(base_url=server.api, api_key="none") as client:
        assert [model.id for model in client.models.list()] == ["tiny-whisper"]
        assert client.models.retrieve("tiny-whisper").object == "model"
        with pytest.raises(NotFoundError) as caught:
            client.models.retrieve("whisper-1")
    assert caught.value.code == "model_not_found"
    assert "`sensorium serve --alias ALIAS=NAME`" in caught.value.message


def test_operations_routes(server: Server, lights: bytes) -> None:
    assert httpx.get(f"{server.url}/health").json() == {"status": "ok"}
    assert httpx.get(f"{server.url}/ping").status_code == 200
    assert httpx.post(f"{server.url}/ping").status_code == 200
    assert httpx.get(f"{server.url}/version").json()["version"]
    assert httpx.get(f"{server.url}/load").json() == {"server_load": 0}
    post(server, lights)
    metrics = httpx.get(f"{server.url}/metrics")
    assert metrics.headers["content-type"].startswith("text/plain")
    samples = dict(
        line.rsplit(" ", 1) for line in metrics.text.splitlines() if line and not line.startswith("#")
    )
    assert float(samples['sensorium_windows_encoded_total{model="tiny-whisper"}']) > 0
    assert float(samples['sensorium_audio_received_seconds_total{source="file"}']) > 1
    route = 'sensorium_requests_total{route="/v1/audio/transcriptions",status="200"}'
    assert float(samples[route]) > 0
    assert float(samples["sensorium_sessions_active"]) == 0


@pytest.mark.parametrize(
    ("form", "status", "param", "code"),
    [
        ({"model": "whisper-1"}, 404, "model", "model_not_found"),
        ({"language": "xx"}, 400, "language", "unsupported_language"),
        ({"language": "englisch"}, 400, "language", "invalid_value"),
        ({"vad_filters": "true"}, 400, "vad_filters", "unknown_parameter"),
    ],
)
def test_a_bad_field_is_named(
    server: Server, lights: bytes, form: dict[str, str], status: int, param: str, code: str
) -> None:
    response = post(server, lights, **form)
    assert response.status_code == status
    assert error_of(response) == {"param": param, "code": code}
    assert text_of(server, lights)


def test_temperatures_and_the_likeliest_of_several_answers(server: Server, lights: bytes) -> None:
    rising = {"temperature[]": ["0", "0.4"]}
    plain = post(server, lights, **rising, best_of="3", response_format="verbose_json").json()
    assert plain["text"] == text_of(server, lights), "an answer to rely on is not asked for again"
    assert {segment["temperature"] for segment in plain["segments"]} == {0.0}
    drawn = [
        post(server, lights, temperature="1", best_of="3", seed="5", response_format="verbose_json").json()
        for _ in range(2)
    ]
    assert drawn[0] == drawn[1]
    assert {segment["temperature"] for segment in drawn[0]["segments"]} == {1.0}


def test_answers_may_grow_side_by_side(server: Server, sentences: bytes) -> None:
    """The text is the same in every format."""
    verbose = post(server, sentences, beam_size="3", response_format="verbose_json").json()
    assert text_of(server, sentences, use_beam_search="true", n="3") == verbose["text"]
    assert " ".join(segment["text"].strip() for segment in verbose["segments"]) == verbose["text"]
    frames = event_frames(post(server, sentences, beam_size="3", stream="true").text)
    events = [json.loads(frame.removeprefix("data: ")) for frame in frames[:-1]]
    deltas = [event["delta"] for event in events if event["type"] == "transcript.text.delta"]
    assert "".join(deltas) == events[-1]["text"] == verbose["text"]
    assert len(deltas) > 1, "a part of the file is told before the next one is answered"
    sure = post(server, sentences, **{"beam_size": "3", "include[]": "logprobs"}).json()
    assert sure["text"] == verbose["text"]
    assert sure["logprobs"]
    assert all(token["logprob"] <= 0 for token in sure["logprobs"])
    server.wait_quiet()


def test_one_answer_is_the_greedy_one(server: Server, lights: bytes) -> None:
    plain = post(server, lights, response_format="verbose_json").json()
    assert post(server, lights, beam_size="1", response_format="verbose_json").json() == plain


def test_what_is_said_in_silence_is_left_out_and_speech_is_not(server: Server, lights: bytes) -> None:
    form = {"hallucination_silence_threshold": "1", "response_format": "verbose_json"}
    kept = post(server, lights, **form).json()
    assert kept["segments"] == post(server, lights, response_format="verbose_json").json()["segments"]


@pytest.mark.parametrize("kind", ["json", "verbose_json", "text", "srt", "vtt", "tsv"])
def test_each_channel_has_its_transcript(server: Server, lights: bytes, kind: str) -> None:
    sound, rate = soundfile.read(io.BytesIO(lights), dtype="float32")
    late = np.concatenate((np.zeros(2 * len(sound), np.float32), sound))
    both = np.stack((np.pad(sound, (0, 2 * len(sound))), late), axis=1)
    text = text_of(server, lights)
    answer = post(server, sound_file(both, rate=rate), response_format=kind, multichannel="true")
    assert answer.status_code == 200, answer.text
    if "json" in kind:
        body = answer.json()
        assert [channel["text"] for channel in body["channels"]] == [text, text]
        assert body["text"] == f"{text} {text}"
        if kind == "verbose_json":
            assert [segment["channel"] for segment in body["segments"]] == [0, 1]
            assert body["channels"][1]["segments"][0]["start"] > 2 * len(sound) / rate - 0.5
            assert body["duration"] == pytest.approx(len(late) / rate, abs=0.01)
    else:
        assert " ".join(answer.text.split()).count(text[-10:]) == 2
    if kind == "vtt":
        assert "<v Channel 1>" in answer.text


def test_a_missing_file_is_named(server: Server) -> None:
    url = f"{server.api}/audio/transcriptions"
    for response in (
        httpx.post(url, files={"model": (None, "tiny-whisper")}),
        httpx.post(url, files={"file": (None, "not a file")}),
        httpx.post(url, json={"model": "tiny-whisper"}),
        httpx.post(
            url, content=b"--x\r\nbroken", headers={"content-type": "multipart/form-data; boundary=y"}
        ),
    ):
        assert response.status_code == 400
        assert error_of(response)["param"] in {"file", None}
    assert error_of(httpx.post(url, json={}))["param"] == "file"


def test_unknown_routes_and_methods_answer_in_the_error_shape(server: Server) -> None:
    unknown = httpx.get(f"{server.api}/chat/completions")
    assert (unknown.status_code, error_of(unknown)["code"]) == (404, "not_found")
    wrong = httpx.get(f"{server.api}/audio/transcriptions")
    assert (wrong.status_code, error_of(wrong)["code"]) == (405, "method_not_allowed")
    # No served model translates, so there is no such route.
    translation = httpx.post(f"{server.api}/audio/translations", files={"file": ("a.wav", b"")})
    assert (translation.status_code, error_of(translation)["code"]) == (404, "not_found")


def test_files_that_are_not_audio(server: Server, lights: bytes) -> None:
    text = post(server, b"this is not audio at all, only words" * 100)
    assert text.status_code == 400
    assert error_of(text)["param"] == "file"
    empty = post(server, b"")
    assert empty.status_code == 400
    # The header promises more than there is: what is there is transcribed.
    truncated = post(server, lights[: len(lights) // 2])
    assert truncated.status_code == 200
    lying = bytearray(lights[:44])
    header_only = post(server, bytes(lying))
    assert header_only.status_code == 400
    assert text_of(server, lights)


def test_a_client_that_leaves_stops_its_work(server: Server, conversation: bytes) -> None:
    body = multipart(conversation * 1, stream="true")
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(body)
        assert b"200" in connection.recv(4096)
    server.wait_quiet()
    before = server.statistics().num_decode_tokens
    time.sleep(0.3)
    assert server.statistics().num_decode_tokens == before


def test_a_client_that_leaves_while_its_file_is_decoded(server: Server, conversation: bytes) -> None:
    decoded = server.service.media.statistics().decoded_s
    for _ in range(3):
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            connection.sendall(multipart(conversation))
            wait_until(lambda: server.service.num_requests > 0)
        wait_until(lambda: server.service.num_requests == 0)  # given up, not worked through
    server.wait_quiet()
    assert text_of(server, conversation)  # the workers that were stopped are made up for
    assert server.service.media.statistics().decoded_s > decoded


def test_a_client_that_leaves_in_the_middle_of_its_upload(server: Server, conversation: bytes) -> None:
    body = multipart(conversation)
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(body[: len(body) // 2])
        wait_until(lambda: server.service.num_requests > 0)
    server.wait_quiet()


def multipart(data: bytes, **fields: str) -> bytes:
    """A whole HTTP request with one file."""
    parts = [
        f'--cut\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
        for name, value in fields.items()
    ]
    head = b'--cut\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n'
    body = b"".join([*parts, head, data, b"\r\n--cut--\r\n"])
    return (
        b"POST /v1/audio/transcriptions HTTP/1.1\r\nHost: localhost\r\n"
        b"Content-Type: multipart/form-data; boundary=cut\r\n"
        + f"Content-Length: {len(body)}\r\n\r\n".encode()
        + body
    )


def test_the_openapi_document_names_exactly_what_there_is(server: Server) -> None:
    made = httpx.get(f"{server.url}/openapi.json").json()
    assert made["openapi"] == "3.1.0"
    served = {route.path.replace(":path", "") for route in routes(server.service)}
    assert set(made["paths"]) == served
    for path, item in made["paths"].items():
        methods = {name.upper() for name in item if name != "parameters"}
        for method in ("GET", "POST"):
            answer = httpx.request(method, f"{server.url}{path}")
            assert (answer.status_code == 405) == (method not in methods), (method, path)
            if answer.status_code == 405:
                assert set(answer.headers["Allow"].split(", ")) - {"HEAD"} == methods, path


def test_the_page_of_routes_is_read_without_scripts(server: Server) -> None:
    page = httpx.get(f"{server.url}/docs")
    assert page.status_code == 200
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    assert page.headers["Content-Security-Policy"].startswith("default-src 'none'; style-src 'sha256-")
    assert page.headers["X-Content-Type-Options"] == "nosniff"
    assert "<script" not in page.text
    for path, item in httpx.get(f"{server.url}/openapi.json").json()["paths"].items():
        for method in item.keys() - {"parameters"}:
            assert f"<h3><code>{method.upper()} {path}</code></h3>" in page.text
    assert httpx.head(f"{server.url}/docs").status_code == 200
    assert httpx.post(f"{server.url}/docs").status_code == 405
