"""An MCP server for tests, on a real socket: JSON-RPC over streamable HTTP, answered as JSON or as events."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

SESSION: Final = "session-1"
TOOLS: Final[list[dict[str, Any]]] = [
    {
        "name": "now",
        "description": "What time it is.",
        "inputSchema": {"type": "object", "properties": {}, "additionalProperties": False},
        "annotations": {"readOnlyHint": True},
    },
    {"name": "erase", "inputSchema": {"type": "object", "properties": {}, "additionalProperties": False}},
]

Tool = Callable[[dict[str, Any]], dict[str, Any]]
"""Arguments → the result of `tools/call`."""


def text(value: str) -> dict[str, Any]:
    """A result that is a text."""
    return {"content": [{"type": "text", "text": value}]}


@dataclass
class McpHost:
    """What it has, and what it was asked. `calls` are names and arguments of `tools/call`, in order."""

    url: str = ""
    tools: list[dict[str, Any]] = field(default_factory=lambda: [*TOOLS])
    results: dict[str, Tool] = field(default_factory=lambda: {"now": lambda _: text("noon")})
    sends_events: bool = True
    token: str = ""
    """Which it wants; empty: none."""
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    methods: list[str] = field(default_factory=list)
    """Of JSON-RPC, and DELETE."""
    heads: list[dict[str, str]] = field(default_factory=list)
    taken_back: list[int] = field(default_factory=list)
    """Ids of requests that were cancelled."""

    def answer(self, message: dict[str, Any]) -> dict[str, Any]:
        """What a request comes to."""
        match message["method"]:
            case "initialize":
                info = {"name": "test", "version": "1"}
                version = message["params"]["protocolVersion"]
                return {"result": {"protocolVersion": version, "capabilities": {}, "serverInfo": info}}
            case "tools/list":
                # Two pages.
                if "cursor" in message["params"]:
                    return {"result": {"tools": self.tools[1:]}}
                return {"result": {"tools": self.tools[:1], "nextCursor": "2"}}
            case "tools/call":
                name, arguments = message["params"]["name"], message["params"]["arguments"]
                self.calls.append((name, arguments))
                if name not in self.results:
                    return {"error": {"code": -32602, "message": f"no tool {name}"}}
                return {"result": self.results[name](arguments)}
        return {"error": {"code": -32601, "message": "no such method"}}


@contextmanager
def mcp_server() -> Iterator[McpHost]:
    """Run one on a free port of 127.0.0.1."""
    host = McpHost()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Tests print nothing."""

        def do_DELETE(self) -> None:
            host.methods.append("DELETE")
            self._reply(200, b"", "text/plain")

        def do_POST(self) -> None:
            message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            host.methods.append(message["method"])
            host.heads.append({name.lower(): value for name, value in self.headers.items()})
            if host.token and self.headers.get("Authorization") != f"Bearer {host.token}":
                return self._reply(401, b"", "text/plain")
            if message["method"] != "initialize" and self.headers.get("Mcp-Session-Id") != SESSION:
                return self._reply(400, b"", "text/plain")
            if message["method"] == "notifications/cancelled":
                host.taken_back.append(message["params"]["requestId"])
            if "id" not in message:
                return self._reply(202, b"", "text/plain")
            answer = json.dumps({"jsonrpc": "2.0", "id": message["id"], **host.answer(message)})
            if not host.sends_events:
                return self._reply(200, answer.encode(), "application/json")
            note = json.dumps({"jsonrpc": "2.0", "method": "notifications/progress", "params": {}})
            events = f": hello\n\nevent: message\ndata: {note}\n\nid: 7\nevent: message\ndata: {answer}\n\n"
            return self._reply(200, events.encode(), "text/event-stream")

        def _reply(self, status: int, body: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Mcp-Session-Id", SESSION)
            self.end_headers()
            with suppress(BrokenPipeError, ConnectionResetError):  # nobody waits for it any more
                self.wfile.write(body)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        host.url = f"http://127.0.0.1:{server.server_address[1]}/mcp"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield host
        finally:
            server.shutdown()
            thread.join()
