"""A conversation as Qwen3-ASR's prompt: the system's text, one piece of audio, and how the answer begins.

The model was trained on nothing else, so that anything more in a conversation is refused by name.
The prompt itself is `text.py`'s business. Torch-free.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ....protocols.chat.content import ChatMessage
from ....protocols.chat.request import Conversation
from ....protocols.engine.messages import MediaItems
from ....protocols.errors import BadRequestError, wrong
from ....protocols.shared.json_body import refuse, unsupported
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
        """See `ChatPrompts`; `chat_template_kwargs.language` forces a language, as does an assistant message
        at the end with `continue_final_message`: `language English<asr_text>`, and perhaps some text."""
        messages, begun = conversation.messages, None
        if conversation.continue_final_message:
            messages, begun = messages[:-1], messages[-1]
        windows = [each.items for each in media]
        if len(windows) != 1:
            raise BadRequestError(
                f"The model transcribes one input_audio part; the messages have {len(windows)}.",
                param="messages",
            )
        for message in messages:
            _check(message)
        language = conversation.template_kwargs.get("language")
        if language is not None and not isinstance(language, str):
            raise refuse("chat_template_kwargs.language", language, "a language's code or name")
        if begun is not None and language is not None:
            raise wrong(
                "chat_template_kwargs.language",
                "and `continue_final_message` both begin the answer; give one",
            )
        context = "".join(plain_text(each) for each in messages if each.role in _CONTEXT_ROLES)
        question = self._asr.question(windows[0], context=context)
        if begun is not None:
            return question + self._asr.answer_begun(plain_text(begun))
        return question + self._asr.answer_start(language) if conversation.add_generation_prompt else question


def _check(message: ChatMessage) -> None:
    """Raise BadRequestError for what the prompt has no place for."""
    if message.role == "user":
        if plain_text(message).strip():
            raise unsupported(
                f"{message.param}.content",
                "has text, which this model reads in system messages only; send names and terms there",
            )
    elif message.role not in _CONTEXT_ROLES:
        raise unsupported(
            message.param,
            f"is of role {message.role!r}; this model reads system messages, one user message with audio, "
            "and with `continue_final_message` the beginning of its answer",
        )
