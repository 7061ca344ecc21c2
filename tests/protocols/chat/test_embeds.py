"""Embeddings in parts: what is read, what is refused and under which path."""

from __future__ import annotations

import base64
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sensorium.protocols.chat.content import MediaPart, Part, read_messages
from sensorium.protocols.chat.embeds import Embeds
from sensorium.protocols.engine.messages import FLOAT_BYTES, FloatType
from sensorium.protocols.errors import BadRequestError

PLACE = "messages[0].content[0]"
IMAGE: dict[str, Any] = {
    "data": base64.b64encode(bytes(6 * 8 * 4)).decode(),
    "dtype": "float32",
    "shape": [6, 8],
    "image_grid_thw": [1, 4, 6],
}
AUDIO = {name: value for name, value in IMAGE.items() if name != "image_grid_thw"}


def read(part: object) -> Part:
    message = {"role": "user", "content": [part]}
    content = read_messages([msgspec.Raw(json.dumps(message).encode())])[0].content
    assert isinstance(content, tuple)
    return content[0]


def test_both_kinds_are_read_as_media_of_theirs() -> None:
    data = bytes(6 * 8 * 4)
    assert read({"type": "image_embeds", "image_embeds": IMAGE}) == MediaPart(
        "image", data, PLACE, embeds=Embeds("float32", (6, 8), (1, 4, 6))
    )
    assert read({"audio_embeds": AUDIO, "uuid": "a"}) == MediaPart(
        "audio", data, PLACE, name="a", embeds=Embeds("float32", (6, 8))
    )
    known = read({"type": "audio_embeds", "audio_embeds": None, "uuid": "a"})
    assert known == MediaPart("audio", b"", PLACE, name="a", embeds=Embeds())


@given(st.sampled_from(sorted(FLOAT_BYTES)), st.integers(1, 9), st.integers(1, 9))
def test_bytes_of_every_type_survive(dtype: FloatType, rows: int, width: int) -> None:
    data = bytes(index % 256 for index in range(rows * width * FLOAT_BYTES[dtype]))
    body = {"data": base64.b64encode(data).decode(), "dtype": dtype, "shape": [rows, width]}
    found = read({"type": "audio_embeds", "audio_embeds": body})
    assert found == MediaPart("audio", data, PLACE, embeds=Embeds(dtype, (rows, width)))


@pytest.mark.parametrize(
    ("changed", "param"),
    [
        ({"dtype": "float64"}, "dtype"),
        ({"dtype": "torch.float32"}, "dtype"),
        ({"dtype": 4}, "dtype"),
        ({"shape": [6]}, "shape"),
        ({"shape": [1, 6, 8]}, "shape"),
        ({"shape": [6, 0]}, "shape"),
        ({"shape": [-6, -8]}, "shape"),
        ({"shape": [6, 2**63]}, "shape"),
        ({"shape": [6, 2**40]}, "shape"),
        ({"shape": [True, 8]}, "shape[0]"),
        ({"shape": [6, 9]}, "data"),
        ({"dtype": "float16"}, "data"),
        ({"data": "%"}, "data"),
        ({"data": None}, "data"),
        ({"data": 3}, "data"),
        ({"data": ""}, "data"),
        ({"image_grid_thw": [4, 6]}, "image_grid_thw"),
        ({"image_grid_thw": [2, 4, 6]}, "image_grid_thw"),
        ({"image_grid_thw": [1, 0, 6]}, "image_grid_thw"),
        ({"image_grid_thw": None}, "image_grid_thw"),
        ({"pickle": "gASV"}, "pickle"),
    ],
)
def test_refused_by_path(changed: dict[str, object], param: str) -> None:
    with pytest.raises(BadRequestError) as caught:
        read({"type": "image_embeds", "image_embeds": {**IMAGE, **changed}})
    assert (caught.value.param or "").startswith(f"{PLACE}.image_embeds.{param}")


@pytest.mark.parametrize("field", ["data", "dtype", "shape", "image_grid_thw"])
def test_what_is_missing_is_named(field: str) -> None:
    body = {name: value for name, value in IMAGE.items() if name != field}
    with pytest.raises(BadRequestError) as caught:
        read({"type": "image_embeds", "image_embeds": body})
    assert caught.value.param == f"{PLACE}.image_embeds.{field}"
    assert caught.value.code == "missing_required_parameter"


@pytest.mark.parametrize("part", [{"type": "image_embeds"}, {"type": "image_embeds", "image_embeds": "gASV"}])
def test_tensors_of_others_are_not_read(part: dict[str, Any]) -> None:
    with pytest.raises(BadRequestError) as caught:
        read(part)
    assert caught.value.param == f"{PLACE}.image_embeds"


def test_sounds_have_no_grid() -> None:
    with pytest.raises(BadRequestError) as caught:
        read({"type": "audio_embeds", "audio_embeds": IMAGE})
    assert caught.value.param == f"{PLACE}.audio_embeds.image_grid_thw"
