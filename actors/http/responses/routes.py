"""`/v1/responses`: how input items become a prompt, and answers a response, events, or something to ask for.

Requests are `protocols/responses/request.py`, what is written `protocols/responses/writer.py`, what is kept
`actors/http/responses/store.py`; the work is `actors/http/chat/answers.py`.
"""

from __future__ import annotations

import re
from contextlib import nullcontext
from functools import partial
from typing import Final

import msgspec
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from ....protocols.errors import BadRequestError, InternalError, NotFoundError, TooLargeError, wrong
from ....protocols.responses.input_items import continued
from ....protocols.responses.item_ids import place_of
from ....protocols.responses.mcp_tools import hosted_tools
from ....protocols.responses.output_items import (
    DeletedResponse,
    InputItemList,
    InputTokenCount,
    ResponseObject,
)
from ....protocols.responses.request import FIELD_NAMES, CheckedResponse, check_include, parse_response
from ....protocols.shared.json_body import refuse, renamed
from ...callers import Caller
from ...runtime.off_loop import off_loop
from ...runtime.panic_guard import contained
from ...text.answer_reader import AnswerReading, check_calls
from ..chat.answers import Answering
from ..chat.text_requests import (
    JSON,
    admission,
    chat_params_for,
    json_response,
    parsed,
    read_body,
    text_model,
)
from ..error_bodies import shown
from ..event_stream import EventStream, Put, SlicedResponse
from ..fronts.relaying import RelayedResponse
from ..service import Hold, Service
from .row_codec import ENDED, KeptResponse
from .shape import ResponseShape
from .tool_rounds import RoundAnswering, approved_calls

_FINISHED = ("completed", "incomplete")
_NUMBER: Final = re.compile("[0-9]{1,9}")
_MAX_PAGE: Final = 100
_MAX_REFERRED: Final = 4 << 20
"""Bytes of the items that an input refers to: more than any context takes."""
_NOTHING_READ: Final = -1
"""Of a stream, before its first event."""


