"""A conversation as Qwen3-ASR's prompt: the system's text and one piece of audio, nothing else.

What its template would make of it. The prompt itself is `text.py`'s business. Torch-free.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ....protocols.body import refuse
from ....protocols.chat import Conversation
from ....protocols.errors import BadRequestError
from ....protocols.messages import MediaItems
from ..prompts import AudioWindows, EmbedsRule, MediaRules, Prompt, plain_text
from .text import Qwen3AsrText

_CONTEXT_ROLES: Final = ("system", "developer")


class Qwen3AsrPrompts:
    """See `ChatPrompts`."""

    has_template = True

    def __init__(self, asr: Qwen3AsrText) -> None:
        self.text = asr.tokenizer
        info = asr.info
        self.media = MediaRules(
            audio=AudioWindows(info.window_frames, info.num_tokens), embeds=EmbedsRule(info.output_size)
        )
        self._asr = asr

    def chat(self, conversation: Conversation, media: Sequence[MediaItems]) -> Prompt:
        """See `ChatPrompts`; `chat_template_kwargs.language` forces a language."""
        windows = [each.items for each in media]
        if len(windows) != 1:
            raise BadRequestError(
                "The model writes down what it hears, and wants one input_audio part; the messages have "
                f"{len(windows)}.",
                param="messages",
            )
        language = conversation.template_kwargs.get("language")
        if language is not None and not isinstance(language, str):
            raise refuse("chat_template_kwargs.language", language, "a language's code or name")
        said = (plain_text(each) for each in conversation.messages if each.role in _CONTEXT_ROLES)
        return self._asr.prompt(windows[0], context="".join(said), language=language)
