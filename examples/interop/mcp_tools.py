"""A tool of the `mcp` package's own server, called by a sensorium server: `python mcp_tools.py [URL [PORT]]`.

    pip install mcp
    sensorium serve MODEL --allowed-mcp-servers http://127.0.0.1:8765/mcp --allowed-mcp-networks 127.0.0.1

Serves one tool at PORT (8765), has the model call it, once at once and once with an approval, and prints what
each item of the responses was. Exits with 1 if a call did not come to the tool's result.
"""

from __future__ import annotations

import json
import sys
import threading
import time
import urllib.request
from typing import Any

from mcp.server.mcpserver import MCPServer

URL = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000"
PORT = int(sys.argv[2]) if len(sys.argv) > 2 else 8765
LABEL = "clock"


def now(city: str) -> str:
    """What time it is in a city."""
    return f"It is noon in {city}."


def post(approval: str = "never", **fields: Any) -> dict[str, Any]:  # noqa: ANN401 (JSON)
    """A response with the server's tool."""
    tool = {"type": "mcp", "server_label": LABEL, "server_url": f"http://127.0.0.1:{PORT}/mcp"}
    tools = [tool | {"require_approval": approval}]
    body = {"max_output_tokens": 160, "temperature": 0, "tools": tools, **fields}
    request = urllib.request.Request(
        f"{URL}/v1/responses", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=300) as answer:
        found: dict[str, Any] = json.load(answer)
    print(found["status"], *(item["type"] for item in found["output"]))
    return found


def came(answer: dict[str, Any]) -> bool:
    """Whether a call came to the tool's result."""
    results = [item["output"] or "" for item in answer["output"] if item["type"] == "mcp_call"]
    return any(result.startswith("It is noon in ") for result in results)


def main() -> int:
    """Serve the tool and have it called."""
    server = MCPServer(LABEL)
    server.tool()(now)
    run = {"transport": "streamable-http", "host": "127.0.0.1", "port": PORT}
    threading.Thread(target=server.run, kwargs=run, daemon=True).start()
    time.sleep(3)
    question, forced = "What time is it in Bern?", {"type": "mcp", "server_label": LABEL, "name": "now"}
    at_once = post(input=question, tool_choice=forced)
    pending = post("always", input=question, tool_choice=forced)
    agreed = {
        "type": "mcp_approval_response",
        "approval_request_id": pending["output"][-1]["id"],
        "approve": True,
    }
    approved = post(input=[agreed], previous_response_id=pending["id"])
    return 0 if came(at_once) and came(approved) else 1


if __name__ == "__main__":
    sys.exit(main())
