"""The page says all the document says, and whatever stands in that is text on it."""

from __future__ import annotations

import base64
import hashlib
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sensorium.actors.http.dialects import DIALECTS
from sensorium.actors.http.openapi_page import POLICY, page
from sensorium.protocols.openapi.document import document
from sensorium.protocols.openapi.operation import REF, Schema

PARTS = [dialect.operations for dialect in DIALECTS]
OPERATIONS = {path: each for part in PARTS for path, each in part.paths.items()}
WHOLE = document(PARTS, list(OPERATIONS), version="1.2", needs_key=True)
HOSTILE = "</title></style><script>alert(1)</script><img src=x onerror='alert(2)'>\"&amp;"
VOID = ("meta",)


class Seen(HTMLParser):
    """What a browser makes of a page."""

    def __init__(self, made: bytes) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.texts: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(made.decode())
        self.close()
        assert not self._open, "every element ends"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.ids += [str(value) for name, value in attrs if name == "id"]
        self.links += [str(value) for name, value in attrs if name == "href"]
        if tag not in VOID:
            self._open.append(tag)
            self.texts.setdefault(tag, []).append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        for tag in set(self._open):
            self.texts[tag][-1] += data


ORDINARY = Seen(page(WHOLE))


def named(text: str, description: str = "") -> Schema:
    """A document in which every name and every word is `text`."""
    shape = {
        "type": "object",
        "description": description,
        "required": [text],
        "properties": {
            text: {"anyOf": [{"$ref": REF.format(name=text)}, {"enum": [text]}, {"const": text}]},
            text + "2": {"type": text, "default": text, "format": text, "description": description},
            text + "3": {"type": "object", "properties": {text: {}}},
            text + "4": {"type": ["array", text], "items": {"additionalProperties": {}, "type": "object"}},
        },
    }
    content = {text: {"schema": shape}}
    operation = {
        "summary": description,
        "requestBody": {"content": content},
        "responses": {"200": {"description": description, "content": content}, text: {"description": text}},
    }
    return {
        "info": {"title": text, "version": text, "description": description},
        "paths": {text: {text: operation}},
        "components": {"schemas": {text: shape}},
    }


def test_every_route_method_and_shape_is_there() -> None:
    heads = ORDINARY.texts["h3"]
    for path, item in WHOLE["paths"].items():
        for method in item.keys() - {"parameters"}:
            assert f"{method.upper()} {path}" in heads
    assert set(WHOLE["components"]["schemas"]) <= set(heads)
    fields = WHOLE["components"]["schemas"]["ChatRequest"]["properties"]
    assert set(fields) <= set(ORDINARY.texts["td"])


def test_links_lead_somewhere_and_nowhere_else() -> None:
    assert len(ORDINARY.ids) == len(set(ORDINARY.ids))
    inner = {link.removeprefix("#") for link in ORDINARY.links if link.startswith("#")}
    assert inner == set(ORDINARY.ids)
    assert {link for link in ORDINARY.links if not link.startswith("#")} == {"openapi.json"}


def test_no_script_no_style_but_its_own_and_that_by_its_hash() -> None:
    assert not ORDINARY.tags & {"script", "link", "img", "iframe", "object", "form", "base"}
    assert ORDINARY.attributes == {"lang", "charset", "name", "content", "id", "href"}
    (style,) = ORDINARY.texts["style"]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"style-src 'sha256-{digest}'" in POLICY
    assert "default-src 'none'" in POLICY
    assert "unsafe" not in POLICY


def test_it_says_what_needs_a_key() -> None:
    seen = " ".join(ORDINARY.texts["section"])
    assert seen.count("Needs a key.") == sum(
        not each.is_open for operations in OPERATIONS.values() for each in operations
    )
    free = page(document(PARTS, list(OPERATIONS), version="1", needs_key=False))
    assert b"Needs a key" not in free
    assert b"Bearer" not in free


@pytest.mark.parametrize("where", ["title", "version", "description"])
def test_hostile_words_of_its_info_are_words(where: str) -> None:
    made = page(WHOLE | {"info": WHOLE["info"] | {where: HOSTILE}})
    seen = Seen(made)
    assert seen.tags == ORDINARY.tags
    assert seen.attributes == ORDINARY.attributes
    assert HOSTILE in seen.texts["p" if where == "description" else "h1"][0]


@given(st.one_of(st.just(HOSTILE), st.text(min_size=1)), st.one_of(st.just(f"`{HOSTILE}`"), st.text()))
def test_whatever_a_document_says_is_text(text: str, description: str) -> None:
    seen = Seen(page(named(text, description)))
    assert seen.tags <= ORDINARY.tags | {"code"}
    assert seen.attributes <= ORDINARY.attributes
    assert len(seen.ids) == len(set(seen.ids)) == 2
    assert {link.removeprefix("#") for link in seen.links} == {*seen.ids, "openapi.json"}
