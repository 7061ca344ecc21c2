"""Which server has what: sessions, stored responses, files, and the beginnings of prompts. Pure.

What a server has made by id (`resp_…`, `conv_…`, `file-…`, a session, a client secret) only that server has,
so what names one goes there. The beginning of a prompt is cheaper where it was computed before, so it goes
there while that server is not much busier than others. All is kept in a bounded memory, the least recently
used goes first; nothing breaks where it is lost: `actors/gateway/http_relay.py` then asks the servers who has
an id.
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import msgspec

_MAX_IDS: Final = 65_536
_MAX_PREFIXES: Final = 65_536
_MAX_MESSAGES: Final = 256
"""Of one prompt: the beginning is what counts."""
_BLOCK_CHARS: Final = 1024
"""A prompt that is one text is cut into pieces of so much."""
_DIGEST_BYTES: Final = 16
_ID_FIELDS: Final = (
    "previous_response_id",
    "conversation",
    "container",
    "file_id",
    "input_file_id",
    "batch_id",
)
_NAMED: Final = re.compile(
    rb'"(?:' + "|".join(_ID_FIELDS).encode() + rb')"\s*:\s*(?:\{\s*"id"\s*:\s*)?"([A-Za-z0-9_.:-]{4,200})"'
)
_MADE: Final = re.compile(rb'"id"\s*:\s*"((?:resp|conv|file|batch|cntr|vs|call)[_-][A-Za-z0-9_.:-]{4,200})"')
_SEGMENT: Final = re.compile(r"[A-Za-z0-9_.:-]{4,200}")
_COLLECTIONS: Final = frozenset(
    {"responses", "conversations", "files", "batches", "containers", "vector_stores", "uploads", "calls"}
)
_NO_IDS: Final = frozenset({"input_tokens", "events", "client_secrets"})


class Hints(NamedTuple):
    """What a request says of where it belongs."""

    model: str | None = None
    ids: tuple[str, ...] = ()
    """Of what a server has made; the first that is known decides."""
    cache_key: str | None = None
    """The client's own name for what its prompts have in common."""
    prefixes: tuple[bytes, ...] = ()
    """Digests of its prompt's beginnings, longest last."""
    num_shared: int = 0
    """Of them, those before anything that a user wrote: many prompts begin so."""


class _Body(msgspec.Struct):
    """The fields of a JSON body that are looked at; all others are passed over."""

    model: str | None = None
    prompt_cache_key: str | None = None
    messages: list[msgspec.Raw] | None = None
    input: msgspec.Raw = msgspec.Raw(b"null")
    prompt: msgspec.Raw = msgspec.Raw(b"null")
    system: msgspec.Raw = msgspec.Raw(b"")
    instructions: msgspec.Raw = msgspec.Raw(b"")


class _Role(msgspec.Struct):
    role: str = ""


def hints_of_json(body: bytes) -> Hints:
    """What a JSON body says; nothing where it is none, or its fields have other types: the server says so."""
    ids = tuple(dict.fromkeys(found.decode() for found in _NAMED.findall(body)))
    try:
        read = msgspec.json.decode(body, type=_Body)
    except (msgspec.DecodeError, RecursionError):
        return Hints(ids=ids)
    before = bytes(read.system) + bytes(read.instructions)
    parts, num_shared = _parts(read)
    prefixes = _digests([(read.model or "").encode() + b"\0" + before, *parts])
    return Hints(read.model, ids, read.prompt_cache_key, prefixes[1:], num_shared)


def hints_of_form(body: bytes) -> Hints:
    """The model that a form names, as far as it has been read."""
    found = re.search(rb'name="model"\r\n(?:[^\r\n]+\r\n)*\r\n([^\r\n]{1,200})\r\n', body)
    return Hints(found[1].decode(errors="replace")) if found else Hints()


def ids_of_path(path: str) -> tuple[str, ...]:
    """Those of what a server has made that a path names, as /v1/responses/resp_1/cancel."""
    parts = path.strip("/").split("/")
    return tuple(
        name
        for collection, name in pairwise(parts)
        if collection in _COLLECTIONS and name not in _NO_IDS and _SEGMENT.fullmatch(name)
    )


def id_made(beginning: bytes) -> str | None:
    """What a server has made, as the beginning of its answer has it."""
    found = _MADE.search(beginning)
    return None if found is None else found[1].decode()


def _parts(read: _Body) -> tuple[list[bytes], int]:
    """The prompt in pieces, and how many come before what a user wrote."""
    for field in (read.messages, _list(read.input), _list(read.prompt)):
        if field is not None:
            pieces = [bytes(each) for each in field[:_MAX_MESSAGES]]
            num_shared = next((i for i, each in enumerate(pieces) if not _is_shared(each)), len(pieces))
            return pieces, num_shared
    for text in (bytes(read.input), bytes(read.prompt)):
        if text.startswith(b'"'):
            text = text[1:-1][: _MAX_MESSAGES * _BLOCK_CHARS]
            whole = len(text) // _BLOCK_CHARS
            return [text[i * _BLOCK_CHARS : (i + 1) * _BLOCK_CHARS] for i in range(whole)], 0
    return [], 0


def _list(raw: msgspec.Raw) -> list[msgspec.Raw] | None:
    try:
        return msgspec.json.decode(raw, type=list[msgspec.Raw])
    except msgspec.DecodeError:
        return None


def _is_shared(message: bytes) -> bool:
    """Whether it is a system's message, and not one of this conversation alone."""
    try:
        return msgspec.json.decode(message, type=_Role).role in ("system", "developer")
    except msgspec.DecodeError:
        return False


def _digests(parts: Iterable[bytes]) -> tuple[bytes, ...]:
    """Of each beginning of a prompt: that of the one before, and one piece more."""
    found: list[bytes] = []
    for part in parts:
        before = found[-1] if found else b""
        found.append(hashlib.blake2b(before + part, digest_size=_DIGEST_BYTES).digest())
    return tuple(found)


class Affinity:
    """The memory of one gateway. Servers are named, not held: one that is gone is nobody's."""

    def __init__(self) -> None:
        self._ids: OrderedDict[str, str] = OrderedDict()
        self._prefixes: OrderedDict[bytes, str] = OrderedDict()

    def made(self, name: str, server: str) -> None:
        """A server has made something, or has shown that it has it."""
        self._ids[name] = server
        self._ids.move_to_end(name)
        if len(self._ids) > _MAX_IDS:
            self._ids.popitem(last=False)

    def forget(self, name: str) -> None:
        """It is gone."""
        self._ids.pop(name, None)

    def owner(self, names: Sequence[str]) -> str | None:
        """The server that has one of these."""
        for name in names:
            if (server := self._ids.get(name)) is not None:
                self._ids.move_to_end(name)
                return server
        return None

    def computed(self, prefixes: Sequence[bytes], server: str) -> None:
        """A server computes a prompt that begins so."""
        for prefix in prefixes:
            self._prefixes[prefix] = server
            self._prefixes.move_to_end(prefix)
        while len(self._prefixes) > _MAX_PREFIXES:
            self._prefixes.popitem(last=False)

    def longest(self, prefixes: Sequence[bytes]) -> tuple[str, int] | None:
        """The server with the longest beginning of a prompt, and how many pieces that has."""
        for num in range(len(prefixes), 0, -1):
            if (server := self._prefixes.get(prefixes[num - 1])) is not None:
                return server, num
        return None
