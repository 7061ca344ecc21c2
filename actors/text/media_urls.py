"""The files that a conversation names by address, fetched: the conversation as if they had come with it.

One address in one request is fetched once, some at a time, and what they hold is counted in the budget of
media as it arrives. Who may be asked for files is `actors/fetching/fetcher.py`'s business.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final

from ...protocols.chat.content import ChatMessage, MediaAddress, MediaPart, Part
from ...protocols.chat.request import Conversation
from ...protocols.errors import BadRequestError, FetchError, SensoriumError
from ..fetching.fetcher import Fetcher
from ..media_decoding.memory_budget import MediaBudget, Reservation
from ..runtime.nursery import all_of

_AT_A_TIME: Final = 8
"""Files of one request."""


@dataclass(slots=True)
class AddressBook:
    """Fetches for requests; without a `fetcher` every address is refused."""

    budget: MediaBudget
    fetcher: Fetcher | None = None

    @asynccontextmanager
    async def fetched(
        self, conversation: Conversation, parts: Sequence[MediaPart], caller: str = ""
    ) -> AsyncIterator[Conversation]:
        """The conversation with its files, of these parts of it; their memory is held until it is left.

        Raises FetchError, BadRequestError or OverloadedError naming the field; cancellation ends fetching.
        """
        addresses = {part.address.url: part.address for part in parts if part.address is not None}
        if not addresses:
            yield conversation
            return
        async with self.files(addresses.values(), caller) as files:
            messages = tuple(_with_files(message, files) for message in conversation.messages)
            yield replace(conversation, messages=messages)

    @asynccontextmanager
    async def files(
        self, addresses: Iterable[MediaAddress], caller: str = ""
    ) -> AsyncIterator[Mapping[str, bytes]]:
        """What is at the addresses, by URL. Raises as `fetched` does."""
        async with self.budget.reserved(0, caller) as held:

            async def one(address: MediaAddress) -> tuple[str, bytes]:
                return address.url, await self._fetch(address, held, caller)

            yield dict(await all_of(one, addresses, at_once=_AT_A_TIME))

    async def _fetch(self, address: MediaAddress, held: Reservation, caller: str) -> bytes:
        fetcher = self.fetcher
        if fetcher is None:
            raise BadRequestError(
                f"`{address.param}`: addresses are not fetched here; send the file as a data: URI "
                "(data:image/png;base64,…)",
                param=address.param,
                code="unsupported_url",
            )
        most = fetcher.config.max_fetch_bytes

        def take(num_bytes: int) -> None:
            if held.num_bytes + num_bytes > most:
                raise FetchError(
                    f"The files of the request have more than {most:,} bytes.", code="file_too_large"
                )
            held.grow(num_bytes)

        try:
            return await fetcher.fetch(address.url, take, caller)
        except SensoriumError as error:
            if error.status < 500:
                error.message = f"`{address.param}`: {error.message}"
                error.args = (error.message,)
            error.param = address.param
            raise


def _with_files(message: ChatMessage, files: Mapping[str, bytes]) -> ChatMessage:
    if not isinstance(message.content, tuple):
        return message
    return replace(message, content=tuple(_with_file(part, files) for part in message.content))


def _with_file(part: Part, files: Mapping[str, bytes]) -> Part:
    if not isinstance(part, MediaPart) or part.address is None:
        return part
    return replace(part, data=files[part.address.url], address=None)
