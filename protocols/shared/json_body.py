"""JSON request bodies → structs: whatever is wrong becomes one BadRequestError with the dotted `param`.

Shared by `protocols/chat/completions.py` and `protocols/chat/request.py`. Knows JSON, not what the fields
mean.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Protocol, TypeGuard, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from ..errors import BadRequestError, ClientError, TooLargeError, wrong
from .decode_errors import read_fault, shortened
from .foreign_options import OF_TEXT, meant
from .sampling import allowed_range, is_outside, ranges_of
from .unsupported_fields import UNSERVED, is_neutral
from .whole_numbers import expects_whole, without_fractions

T = TypeVar("T")
_Body = TypeVar("_Body", covariant=True)
Encoded = bytes | msgspec.Raw

MAX_ELEMENTS: Final = 300_000
"""Commas in a body, and so about its JSON elements: one call decodes them all, and though it is made in a
thread, nothing else runs meanwhile. Room for the ids of a prompt of 256k tokens; base64 has no commas."""
MAX_QUOTES: Final = 100_000
"""Quotation marks in a body that are not text of a string, and so are two for each: a name or a string takes
ten times as long as a number, and what free fields hold stays until the request is answered."""

_SLICE: Final = 1 << 20

_any_fields: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_NAMES: Final = (("`", ""), ("str", "string"), ("int", "integer"), ("bool", "boolean"), ("float", "number"))
_MAX_SHOWN: Final = 40


def decode_body(body: Encoded, decoder: msgspec.json.Decoder[T], *, prefix: str = "") -> T:
    """Decode a body, or a part of one that lies at `prefix`. Raises BadRequestError or TooLargeError."""
    if isinstance(body, bytes):
        if _count(body, b",") > MAX_ELEMENTS:
            raise TooLargeError(f"The body has more than {MAX_ELEMENTS:,} elements.")
        if _count(body, b'"') - _count(body, b'\\"') > MAX_QUOTES:
            raise TooLargeError(f"The body has more than {MAX_QUOTES // 2:,} strings.")
    try:
        return _decode(bytes(body), decoder, prefix)
    except RecursionError:
        raise BadRequestError("The body is nested too deeply.", code="invalid_json") from None
    except (msgspec.DecodeError, UnicodeError) as error:
        reason = "not UTF-8" if isinstance(error, UnicodeError) else _reason(str(error))
        raise BadRequestError(f"The body is not valid JSON: {reason}.", code="invalid_json") from None


def _decode(body: bytes, decoder: msgspec.json.Decoder[T], prefix: str) -> T:
    """Decode it; what other writers of JSON, and clients of other servers, put otherwise is read as meant."""
    while True:
        try:
            return decoder.decode(body)
        except msgspec.ValidationError as error:
            message = str(error)
        mended = body
        if expects_whole(message):
            mended = without_fractions(body)
        elif not prefix and read_fault(message).kind == "unknown":
            mended = _without_neutral(body, getattr(decoder.type, "__struct_fields__", ()))
        if len(mended) == len(body):
            raise _explain(message, prefix, decoder.type, body)
        body = mended


def _without_neutral(body: bytes, known: Collection[str]) -> bytes:
    """The body without other servers' fields that ask for nothing; itself if there are none."""
    fields = _any_fields.decode(body)
    kept = {name: value for name, value in fields.items() if name in known or not is_neutral(name, value)}
    return body if len(kept) == len(fields) else msgspec.json.encode(kept)


def _count(body: bytes, part: bytes) -> int:
    """Slice by slice, so that other threads get between; what lies across two is not counted."""
    return sum(body.count(part, at, at + _SLICE) for at in range(0, len(body), _SLICE))


def _reason(message: str) -> str:
    """msgspec's ``JSON is malformed: invalid character (byte 5)`` without its first words."""
    return message.removeprefix("JSON is malformed: ")


