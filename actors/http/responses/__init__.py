"""OpenAI's `/v1/responses`: routes, WebSocket, store and tool rounds."""
