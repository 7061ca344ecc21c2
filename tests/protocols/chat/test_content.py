"""Messages and parts: what is read, what is refused and under which path."""

from __future__ import annotations

import base64
import json
import random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sensorium.protocols.chat.content import (
    ChatMessage,
    MediaAddress,
    MediaPart,
    Part,
    TextPart,
    read_messages,
)
from sensorium.protocols.engine.messages import MediaKind
from sensorium.protocols.errors import BadRequestError

DATA = base64.b64encode(b"bytes").decode()


def read(*messages: object) -> tuple[ChatMessage, ...]:
    return read_messages([msgspec.Raw(json.dumps(message).encode()) for message in messages])


def parts(*content: object) -> tuple[Part, ...]:
    found = read({"role": "user", "content": list(content)})[0].content
    assert isinstance(found, tuple)
    return found


def test_text_and_media() -> None:
    found = parts(
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{DATA}", "detail": "high"}},
        {"type": "input_audio", "input_audio": {"data": DATA, "format": "wav"}},
        {"type": "video_url", "video_url": {"url": f"data:video/mp4;name=a.mp4;base64,{DATA}"}},
    )
    assert found == (
        TextPart("look"),
        MediaPart("image", b"bytes", "messages[0].content[1]"),
        MediaPart("audio", b"bytes", "messages[0].content[2]"),
        MediaPart("video", b"bytes", "messages[0].content[3]"),
    )


@pytest.mark.parametrize("detail", [None, "auto", "low", "high", "original"])
def test_the_detail_of_an_image(detail: str | None) -> None:
    url = {"url": f"data:image/png;base64,{DATA}", "detail": detail}
    param = "messages[0].content[0]"
    assert parts({"type": "image_url", "image_url": url}) == (
        MediaPart("image", b"bytes", param, is_low=detail == "low"),
    )


def test_a_missing_type_is_inferred() -> None:
    assert parts({"text": "a"}, {"image_url": {"url": f"data:;base64,{DATA}"}})[0] == TextPart("a")


def test_what_templates_know_is_kept() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    message = read({"role": "assistant", "content": None, "tool_calls": [call], "reasoning": "hm"})[0]
    assert message.content is None
    assert message.extra["reasoning_content"] == "hm"
    assert message.extra["tool_calls"][0]["function"] == {"name": "f", "arguments": {"a": 1}}


IMAGE = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{DATA}"}}


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({}, "messages[0].role"),
        ({"role": "the wizard", "content": "a"}, "messages[0].role"),
        ({"role": "user"}, "messages[0].content"),
        ({"role": "user", "content": 3}, "messages[0].content"),
        ({"role": "user", "content": [3]}, "messages[0].content[0]"),
        ({"role": "user", "content": [{"type": "text"}]}, "messages[0].content[0].text"),
        ({"role": "user", "content": [{"type": "hologram"}]}, "messages[0].content[0].type"),
        ({"role": "user", "content": [{}]}, "messages[0].content[0].type"),
        ({"role": "user", "content": [{"type": "image_url"}]}, "messages[0].content[0].image_url"),
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": DATA}]},
            "messages[0].content[0].image_url",
        ),
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png,abc"}}]},
            "messages[0].content[0].image_url.url",
        ),
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:;base64,%%"}}]},
            "messages[0].content[0].image_url.url",
        ),
        (
            {"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "%"}}]},
            "messages[0].content[0].input_audio.data",
        ),
        (
            {
                "role": "user",
                "content": [{"type": "input_audio", "input_audio": {"data": DATA, "format": "exe"}}],
            },
            "messages[0].content[0].input_audio.format",
        ),
        ({"role": "system", "content": [IMAGE]}, "messages[0].content[0]"),
        ({"role": "assistant", "tool_calls": [{"id": "1"}]}, "messages[0].tool_calls[0].function.name"),
        (
            {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "["}}]},
            "messages[0].tool_calls[0].function.arguments",
        ),
    ],
)
def test_refused_by_path(message: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequestError) as caught:
        read(message)
    assert caught.value.param == param


