"""What can go wrong on the client's side of a connection, each with a message a person can act on.

    SDKError
    ├── SensoriumConnectionError   nobody answers there, or the connection broke while connecting
    ├── SensoriumTimeoutError      the server took longer than the client's `timeout`
    ├── APIError                   the server refused: an HTTP status, or an `error` as a session opens
    ├── SessionClosedError         a live session was closed early; carries the code and the reason
    ├── AnswerError                a chat's answer has not the form that was asked for
    ├── AudioError                 a local audio file cannot be streamed as it is
    └── PictureError               a local picture or frame cannot be shown as it is

Not the server's exception tree (`protocols/errors.py`): these are raised to the SDK's user. Read next:
`client/options.py`.
"""

from __future__ import annotations


class SDKError(Exception):
    """Root of everything the SDK raises on purpose. `str(error)` is one readable line."""


class SensoriumConnectionError(SDKError):
    """No server at the address, or the connection broke before it was usable."""


class SensoriumTimeoutError(SDKError):
    """No answer within the client's `timeout`; the message names what was waited for."""


class APIError(SDKError):
    """The server refused, and said why.

    `status` is the HTTP status (for an `error` event the one that REST would have); `code` and `param` are
    the server's own words. `request_id` finds the request in the server's log; `retry_after_s` is how long
    the server would have us wait before we try again, if it says so.
    """

    def __init__(self, status: int, code: str | None, param: str | None, message: str) -> None:
        super().__init__(status, code, param, message)
        self.status = status
        self.code = code
        self.param = param
        self.message = message
        self.request_id: str | None = None
        self.retry_after_s: float | None = None

    def __str__(self) -> str:
        details = [str(self.status)]
        if self.code:
            details.append(self.code)
        if self.param:
            details.append(f"param: {self.param}")
        if self.status == 401:  # SENSORIUM_API_KEY is the server's, and easily taken for it
            details.append("the key is api_key, else SENSORIUM_CLIENT_API_KEY")
        if self.status >= 500 and self.request_id:
            details.append(f"request {self.request_id}")
        return f"{self.message} ({', '.join(details)})"


class SessionClosedError(SDKError):
    """A live session was closed before it was finished, by the server or, if `by_us`, by this side: it was
    left, or the server said what no client can take.

    `code` is the WebSocket close code (1006: the connection vanished without a closing handshake);
    `num_unfinished` counts committed turns whose transcript will not come; `not_resumed` says why the session
    could not go on with another connection, where that was tried.
    """

    def __init__(
        self,
        code: int,
        reason: str,
        *,
        num_unfinished: int = 0,
        last_error: str | None = None,
        not_resumed: str | None = None,
        by_us: bool = False,
    ) -> None:
        super().__init__(code, reason)
        self.code = code
        self.reason = reason
        self.num_unfinished = num_unfinished
        self.last_error = last_error
        self.not_resumed = not_resumed
        self.by_us = by_us

    def __str__(self) -> str:
        meaning = _CLOSE_CODES.get(self.code)
        text = f"{'the client' if self.by_us else 'the server'} closed the session: code {self.code}"
        if meaning:
            text += f" ({meaning})"
        if self.reason:
            text += f", reason: {self.reason}"
        if self.num_unfinished:
            turns = "turn" if self.num_unfinished == 1 else "turns"
            text += f"; {self.num_unfinished} committed {turns} not transcribed"
        if self.not_resumed:
            text += f"; it could not be resumed: {self.not_resumed}"
        if self.last_error:
            text += f"; the last error event said: {self.last_error}"
        return text


class AnswerError(SDKError):
    """The answer of a chat has not the form that was asked for: it was cut, or the server asks for none."""


class AudioError(SDKError):
    """A local audio file cannot be streamed as it is; the message says what to do."""


class PictureError(SDKError):
    """A local picture, film or camera cannot be shown as it is; the message says what to do."""


_CLOSE_CODES = {
    1000: "normal closure",
    1001: "going away",
    1006: "connection lost",
    1008: "refused by policy",
    1009: "message too big",
    1011: "server fault",
    1012: "server restarts",
    1013: "server overloaded, try again later",
}
