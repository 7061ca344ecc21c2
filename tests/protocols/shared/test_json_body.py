"""What is wrong with a body is named with the field's path; nothing but our errors is ever raised."""

from __future__ import annotations

from contextlib import suppress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sensorium.protocols.errors import BadRequestError, ClientError, TooLargeError
from sensorium.protocols.shared.json_body import MAX_ELEMENTS, MAX_QUOTES, check_range, decoder, refuse, shown


class Inner(msgspec.Struct):
    size: int


class Outer(msgspec.Struct):
    name: str
    inner: Inner | None = None
    ratio: float | None = None


decode = decoder(Outer)


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        (b"{", None, "invalid_json"),
        (b"[]", None, "invalid_json"),
        (b"\xff\xfe", None, "invalid_json"),
        (b"{}", "name", "missing_required_parameter"),
        (b'{"name": 3}', "name", "invalid_value"),
        (b'{"name": "a", "inner": {}}', "inner.size", "missing_required_parameter"),
        (b'{"name": "a", "inner": {"size": "big"}}', "inner.size", "invalid_value"),
        (b'{"name": "a", "ratio": 1e999}', "ratio", "invalid_value"),
        (b'{"name": "a", "ratio": NaN}', None, "invalid_json"),
        (b'{"name": "\\ud800"}', None, "invalid_json"),
    ],
)
def test_what_is_wrong_is_named(body: bytes, param: str | None, code: str) -> None:
    with pytest.raises(BadRequestError) as caught:
        decode(body)
    assert (caught.value.param, caught.value.code) == (param, code)
    if param is not None:
        assert f"`{param}`" in caught.value.message


def test_a_part_of_a_body_is_named_by_where_it_lies() -> None:
    with pytest.raises(BadRequestError) as caught:
        decode(b'{"name": "a", "inner": {"size": true}}', "messages[3]")
    assert caught.value.param == "messages[3].inner.size"


def test_types_are_named_as_json_names_them() -> None:
    with pytest.raises(BadRequestError, match=r"^`ratio`: expected number or null, got string$"):
        decode(b'{"name": "a", "ratio": "half"}')


def test_a_body_of_very_many_elements_is_not_decoded() -> None:
    with pytest.raises(TooLargeError):
        decode(b"[" + b"," * (MAX_ELEMENTS + 1))


@pytest.mark.parametrize("string", [b'""', rb'"\\"'], ids=["empty", "backslash"])
def test_a_body_of_very_many_strings_is_not_decoded(string: bytes) -> None:
    num_strings = MAX_QUOTES + 1
    with pytest.raises(TooLargeError, match="strings"):
        decoder(list)(b"[" + b",".join([string] * num_strings) + b"]")


def test_quotation_marks_of_text_are_no_strings() -> None:
    text = '"' * (2 * MAX_QUOTES)
    assert decoder(list[str])(msgspec.json.encode([text])) == [text]


def test_deep_nesting_is_an_answer() -> None:
    with pytest.raises(BadRequestError):
        decoder(list)(b"[" * 200_000)


@given(st.binary(max_size=200))
def test_any_bytes_are_decoded_or_refused(body: bytes) -> None:
    with suppress(ClientError):
        assert isinstance(decode(body), Outer)


@given(st.recursive(st.none() | st.text() | st.floats() | st.integers(), st.lists))
def test_values_in_messages_are_short(value: object) -> None:
    assert len(shown(value)) <= 41
    assert shown(value) in refuse("x", value, "nothing").message


@given(st.floats(), st.floats(-10, 0), st.floats(0, 10))
def test_range(value: float, low: float, high: float) -> None:
    if low <= value <= high:
        check_range("x", value, low, high)
    else:
        with pytest.raises(BadRequestError, match="allowed"):
            check_range("x", value, low, high)


@pytest.mark.parametrize(
    ("body", "reason"),
    [(b'{"ratio": NaN}', "byte 10"), (b'{"name": "a"} x', "trailing"), (b'{"name": "\xff"}', "UTF-8")],
)
def test_what_is_no_json_is_told_where(body: bytes, reason: str) -> None:
    with pytest.raises(BadRequestError, match=reason):
        decode(body)