@pytest.mark.parametrize("kind", ["image", "video", "audio"])
@pytest.mark.parametrize(
    "url", ["http://example.com/a?b=c&d#e", "HTTPS://example.com/ä.png", "file:///a%20b", "http://[::1]:80/"]
)
def test_addresses_are_kept_with_their_field(kind: MediaKind, url: str) -> None:
    field = f"{kind}_url"
    (part,) = parts({"type": field, field: {"url": url}})
    assert isinstance(part, MediaPart)
    scheme, _, rest = url.partition(":")
    address = MediaAddress(f"{scheme.lower()}:{rest}", f"messages[0].content[0].{field}.url")
    assert part == MediaPart(kind, b"", "messages[0].content[0]", address)


@pytest.mark.parametrize(
    "url",
    [
        *(
            "http:/a",
            "http:a",
            "file:/etc/passwd",
            "https://a b/",
            "http://a\\@b/",
            "http://a/\n",
            "http://a\u200b/",
        ),
        *("http://" + "a" * 8192, "ftp://a/b", "//a/b", " http://a/", "http\n://a/"),
        *("example.com/photo.png", "iVBORw0KGgo="),
    ],
)
def test_odd_addresses_are_refused(url: str) -> None:
    with pytest.raises(BadRequestError) as caught:
        parts({"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": url}})
    assert caught.value.param == "messages[0].content[1].image_url.url"
    assert "http:, https:" in str(caught.value)
    assert "data:" in str(caught.value)


def test_no_messages() -> None:
    with pytest.raises(BadRequestError):
        read()


@given(st.binary(max_size=100))
def test_bytes_survive(data: bytes) -> None:
    encoded = base64.b64encode(data).decode()
    found = parts(
        {"type": "image_url", "image_url": {"url": f"data:image/jpeg;base64,{encoded}"}},
        {"type": "input_audio", "input_audio": {"data": encoded, "format": "mp3"}},
    )
    assert [part.data for part in found if isinstance(part, MediaPart)] == [data, data]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)
FIELDS = st.fixed_dictionaries(
    {"role": st.just("user")},
    optional={"content": JSON, "name": JSON, "tool_calls": JSON, "reasoning_content": JSON},
)


@given(FIELDS)
def test_any_message_is_read_or_refused(message: dict[str, Any]) -> None:
    outcome: object
    try:
        outcome = read(message)[0].role
    except BadRequestError as error:
        outcome = (error.param or "")[:11]
    assert outcome in ("user", "messages[0]")


@pytest.mark.parametrize("size", [0, 1, 3 * 65_536 - 1, 3 * 65_536, 3 * 65_536 + 2, 500_000])
def test_large_media_come_out_of_base64_whole(size: int) -> None:
    data = bytes(index * 7 % 256 for index in range(size))
    text = base64.b64encode(data).decode()
    found = parts(
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{text}"}},
        {"type": "input_audio", "input_audio": {"data": text}},
    )
    assert [part.data for part in found if isinstance(part, MediaPart)] == [data, data]


def test_escapes_in_base64_are_understood() -> None:
    """PHP writes `/` as `\\/`."""
    data = b"\xff\xff\xff?" * 100
    text = base64.b64encode(data).decode().replace("/", "\\/")
    assert "\\/" in text
    content = '[{"type": "image_url", "image_url": {"url": "data:image\\/png;base64,' + text + '"}}]'
    (message,) = read_messages([msgspec.Raw(f'{{"role": "user", "content": {content}}}'.encode())])
    assert isinstance(message.content, tuple)
    assert [part.data for part in message.content if isinstance(part, MediaPart)] == [data]


