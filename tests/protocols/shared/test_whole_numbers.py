"""A whole number is one however JSON writes it, in bodies as in events."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sensorium.protocols.anthropic.request import parse_message
from sensorium.protocols.chat.completions import parse_completion
from sensorium.protocols.chat.request import parse_chat
from sensorium.protocols.chat.tokenize import parse_detokenize
from sensorium.protocols.errors import BadRequestError
from sensorium.protocols.realtime.codec import decode_client_event
from sensorium.protocols.realtime.events import SessionUpdate
from sensorium.protocols.responses.request import parse_response
from sensorium.protocols.shared.whole_numbers import without_fractions

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(JSON)
def test_no_value_changes(value: object) -> None:
    text = json.dumps(value).encode()
    mended = without_fractions(text)
    assert json.loads(mended) == value
    assert without_fractions(mended) == mended


@pytest.mark.parametrize(
    ("text", "mended"),
    [
        (b'{"a": 16.0}', b'{"a": 16}'),
        (b"[16.00,-2.0]", b"[16,-2]"),
        (b'{"a": 16.05, "b": 1.0e3, "c": 0.0}', b'{"a": 16.05, "b": 1.0e3, "c": 0}'),
        (b'["16.0", "a\\"16.0", "\\\\", 3.0]', b'["16.0", "a\\"16.0", "\\\\", 3]'),
    ],
)
def test_only_numbers_are_rewritten(text: bytes, mended: bytes) -> None:
    assert without_fractions(text) == mended


def test_bodies_of_every_dialect() -> None:
    chat = b'{"messages": [{"role": "user", "content": "at 16.0"}], "max_tokens": 16.0, "seed": 7.0}'
    wish, _ = parse_chat(chat)
    assert (wish.max_tokens, wish.seed) == (16, 7)
    assert parse_completion(b'{"prompt": [1.0, 2], "max_tokens": 5.0}').max_tokens == 5
    assert parse_response(b'{"input": "a", "max_output_tokens": 32.0}').request.max_output_tokens == 32
    message = b'{"messages": [{"role": "user", "content": "a"}], "max_tokens": 5.0, "top_k": 3.0}'
    assert parse_message(message).chat.max_tokens == 5
    assert parse_detokenize(b'{"tokens": [1.0]}').tokens == [1]


def test_what_is_no_whole_number_is_refused_as_ever() -> None:
    with pytest.raises(BadRequestError, match="integer") as caught:
        parse_completion(b'{"prompt": "a", "max_tokens": 16.5, "seed": 1.0}')
    assert caught.value.param == "max_tokens"


def test_events_of_sessions() -> None:
    update = {
        "type": "session.update",
        "session": {
            "type": "transcription",
            "audio": {
                "input": {
                    "format": {"type": "audio/pcm", "rate": 16000.0},
                    "turn_detection": {"type": "server_vad", "silence_duration_ms": 300.0},
                }
            },
        },
    }
    for text in (json.dumps(update), json.dumps(update).encode()):
        assert isinstance(decode_client_event(text), SessionUpdate)


def test_neutral_fields_of_other_servers_pass_and_others_are_named() -> None:
    plain = {"messages": [{"role": "user", "content": "a"}]}
    neutral = {
        "cache_prompt": True,
        "typical_p": 1.0,
        "dry_multiplier": 0,
        "n_probs": None,
        "separate_reasoning": True,
        "repeat_penalty": 1,
        "regex": None,
    }
    assert parse_chat(json.dumps(plain | neutral).encode()) == parse_chat(json.dumps(plain).encode())
    assert parse_chat(json.dumps(plain | {"max_tokens": -1}).encode()) == parse_chat(
        json.dumps(plain).encode()
    )
    with pytest.raises(BadRequestError, match="`typical_p` is not a known field") as caught:
        parse_chat(json.dumps(plain | neutral | {"typical_p": 0.5}).encode())
    assert caught.value.param == "typical_p"


@pytest.mark.parametrize(
    ("field", "value", "meant"),
    [
        ("temperatur", 0.5, "temperature"),
        ("temperatur", "hot", ""),
        ("truncation_side", "left", ""),
        ("function", [], ""),
        ("max_token", 5, "max_tokens"),
        ("response_format", {"type": "json_schema", "json_schema": {"name": "a"}, "schema": {}}, ""),
        ("response_format", {"type": "json_object", "response_format": {}}, ""),
        ("stream_options", {"include_usage": True, "stream_option": 1}, ""),
        ("max_token", True, ""),
    ],
)
def test_a_suggestion_is_served_and_takes_the_value(field: str, value: object, meant: str) -> None:
    with pytest.raises(BadRequestError) as caught:
        parse_completion(json.dumps({"prompt": "a", field: value}).encode())
    message = caught.value.message
    if meant:
        assert message.endswith(f"did you mean `{meant}`?")
    else:
        assert "is not a known field" in message
        assert "did you mean" not in message
