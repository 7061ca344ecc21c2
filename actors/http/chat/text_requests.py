"""What the routes of text models share: reading bodies off the loop's time, and finding the model."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ....protocols.chat.request import ChatRequest, chat_params
from ....protocols.engine.messages import SamplingParams
from ....protocols.errors import BadRequestError
from ....protocols.shared.json_body import FieldNames, renamed
from ...callers import Caller
from ...runtime.off_loop import off_loop
from ...text.generation import TextModel
from ..service import Hold, Service, preferred
from ..uploads import read_json_body

_T = TypeVar("_T")

JSON: Final = "application/json"
_INLINE_BYTES: Final = 16 * 1024
"""A body up to this long is parsed on the loop."""
_LIGHT_BYTES: Final = 1024 * 1024
_TEXT_BODY_BYTES: Final = 8 * 1024 * 1024
"""Beside the media, which are a third longer in base64."""


def admission(service: Service, request: Request, caller: Caller) -> Hold:
    """What counts a request while it is worked on; small ones do not take the places of uploads."""
    length = request.headers.get("content-length", "")
    return service.admission(caller, is_light=length.isdigit() and is_light(int(length)))


def is_light(num_bytes: int) -> bool:
    """Whether a body of that size does not take the place of an upload."""
    return num_bytes <= _LIGHT_BYTES


async def read_and_parse(service: Service, request: Request, parse: Callable[[bytes], _T]) -> _T:
    """The parsed body. Raises BadRequestError, TooLargeError or RequestTimeoutError."""
    return await parsed(await read_body(service, request), parse)


async def read_body(service: Service, request: Request) -> bytes:
    """The body, which may have media in it. Raises as `read_and_parse` does."""
    max_bytes = service.config.files.max_upload_bytes * 4 // 3 + _TEXT_BODY_BYTES
    return await read_json_body(request, max_bytes=max_bytes)


async def parsed(body: bytes, parse: Callable[[bytes], _T]) -> _T:
    """What `parse` makes of a body, off the loop's time where it is large."""
    return await off_loop(partial(parse, body), size=len(body), most_inline=_INLINE_BYTES)


def chat_params_for(model: TextModel, options: ChatRequest, names: FieldNames = ()) -> SamplingParams:
    """How a conversation's answers are sampled, before any media are opened: what is wrong with the fields
    needs no prompt to be seen. Raises BadRequestError that calls fields by `names`."""
    info = model.prompter.builder.info
    with renamed(names):
        return chat_params(
            options, num_room=info.max_context, vocab_size=info.vocab_size, defaults=info.sampling
        )


def json_response(value: object, status: int = 200) -> Response:
    """A value as the body."""
    return Response(msgspec.json.encode(value), status, media_type=JSON)


def text_model(service: Service, name: str | None) -> TextModel:
    """The model of that name, or the `preferred` one that generates text where there is none.

    Raises NotFoundError or BadRequestError."""
    able = preferred(each for each in service.models.values() if each.text is not None)
    model = able if able is not None and not name else service.model(name)
    if model.text is None:
        raise BadRequestError(
            f"The model `{model.name}` does not answer prompts; it can {', '.join(model.abilities)}.",
            param="model",
            code="unsupported_task",
        )
    return model.text