@pytest.mark.parametrize("line", [0, 3, 76, 1023])
@pytest.mark.parametrize("escape", ["\\n", "\\r\\n", "\\t", "\\u000a", " "])
@pytest.mark.parametrize("size", [5, 300_000])
def test_base64_in_lines_is_understood(line: int, escape: str, size: int) -> None:
    """As `base64` prints it, and MIME has it; escapes lie across slices, too."""
    data = random.Random(size).randbytes(size)
    text = base64.b64encode(data).decode()
    if line:
        text = escape.join(text[at : at + line] for at in range(0, len(text), line))
    content = '[{"type": "input_audio", "input_audio": {"data": "' + escape + text + 9 * escape + '"}}]'
    (message,) = read_messages([msgspec.Raw(f'{{"role": "user", "content": {content}}}'.encode())])
    assert isinstance(message.content, tuple)
    assert [part.data for part in message.content if isinstance(part, MediaPart)] == [data]


def test_schemes_and_types_are_read_in_capitals_too() -> None:
    """RFC 2397 by RFC 3986, 3.1; and RFC 2045, 5.1."""
    image = {"type": "image_url", "image_url": {"url": f"DATA:IMAGE/PNG;BASE64,{DATA}"}}
    plain = {"type": "video_url", "video_url": {"url": f"data:video/jpeg;fps=5;base64,{DATA},{DATA}"}}
    loud = {"type": "video_url", "video_url": {"url": f"Data:Video/JPEG;FPS=5;Base64,{DATA},{DATA}"}}
    first, second, third = parts(image, plain, loud)
    assert isinstance(first, MediaPart)
    assert isinstance(second, MediaPart)
    assert isinstance(third, MediaPart)
    assert first.data == b"bytes"
    assert second.data == third.data


@pytest.mark.parametrize(
    "text",
    [
        "QQ==" + "QUFB" * 100_000,
        "QUFB" * 100_000 + "Q",
        "QQ==\n" + "\n" * 400_000 + "QUFB",
        "QU\vFB",
        "QU\\FB",
        "é",
    ],
)
def test_what_is_no_base64_is_refused(text: str) -> None:
    """Padding in the middle, too, wherever the middle is."""
    for part, param in (
        ({"type": "image_url", "image_url": {"url": f"data:;base64,{text}"}}, "image_url.url"),
        ({"type": "input_audio", "input_audio": {"data": text}}, "input_audio.data"),
    ):
        with pytest.raises(BadRequestError, match="not valid base64") as caught:
            parts(part)
        assert caught.value.param == f"messages[0].content[0].{param}"


@pytest.mark.parametrize("kind", ["image_url", "video_url", "audio_url"])
@pytest.mark.parametrize("value", [{}, None, {"url": None}, {"url": ""}, ...])
def test_a_named_file_may_be_left_out_however_that_is_written(kind: str, value: object) -> None:
    part: dict[str, object] = {"type": kind, "uuid": "mine"} | ({} if value is ... else {kind: value})
    message = read_messages([msgspec.Raw(json.dumps({"role": "user", "content": [part]}).encode())])[0]
    assert isinstance(message.content, tuple)
    (found,) = message.content
    assert isinstance(found, MediaPart)
    assert (found.name, found.data, found.address) == ("mine", b"", None)


@pytest.mark.parametrize("value", [{}, {"format": "wav"}, {"data": ""}])
def test_named_sound_too_and_without_a_name_the_field_is_missing(value: object) -> None:
    part: dict[str, object] = {"type": "input_audio", "input_audio": value}
    named = read_messages(
        [msgspec.Raw(json.dumps({"role": "user", "content": [part | {"uuid": "a"}]}).encode())]
    )
    assert isinstance(named[0].content, tuple)
    (found,) = named[0].content
    assert isinstance(found, MediaPart)
    assert found.name == "a"
    empty = {"type": "image_url", "image_url": {}}
    with pytest.raises(BadRequestError) as caught:
        read_messages([msgspec.Raw(json.dumps({"role": "user", "content": [empty]}).encode())])
    assert caught.value.param == "messages[0].content[0].image_url.url"
    assert caught.value.code == "missing_required_parameter"