def _explain(message: str, prefix: str, kind: object, body: bytes) -> BadRequestError:
    """msgspec's ``Expected `int`, got `str` - at `$.a.b` `` names the field `a.b`."""
    fault = read_fault(message, prefix, kind)
    param, problem = fault.param, fault.problem
    if fault.kind == "missing":
        return missing(param)
    if fault.kind == "unknown":
        if fault.allowed:
            return wrong(param, f"is not a known field; allowed: {fault.allowed}", code="unknown_parameter")
        hint = "" if prefix or "." in param else _meant(param, kind, body)
        end = "" if hint.endswith("?") else "."
        return wrong(param, f"is not a known field{hint}{end}", code="unknown_parameter")
    if not prefix and _is_struct(kind) and (meta := ranges_of(kind).get(param)):
        value = msgspec.json.decode(_any_fields.decode(body)[param])
        if is_outside(value, meta):
            return refuse(param, value, allowed_range(meta))
    if fault.kind != "choice":  # whose names are nobody's types
        for name, plain in _NAMES:
            problem = re.sub(rf"\b{name}\b" if plain else name, plain, problem)
        problem = problem.replace(" | null", " or null").replace(" | ", ", ")
    problem = problem[:1].lower() + problem[1:]
    if not param:
        return BadRequestError(f"The body: {problem}.", code="invalid_json")
    return BadRequestError(f"`{param}`: {problem}", param=param)


def _is_struct(kind: object) -> TypeGuard[type[msgspec.Struct]]:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _meant(name: str, kind: object, body: bytes) -> str:
    """What may be meant by an unknown field of the whole body: a served field that takes its value."""
    if not _is_struct(kind):
        return ""
    value = _any_fields.decode(body).get(name, msgspec.Raw(b"null"))
    types = {each.name: each.type for each in msgspec.structs.fields(kind)}

    def takes(field: str) -> bool:
        if field in UNSERVED:
            return False
        try:
            msgspec.json.decode(value, type=types[field])
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return False
        return True

    return meant(name, types, OF_TEXT, takes)


def shown(value: object) -> str:
    """A client's value inside a message: as JSON, and short."""
    if isinstance(value, str):
        value = value[: _MAX_SHOWN + 1]
    try:
        # JSON has no NaN, and msgspec says null.
        text = repr(value) if isinstance(value, float) else msgspec.json.encode(value).decode()
    except (TypeError, ValueError, OverflowError, RecursionError):
        text = repr(value)
    return shortened(text, _MAX_SHOWN)


def refuse(param: str, value: object, allowed: str) -> BadRequestError:
    """The error for a value that is out of range: names field, value and what is allowed."""
    return wrong(param, f"is {shown(value)}; allowed: {allowed}")


def missing(param: str) -> BadRequestError:
    """The error for a field that must be there."""
    return wrong(param, "is missing", code="missing_required_parameter")


def given(value: T | UnsetType | None, param: str) -> T:
    """What a field says that must be there. Raises BadRequestError where it is not, or null."""
    if value is UNSET or value is None:
        raise missing(param)
    return value


def unsupported(param: str, reason: str) -> BadRequestError:
    """The error for a field that is known and not served."""
    return wrong(param, f"{reason}.", code="unsupported_parameter")


FieldNames = Sequence[tuple[str, str]]
"""How one API names what another one does by another name, the longest first."""


@contextmanager
def renamed(names: FieldNames) -> Iterator[None]:
    """Let errors name fields as the request's API does, where rules of another found what is wrong."""
    try:
        yield
    except ClientError as error:
        for theirs, ours in names:
            rest = (error.param or "").removeprefix(theirs)
            if error.param is not None and error.param.startswith(theirs) and rest[:1] in ("", ".", "["):
                error.param = ours + rest
                error.message = error.message.replace(f"`{theirs}", f"`{ours}")
                error.args = (error.message,)
                break
        raise


def check_range(param: str, value: float | None, low: float, high: float) -> None:
    """Raise unless `low <= value <= high` (None passes)."""
    if value is not None and not low <= value <= high:
        raise refuse(param, value, f"{_number(low)} to {_number(high)}")


def check_ranges(request: msgspec.Struct) -> None:
    """Raise for the first field that is outside its declared range, in a request that was not decoded."""
    for name, meta in ranges_of(type(request)).items():
        if is_outside(value := getattr(request, name), meta):
            raise refuse(name, value, allowed_range(meta))


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:g}"


class Decode(Protocol[_Body]):
    """Decodes one kind of body; `prefix` is where it lies in a larger one."""

    def __call__(self, body: Encoded, prefix: str = "") -> _Body:
        """Raises BadRequestError or TooLargeError."""


def decoder(kind: type[T]) -> Decode[T]:
    """`decode_body` for one struct."""
    made: msgspec.json.Decoder[Any] = msgspec.json.Decoder(kind)

    def decode(body: Encoded, prefix: str = "") -> T:
        found: T = decode_body(body, made, prefix=prefix)
        return found

    return decode