class ResponseRoutes:
    """The endpoints. They take a request and give a response or raise a `SensoriumError`."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def create(self, request: Request) -> Response:
        """Answer a conversation."""
        service = self._service
        caller = service.caller(request)
        hold = admission(service, request, caller)
        with hold():
            parsed = await self._parsed(request, caller, hold)
            if isinstance(parsed, RelayedResponse):
                return parsed
            options = parsed.request
            answering, shape = await self.begin(parsed, caller)
            if options.background:
                begun = self._start(answering, shape, hold, is_streamed=bool(options.stream))
                await service.responses.saved(begun.id)
                return self._followed(begun.id, _NOTHING_READ) if options.stream else json_response(begun)
            return await answering.respond(request, hold, shape.settle)

    async def begin(
        self, parsed: CheckedResponse, caller: Caller, *, within: object = None, is_warm_up: bool = False
    ) -> tuple[Answering, ResponseShape]:
        """What answers a request, and what it comes to. `within`, `is_warm_up`: see `ResponseShape`."""
        service, options, chat = self._service, parsed.request, parsed.chat
        if options.is_kept:
            await service.responses.ready()
        model = text_model(service, options.model)
        before = await self._before(caller, options.previous_response_id, within)
        approved = approved_calls(parsed, before)
        params = chat_params_for(model, chat, FIELD_NAMES)
        shape = ResponseShape(
            service, model, parsed, params, caller, before, within=within, is_warm_up=is_warm_up
        )
        if parsed.servers and not is_warm_up:
            check_calls(model.prompter.builder)
            return RoundAnswering(service, caller, model, parsed, params, shape, approved), shape
        has_limit = chat.wanted_tokens is not None
        answering = Answering(
            service, caller, model, chat, params, shape, has_limit=has_limit, names=FIELD_NAMES
        )
        return answering, shape

    async def input_tokens(self, request: Request) -> Response:
        """How long the prompt of a conversation is; tools of MCP servers count where it has their lists."""
        service = self._service
        caller = service.caller(request)
        hold = admission(service, request, caller)
        with hold():
            parsed = await self._parsed(request, caller, hold)
            if isinstance(parsed, RelayedResponse):
                return parsed
            prompter = text_model(service, parsed.request.model).prompter.counting
            before = await self._before(caller, parsed.request.previous_response_id)
            messages, listed = ((), ()) if before is None else (before.messages, before.listed)
            taken = {tool.name for tool in parsed.functions}
            hosted = hosted_tools(parsed.servers, (*listed, *parsed.read.listed), taken)
            conversation = parsed.conversation(
                continued(messages, parsed.read.messages), hosted, is_first=not parsed.servers
            )
            AnswerReading(prompter.builder, conversation)
            with renamed(FIELD_NAMES):
                async with prompter.chat(conversation, caller=service.lane(caller).caller) as prompt:
                    return json_response(InputTokenCount(input_tokens=len(prompt.token_ids)))

    async def one(self, request: Request) -> Response:
        """A kept response, as far as it is there; or forget it."""
        if (relayed := self._relayed(request)) is not None:
            return relayed
        kept = await self._kept(request)
        if request.method != "DELETE":
            check_include(_included(request))
            after = _starting_after(request)
            return json_response(kept.response) if after is None else self._followed(kept.response.id, after)
        await self._service.responses.forget(kept.response.id)
        return json_response(DeletedResponse(id=kept.response.id))

    async def cancel(self, request: Request) -> Response:
        """Give up a response that is made in the background."""
        if (relayed := self._relayed(request)) is not None:
            return relayed
        kept = await self._kept(request)
        if not kept.response.background:
            raise BadRequestError("Only a response with `background` can be cancelled.", param="background")
        self._service.responses.give_up(kept)
        return json_response(kept.response)

    async def input_items(self, request: Request) -> Response:
        """What a kept response was asked with."""
        if (relayed := self._relayed(request)) is not None:
            return relayed
        check_include(_included(request))
        items = (await self._kept(request)).input_items

        def written() -> bytes:
            return msgspec.json.encode(_page(request.query_params, items))

        size = sum(len(memoryview(item)) for item in items)
        return SlicedResponse(await off_loop(written, size=size), media_type=JSON)

    async def _kept(self, request: Request) -> KeptResponse:
        return await self._service.responses.get(self._service.caller(request), request.path_params["id"])

    def _relayed(self, request: Request) -> RelayedResponse | None:
        """The answer of another server of the cluster, where that has the response of the path."""
        service = self._service
        front = service.elsewhere(request.scope, request.path_params["id"])
        return None if front is None else service.relayed(front, service.caller(request))

    async def _parsed(
        self, request: Request, caller: Caller, hold: Hold
    ) -> CheckedResponse | RelayedResponse:
        """A request, with the items of earlier responses that it refers to; or the answer of another server
        of the cluster, where that has what is answered further. Raises NotFoundError, too."""
        service = self._service
        body = await read_body(service, request)
        checked = await parsed(body, parse_response)
        previous = checked.request.previous_response_id
        names = checked.read.references if previous is None else (previous,)
        if (front := service.elsewhere(request.scope, *names)) is not None:
            return service.relayed(front, caller, body, hold)
        del body  # it may be large, and its answer take long
        return await self.with_items(checked, caller)

    async def with_items(
        self, parsed: CheckedResponse, caller: Caller, within: object = None
    ) -> CheckedResponse:
        """The same, with the items of earlier responses that it refers to."""
        if not parsed.read.references:
            return parsed
        found: dict[str, msgspec.Raw] = {}
        size = 0
        for name, param in parsed.read.references.items():
            found[name] = await self._item(caller, name, param, within)
            size += len(memoryview(found[name]))
            if size > _MAX_REFERRED:
                raise TooLargeError(
                    f"The items that `input` refers to have more than {_MAX_REFERRED >> 20} MiB.", param=param
                )
        return await off_loop(partial(parsed.with_items, found), size=size)

    async def _item(self, caller: Caller, name: str, param: str, within: object) -> msgspec.Raw:
        """What a response of `caller`'s has said, by the item's id."""
        if (found := place_of(name)) is not None:
            response_id, place = found
            try:
                output = (await self._service.responses.get(caller, response_id, within)).response.output
            except NotFoundError as error:
                error.param = param
                raise
            if place < len(output) and output[place].id == name:
                return msgspec.Raw(msgspec.json.encode(output[place]))
        raise NotFoundError(f"`{param}` is {name[:80]!r}, which is not an id of an output item", param=param)

    async def _before(
        self, caller: Caller, previous: str | None, within: object = None
    ) -> KeptResponse | None:
        """What is answered further."""
        if previous is None:
            return None
        try:
            kept = await self._service.responses.get(caller, previous, within)
        except NotFoundError as error:
            # By this code clients know that they have to send all of the conversation.
            code = "previous_response_not_found"
            raise BadRequestError(error.message, code=code, param="previous_response_id") from None
        if kept.response.status not in _FINISHED:
            raise wrong("previous_response_id", f"names a response that is {kept.response.status}")
        return kept

    def _followed(self, response_id: str, after: int) -> Response:
        """The events behind number `after`; who leaves ends nothing."""
        store = self._service.responses
        log = store.events.get(response_id)

        async def follow(put: Put) -> None:
            await log.follow(after, put)
            await store.saved(response_id)

        return EventStream(follow, nullcontext)

    def _start(
        self, answering: Answering, shape: ResponseShape, hold: Hold, *, is_streamed: bool
    ) -> ResponseObject:
        """Have it made while nobody waits. Raises BadRequestError where its first events are not kept."""
        kept, service, store = shape.kept(), self._service, self._service.responses
        first = shape.begun() if is_streamed else b""
        store.events.check(first)

        def settle() -> None:
            if shape.is_over and not kept.is_finished:
                kept.messages, kept.listed = shape.messages, shape.listed
                store.become(kept, shape.response)

        def put(frames: bytes) -> None:
            settle()  # first: who reads that it is over may ask for it at once
            store.events.add(kept.response.id, frames)

        async def work() -> None:
            with hold(), service.answering() as in_time:
                store.become(kept, msgspec.structs.replace(kept.response, status="in_progress"))
                try:
                    with contained:
                        if is_streamed:
                            put(first)
                            await answering.stream(put)
                        else:
                            await answering.whole()
                except Exception as error:  # there is nobody to raise it to
                    put(shape.fail(shown(error, "a response in the background")) or b"")
                settle()
            if in_time.cancelled_caught and not shape.is_over:
                put(shape.fail(InternalError(ENDED.message)) or b"")

        async def work_and_close() -> None:
            try:
                await work()
            finally:
                store.events.close(kept.response.id)

        store.start(kept, work_and_close)
        if is_streamed:
            store.events.open(kept.response.id, kept.owner)
        return kept.response


def _starting_after(request: Request) -> int | None:
    """The number of the last event that was read; None where none are asked for."""
    stream, number = request.query_params.get("stream", "false"), request.query_params.get("starting_after")
    if stream not in ("true", "false"):
        raise refuse("stream", stream, "true, false")
    if number is not None and (stream == "false" or not _NUMBER.fullmatch(number)):
        raise refuse("starting_after", number, "with `stream=true`, an event's sequence_number")
    if stream == "false":
        return None
    return _NOTHING_READ if number is None else int(number)


def _included(request: Request) -> list[str]:
    """By both names that lists have in a query."""
    query = request.query_params
    return [*query.getlist("include"), *query.getlist("include[]")]


class _Named(msgspec.Struct):
    """An item, of which nothing else is read."""

    id: str


def _page(query: QueryParams, items: list[msgspec.Raw]) -> InputItemList:
    """Some of the items, as a client that turns pages asks for them."""
    order, limit = query.get("order", "desc"), query.get("limit", "20")
    if order not in ("asc", "desc"):
        raise refuse("order", order, "asc, desc")
    if not _NUMBER.fullmatch(limit) or not 1 <= int(limit) <= _MAX_PAGE:
        raise refuse("limit", limit, f"1 to {_MAX_PAGE}")
    ordered = items if order == "asc" else items[::-1]
    if (after := query.get("after")) is not None:
        names = [_id(item) for item in ordered]
        if after not in names:
            raise refuse("after", after, "the id of one of these items")
        ordered = ordered[names.index(after) + 1 :]
    found = ordered[: int(limit)]
    return InputItemList(
        data=found,
        first_id=_id(found[0]) if found else None,
        last_id=_id(found[-1]) if found else None,
        has_more=len(found) < len(ordered),
    )


def _id(item: msgspec.Raw) -> str:
    return msgspec.json.decode(item, type=_Named).id
