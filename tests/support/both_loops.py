"""Tests of what runs under asyncio and under trio."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Literal

import anyio
import pytest
import sniffio


def both_loops(body: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """A test twice: `body` under each library, which it makes sure of."""

    @functools.wraps(body)
    def test(backend: Literal["asyncio", "trio"], **fixtures: Any) -> None:  # noqa: ANN401 (whatever they are)
        async def checked() -> None:
            assert sniffio.current_async_library() == backend
            with anyio.fail_after(120):
                await body(**fixtures)

        anyio.run(checked, backend=backend)

    own = inspect.signature(body)
    backend = inspect.Parameter("backend", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    test.__signature__ = own.replace(parameters=[backend, *own.parameters.values()])  # type: ignore[attr-defined]
    twice: Callable[..., None] = pytest.mark.parametrize("backend", ["asyncio", "trio"])(test)
    return twice
