"""Simulated clients: each comes at its time, and ends once, with an answer, a named error, or by leaving."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import trio
from simulation.connections import Connections, Cut, leaving
from simulation.requests import NamedError, WrongAnswerError, answer, request
from simulation.scenario import SOCKETS, Client
from simulation.sessions import Session

LIMIT_S: Final = 400.0
"""Of virtual time; whoever is still there then is never answered."""

How = Literal["answered", "error", "left", "wrong", "never"]


@dataclass(frozen=True)
class Ending:
    """What became of a client."""

    how: How
    text: str
    """The answer, the error, or what was wrong."""
    began: float
    ended: float


async def attend(client: Client, connections: Connections) -> Ending:
    """Be a client from its coming to its end."""
    began = trio.current_time()
    how: How
    try:
        with trio.move_on_after(LIMIT_S), trio.move_on_after(client.leaves_s or float("inf")) as patience:
            try:
                how, text = "answered", await _ask(client, connections)
                return Ending(how, text, began, trio.current_time())
            except BaseExceptionGroup as group:
                raise _only(group) from group
        how, text = ("left", "") if patience.cancelled_caught else ("never", f"not within {LIMIT_S:g} s")
    except NamedError as error:
        how, text = "error", str(error)
    except WrongAnswerError as error:
        how, text = "wrong", str(error)
    except Cut as error:
        how, text = "error", f"0 cut: {error}"
    return Ending(how, text, began, trio.current_time())


async def _ask(client: Client, connections: Connections) -> str:
    if client.kind in SOCKETS:
        return await Session(client, connections).run()
    first, response_id = await _answered(client, connections, None)
    if client.kind != "response":
        return first
    return f"{first} | {(await _answered(client, connections, response_id))[0]}"


async def _answered(client: Client, connections: Connections, previous: str | None) -> tuple[str, str]:
    asked = request(client, previous)
    connections.start(asked)
    with leaving(asked):
        await asked.ended.wait()
    return answer(client, asked)


def _only(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first error of nested groups that is no cancellation."""
    for error in group.exceptions:
        inner = _only(error) if isinstance(error, BaseExceptionGroup) else error
        if not isinstance(inner, trio.Cancelled):
            return inner
    return group.exceptions[0]
