"""The OpenAPI document as one page of HTML for people: no script, nothing from elsewhere, every word escaped.

Takes any document of the shapes `protocols/openapi/document.py` makes and knows no route.
`actors/http/openapi_routes.py` serves it at `/docs`.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Iterable, Iterator
from typing import Final

from ...protocols.openapi.operation import REF, Schema

_STYLE: Final = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:auto;padding:1rem}"
    ":root{color-scheme:light dark}"
    "code{font:.9em ui-monospace,monospace;overflow-wrap:anywhere}h3 code{font-weight:700}"
    "section{border-top:1px solid #8886;scroll-margin-top:1rem}dd{margin:0 0 .3rem 1.5rem}"
    "table{border-collapse:collapse}td,th{border-bottom:1px solid #8884;padding:.2rem .8rem .2rem 0;"
    "text-align:left;vertical-align:top}"
)
_STYLE_HASH: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
"""The page's Content-Security-Policy: its own style sheet, and nothing else."""

_CODE: Final = re.compile(r"`([^`]+)`")
_NO_ID: Final = re.compile(r"[^\w.]")
_REF_HEAD: Final = REF.format(name="")
_LIMITS: Final = {
    "minimum": "at least",
    "exclusiveMinimum": "more than",
    "maximum": "at most",
    "minLength": "characters, at least",
    "maxLength": "characters, at most",
    "maxItems": "items, at most",
    "format": "format",
    "contentEncoding": "encoded as",
}
_KEY: Final = " A route that needs a key takes it as <code>Authorization: Bearer KEY</code>."
_NO_METHODS: Final = ("parameters", "summary", "description")


def page(document: Schema) -> bytes:
    """The page, in UTF-8."""
    info, paths = document["info"], document["paths"]
    title = f"{_text(info['title'])} {_text(info['version'])}"
    schemas = document["components"]["schemas"]
    found = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width">',
        f"<title>{title}</title><style>{_STYLE}</style></head><body><h1>{title}</h1>",
        f"<p>{_prose(info.get('description', ''))}</p>",
        '<p>A page on <a href="openapi.json">openapi.json</a>, which programs read.',
        f"{_KEY if document.get('security') else ''}</p>",
        "<h2>Routes</h2><ul>",
        *(f'<li><a href="#{_id("route", path)}"><code>{_text(path)}</code></a></li>' for path in paths),
        "</ul>",
    ]
    for path, item in paths.items():
        found.append(f'<section id="{_id("route", path)}">')
        for method, operation in item.items():
            if method not in _NO_METHODS:
                needs_key = bool(operation.get("security", document.get("security")))
                found += _operation(path, method, operation, needs_key=needs_key)
        found.append("</section>")
    found.append("<h2>Shapes</h2>")
    for name, schema in schemas.items():
        found.append(f'<section id="{_id("shape", name)}"><h3><code>{_text(name)}</code></h3>')
        found += (f"<p>{_prose(schema.get('description', ''))}</p>", _table(schema), "</section>")
    found.append("</body></html>")
    return "".join(found).encode()


def _operation(path: str, method: str, operation: Schema, *, needs_key: bool) -> Iterator[str]:
    yield f"<h3><code>{_text(method.upper())} {_text(path)}</code></h3><p>{_prose(operation['summary'])}"
    yield ". Needs a key.</p><dl>" if needs_key else ".</p><dl>"
    if body := operation.get("requestBody"):
        yield f"<dt>{'Body' if body.get('required') else 'Body, or none'}</dt>"
        yield from _content(body["content"])
    answers = operation["responses"]
    for status in (each for each in answers if each.startswith("2")):
        yield from _answer(status, answers[status])
    yield "</dl><details><summary>Errors</summary><dl>"
    for status in (each for each in answers if not each.startswith("2")):
        yield from _answer(status, answers[status])
    yield "</dl></details>"


def _answer(status: str, answer: Schema) -> Iterator[str]:
    yield f"<dt>{_text(status)}: {_prose(answer['description'])}</dt>"
    yield from _content(answer.get("content", {}))


def _content(content: Schema) -> Iterator[str]:
    for kind, entry in content.items():
        schema = entry["schema"]
        described = _table(schema) if "properties" in schema else _kind(schema) if schema else ""
        yield f"<dd><code>{_text(kind)}</code>{': ' if described else ''}{described}</dd>"


def _table(schema: Schema) -> str:
    """An object's fields; what is no object is said in words."""
    if "properties" not in schema:
        return f"<p>{_kind(schema)}</p>"
    required = schema.get("required", ())
    rows = (_row(name, each, is_needed=name in required) for name, each in schema["properties"].items())
    heads = "<tr><th>field</th><th>value</th><th></th></tr>"
    return f"<table>{heads}{''.join(rows)}</table>"


def _row(name: str, schema: Schema, *, is_needed: bool) -> str:
    notes = ["needed"] if is_needed else []
    if schema.get("default") is not None:
        notes.append(f"default {_value(schema['default'])}")
    if "description" in schema:
        notes.append(_prose(schema["description"]))
    return f"<tr><td><code>{_text(name)}</code></td><td>{_kind(schema)}</td><td>{'; '.join(notes)}</td></tr>"


def _kind(schema: Schema) -> str:
    """Which values there may be, with links to the shapes that have names."""
    described = _unbounded(schema)
    limits = [f"{words} {_text(schema[key])}" for key, words in _LIMITS.items() if key in schema]
    return f"{described} ({', '.join(limits)})" if limits else described


def _unbounded(schema: Schema) -> str:
    if "$ref" in schema:
        name = schema["$ref"].removeprefix(_REF_HEAD)
        return f'<a href="#{_id("shape", name)}">{_text(name)}</a>'
    if "contentSchema" in schema:
        return _kind(schema["contentSchema"])
    for several in ("anyOf", "oneOf"):
        if several in schema and "properties" not in schema:
            return _or(_kind(each) for each in schema[several])
    if "enum" in schema:
        return _or(map(_value, schema["enum"]))
    if "const" in schema:
        return _value(schema["const"])
    match schema.get("type", "anything"):
        case list() as types:
            return _or(_unbounded(schema | {"type": each}) for each in types)
        case "array":
            return f"list of {_kind(schema.get('items', {}))}"
        case "object" if isinstance(schema.get("additionalProperties"), dict):
            return f"object, each value {_kind(schema['additionalProperties'])}"
        case "object" if "properties" in schema:
            fields = (
                f"<code>{_text(name)}</code> {_kind(each)}" for name, each in schema["properties"].items()
            )
            return f"object of {', '.join(fields)}"
        case str() as name:
            return _text(name)
    return "anything"


def _or(kinds: Iterable[str]) -> str:
    return " or ".join(kinds)


def _value(value: object) -> str:
    return f"<code>{_text(json.dumps(value, ensure_ascii=False, default=str))}</code>"


def _text(value: object) -> str:
    return html.escape(str(value))


def _prose(text: str) -> str:
    """Words in which what stands between backticks is code."""
    return _CODE.sub(r"<code>\1</code>", _text(text))


def _id(kind: str, name: str) -> str:
    """What a link points to; the same for the same name."""
    return f"{kind}-{_NO_ID.sub(lambda found: f'-{ord(found[0]):x}-', name)}"
