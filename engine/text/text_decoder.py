"""Token ids to text as it becomes certain: joins of the pieces equal the decode of all ids.

Two ways: by bytes where the tokenizer is byte-level (exact for every split, a fixed cost per token), and for
any other by decoding a short window of the newest ids again. No piece ends inside a character. Read
`engine/text/detokenizer.py` next for stop strings.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

Decode = Callable[[Sequence[int]], str]
"""Text of ids, special tokens left out, broken UTF-8 as U+FFFD."""

_REPLACEMENT: Final = "\ufffd"
_MAX_BROKEN: Final = 3
"""U+FFFD at the end of a text that may yet become one character: it has at most four bytes."""
_MAX_PENDING: Final = 8
"""Tokens without a whole character after which what they are is not waited for any longer."""
_CONTEXT: Final = 4
"""Tokens kept in front of new ones, so that those are not decoded as the beginning of a text."""
_MAX_WINDOW: Final = _MAX_PENDING + _CONTEXT

_Utf8: Final = codecs.getincrementaldecoder("utf-8")


class TextDecoder(Protocol):
    """One text in the making."""

    def push(self, token_ids: Sequence[int]) -> str:
        """The text that became certain with these ids, perhaps none."""

    def flush(self) -> str:
        """What was held back, at the end of the ids; an unfinished character is U+FFFD."""


class ByteDecoder:
    """For byte-level tokenizers. `table` has the bytes of each id; ids beyond it have none."""

    __slots__ = ("_decode", "_table")

    def __init__(self, table: Sequence[bytes]) -> None:
        self._table = table
        self._decode = _Utf8(errors="replace").decode

    def push(self, token_ids: Sequence[int]) -> str:
        """See `TextDecoder.push`."""
        try:
            if len(token_ids) == 1:
                return self._decode(self._table[token_ids[0]])
            return self._decode(b"".join([self._table[token_id] for token_id in token_ids]))
        except IndexError:
            num_ids = len(self._table)
            return self.push([token_id for token_id in token_ids if token_id < num_ids])

    def flush(self) -> str:
        """See `TextDecoder.flush`."""
        return self._decode(b"", True)


class ShowingDecoder:
    """Any decoder, and among its text the names of some tokens that have none: `shown`, by id."""

    __slots__ = ("_decoder", "_shown")

    def __init__(self, decoder: TextDecoder, shown: Mapping[int, str]) -> None:
        self._decoder = decoder
        self._shown = shown

    def push(self, token_ids: Sequence[int]) -> str:
        """See `TextDecoder.push`."""
        if self._shown.keys().isdisjoint(token_ids):
            return self._decoder.push(token_ids)
        texts: list[str] = []
        for token_id in token_ids:
            name = self._shown.get(token_id)
            texts.append(self._decoder.push((token_id,)) if name is None else self._decoder.flush() + name)
        return "".join(texts)

    def flush(self) -> str:
        """See `TextDecoder.flush`."""
        return self._decoder.flush()


class WindowedDecoder:
    """For any tokenizer, known only as a function.

    New ids are decoded behind some of those before them, not alone, because some tokenizers drop the space
    before the first word; and not behind all, because that would cost more with every token. Text is held
    back while it ends in U+FFFD, as half a character does, for at most `_MAX_PENDING` tokens; then all but
    the last three are let go: no character is longer, so what is still broken in front of them stays so.
    """

    __slots__ = ("_decode", "_num_pending", "_num_released", "_text", "_window")

    def __init__(self, decode: Decode) -> None:
        self._decode = decode
        self._window: list[int] = []  # the newest ids
        self._text = ""  # of the window
        self._num_released = 0  # characters of it
        self._num_pending = 0  # ids since its text was last whole

    def push(self, token_ids: Sequence[int]) -> str:
        """See `TextDecoder.push`."""
        if not token_ids:
            return ""
        window = [*self._window, *token_ids]
        text = self._decode(window)
        if len(token_ids) > 1 and _REPLACEMENT in text:  # how long has it been broken, and where?
            return "".join([self.push((token_id,)) for token_id in token_ids])
        is_known = text or len(window) > _MAX_WINDOW  # the first ids may be a space that is yet to show
        if is_known and text == self._text and not text.endswith(_REPLACEMENT):
            return ""  # ids without text (special tokens) are not kept
        self._window, self._text = window, text
        whole = text.rstrip(_REPLACEMENT)
        if len(whole) == len(text):
            self._num_pending = 0
            return self._release(len(text))
        self._num_pending += 1
        if self._num_pending <= _MAX_PENDING:
            return self._release(len(whole))
        return self._release(max(len(whole), len(text) - _MAX_BROKEN))

    def flush(self) -> str:
        """See `TextDecoder.flush`."""
        return self._release(len(self._text))

    def _release(self, end: int) -> str:
        released = self._text[self._num_released : end]
        self._num_released = max(self._num_released, end)
        is_settled = not 0 < self._num_pending <= _MAX_PENDING  # else a byte may yet change all of the text
        if is_settled and len(self._window) > _MAX_WINDOW:
            self._trim()
        return released

    def _trim(self) -> None:
        """Forget the oldest ids if the text of the others is the same without them."""
        num_held = len(self._text) - self._num_released
        for size in range(_CONTEXT, _MAX_WINDOW):  # some cut of four lies between two characters
            window = self._window[-size:]
            text = self._decode(window)
            if len(text) > num_held and self._text.endswith(text):
                self._window, self._text = window, text
                self._num_released = len(text) - num_held
                return
