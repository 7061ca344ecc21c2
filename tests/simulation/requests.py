"""What simulated clients ask for over HTTP, and how they read the answers; nothing here knows the server."""

from __future__ import annotations

import base64
import io
import json
import wave
from functools import cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from PIL import Image
from simulation.connections import Request
from simulation.scenario import Client

RATE: Final = 16_000
ERROR_STATUSES: Final = frozenset({400, 403, 404, 408, 413, 422, 500, 503})
_WORDS: Final = ("lamp", "river", "seven", "garden", "Zug", "mañana", "copper", "window")
_MAX_TOKENS: Final = 24


class WrongAnswerError(Exception):
    """The server broke the shape of its answers."""


class NamedError(Exception):
    """The server answered with an error, in the shape of errors."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(f"{status} {code}: {message}")
        self.status = status
        self.code = code


def text(which: int) -> str:
    """A question. Some of them begin alike."""
    beginning = "Tell me about these things, one after the other, and be brief. " if which % 2 else ""
    return f"{beginning}{_WORDS[which]} " * (1 + which // 2)


@cache
def sound(which: int) -> npt.NDArray[np.int16]:
    """Some seconds of noise with pauses, at 16 kHz; other noise for each `which`."""
    rng = np.random.default_rng(which)
    parts = []
    for turn in range(1 + which % 2):
        spoken = rng.standard_normal(int(RATE * (0.9 + 0.35 * ((which + turn) % 4)))) * 0.15
        parts += [spoken, np.zeros(int(RATE * 1.1))]
    return (np.clip(np.concatenate(parts), -1, 1) * 32_000).astype("<i2")


def _wav(which: int) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as written:
        written.setnchannels(1)
        written.setsampwidth(2)
        written.setframerate(RATE)
        written.writeframes(sound(which).tobytes())
    return file.getvalue()


@cache
def _picture(which: int) -> str:
    pixels = np.random.default_rng(which).integers(0, 255, (32, 24 + 8 * (which % 3), 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def request(client: Client, previous: str | None = None) -> Request:
    """The request of a client; `previous` names the response that a second one goes on from."""
    headers = {"x-request-id": client.name, "content-type": "application/json"}
    if client.kind == "probe":
        path = ("/health", "/metrics", "/v1/models", "/load")[client.which % 4]
        return Request("GET", path, headers=headers, address=client.address)
    if client.kind in ("file", "file stream"):
        fields = {"model": client.model, "response_format": "json"}
        fields |= {"stream": "true"} if client.kind == "file stream" else {}
        body = _form(fields, _wav(client.which))
        headers["content-type"] = "multipart/form-data; boundary=simulated"
        return Request("POST", "/v1/audio/transcriptions", body, headers=headers, address=client.address)
    path, fields_of_body = _body(client, previous)
    body = json.dumps({"model": client.model, "temperature": 0, **fields_of_body}).encode()
    return Request("POST", path, body, headers=headers, address=client.address)


def _body(client: Client, previous: str | None) -> tuple[str, dict[str, Any]]:
    words = text(client.which)
    content: Any = words
    if client.kind == "picture":
        content = [
            {"type": "image_url", "image_url": {"url": _picture(client.which)}},
            {"type": "text", "text": words},
        ]
    messages = [{"role": "user", "content": content}]
    match client.kind:
        case "completion":
            return "/v1/completions", {"prompt": words, "max_tokens": _MAX_TOKENS}
        case "message":
            return "/v1/messages", {"messages": messages, "max_tokens": _MAX_TOKENS}
        case "response":
            more: dict[str, Any] = {} if previous is None else {"previous_response_id": previous}
            return "/v1/responses", {"input": words, "max_output_tokens": _MAX_TOKENS, **more}
        case "chat stream":
            return "/v1/chat/completions", {"messages": messages, "max_tokens": _MAX_TOKENS, "stream": True}
        case _:
            return "/v1/chat/completions", {"messages": messages, "max_tokens": _MAX_TOKENS}


def _form(fields: dict[str, str], data: bytes) -> bytes:
    parts = [
        f'--simulated\r\ncontent-disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
        for name, value in fields.items()
    ]
    head = b'--simulated\r\ncontent-disposition: form-data; name="file"; filename="a.wav"\r\n\r\n'
    return b"".join([*parts, head, data, b"\r\n--simulated--\r\n"])


def answer(client: Client, asked: Request) -> tuple[str, str]:
    """What was answered, and the id of the response if it has one. Raises NamedError, WrongAnswerError."""
    if not asked.is_whole:
        raise WrongAnswerError(f"the answer has no end (status {asked.status}, {asked.body[-80:]!r})")
    if client.kind == "probe":
        return _probed(asked), ""
    if asked.status != 200:
        raise _error(asked.status, _json(asked.body))
    if client.kind.endswith(" stream"):
        return _streamed(client, asked.body), ""
    found = _json(asked.body)
    match client.kind:
        case "file":
            return found["text"], ""
        case "completion":
            return found["choices"][0]["text"] + f" ({found['choices'][0]['finish_reason']})", ""
        case "message":
            return "".join(part["text"] for part in found["content"]) + f" ({found['stop_reason']})", ""
        case "response":
            return _response(found), found["id"]
        case _:
            choice = found["choices"][0]
            return f"{choice['message']['content']} ({choice['finish_reason']})", ""


def _probed(asked: Request) -> str:
    if asked.status not in (200, 503):
        raise WrongAnswerError(f"a probe was answered with {asked.status}")
    return ""


def _response(found: dict[str, Any]) -> str:
    if found["status"] == "failed":
        raise NamedError(200, found["error"]["code"], found["error"]["message"])
    parts = [part["text"] for item in found["output"] for part in item["content"]]
    return "".join(parts) + f" ({found['status']})"


def _streamed(client: Client, body: bytes) -> str:
    frames = [line[6:] for line in body.decode().split("\n") if line.startswith("data: ")]
    if not frames or frames[-1] != "[DONE]":
        raise WrongAnswerError(f"the stream has no end: {body[-120:]!r}")
    words, end = "", ""
    for frame in frames[:-1]:
        event = json.loads(frame)
        if "error" in event:
            raise _error(200, event)
        if client.kind == "file stream":
            if event["type"] == "transcript.text.done":
                return str(event["text"])
            continue
        choice = event["choices"][0]
        words += choice["delta"].get("content") or ""
        end = choice["finish_reason"] or end
    if not end:
        raise WrongAnswerError("the stream has no finish reason")
    return f"{words} ({end})"


def _error(status: int, body: dict[str, Any]) -> NamedError:
    error = body.get("error")
    if status != 200 and status not in ERROR_STATUSES:
        raise WrongAnswerError(f"status {status}")
    if not isinstance(error, dict) or not error.get("message") or not error.get("type"):
        raise WrongAnswerError(f"an error without a name: {body}")
    return NamedError(status, str(error.get("code") or error["type"]), error["message"])


def _json(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except ValueError:
        raise WrongAnswerError(f"no JSON: {body[:120]!r}") from None
    if not isinstance(found, dict):
        raise WrongAnswerError(f"no object: {body[:120]!r}")
    return found
