"""Connections to another server: which of them may carry another request."""

from __future__ import annotations

import h11
import trio
from sensorium.actors.relay.connections import ServerConnection
from trio.testing import lockstep_stream_pair, wait_all_tasks_blocked

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"


async def test_a_connection_whose_request_was_cut_off_is_not_used_again() -> None:
    """An early answer cancels the sending of a body: what is sent next would count as its rest."""
    for is_cut in (False, True):
        stream, server = lockstep_stream_pair()
        connection = ServerConnection(stream)
        fields = [(b"host", b"a"), (b"transfer-encoding", b"chunked")]
        head = h11.Request(method="POST", target="/", headers=fields)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(connection.send, head)
            await server.receive_some(1000)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(connection.send, h11.EndOfMessage())
            await wait_all_tasks_blocked()
            if is_cut:
                nursery.cancel_scope.cancel()
            else:
                await server.receive_some(1000)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.send_all, ANSWER)
            await connection.head()
            assert not await connection.body(100)
        assert connection.next_cycle() is not is_cut
