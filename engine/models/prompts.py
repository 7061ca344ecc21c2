"""What a client asks → token ids and the encoder items that lie among them, by a model's family.

Media come here as encoder items: opening files and making pixels or features is `actors/text/prompts.py`'s
business. Conversations are rendered by `engine/text/chat_template.py`, placeholders expanded by
`engine/models/qwen3_vl/text.py` and `engine/models/qwen3_asr/text.py`. Torch-free.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from ...protocols.body import refuse
from ...protocols.chat import Conversation
from ...protocols.chat_content import ChatMessage, MediaKind, MediaPart, TextPart
from ...protocols.errors import BadRequestError
from ...protocols.messages import EncoderItem, MediaSpan, VideoItems
from ..text.chat_size import field_sizes
from ..text.chat_template import ChatTemplate
from ..text.token_text import TokenText
from ..text.tokenizer import TextTokenizer
from .info import AsrInfo, ModelInfo
from .qwen3_asr.text import AsrText
from .qwen3_vl.text import expand_vision, read_vision_tokens

PreparedMedia = EncoderItem | VideoItems | tuple[EncoderItem, ...]
"""An image; a video; an audio's windows."""

_KINDS: Final[dict[str, frozenset[MediaKind]]] = {
    "qwen3_vl": frozenset({"image", "video"}),
    "qwen3_asr": frozenset({"audio"}),
}
_MAX_CHARS_PER_TOKEN: Final = 64
"""A text this much longer than the context cannot fit, and is not worth tokenizing to find out."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """Token ids, and what lies among them. `items` holds each item once, `spans` every place."""

    token_ids: tuple[int, ...]
    items: tuple[EncoderItem, ...] = ()
    spans: tuple[MediaSpan, ...] = ()


class PromptBuilder:
    """Builds one model's prompts. Thread-safe; long texts take a while."""

    def __init__(self, info: ModelInfo, text: TextTokenizer) -> None:
        self.info = info
        self.text = text
        self.tokens = TokenText(text)
        self.kinds: frozenset[MediaKind] = _KINDS.get(info.family, frozenset())
        """Media the model takes."""
        self._vision = read_vision_tokens(info.folder) if info.family == "qwen3_vl" else None
        self._asr = AsrText(text, info) if isinstance(info, AsrInfo) else None

    @cached_property
    def template(self) -> ChatTemplate:
        """The model's chat template. Raises BadRequestError if there is none."""
        return ChatTemplate(self.text)

    @property
    def has_template(self) -> bool:
        """Whether the model can chat."""
        return self._asr is not None or self.text.chat_template is not None

    def completion(self, prompt: str | Sequence[int], *, param: str = "prompt") -> Prompt:
        """A raw prompt: control tokens in a text are control tokens. Raises BadRequestError."""
        if isinstance(prompt, str):
            self._check_chars({param: len(prompt)})
            ids = self.text.start_ids + self.text.encode(prompt, allow_special=True)
        else:
            ids = tuple(prompt)
            self._check_tokens(len(ids), param)
            for index, token_id in enumerate(ids):
                if not 0 <= token_id < self.info.vocab_size:
                    raise refuse(
                        f"{param}[{index}]", token_id, f"token ids from 0 to {self.info.vocab_size - 1}"
                    )
        return self._checked(Prompt(ids), param)

    def chat(self, conversation: Conversation, media: Sequence[PreparedMedia] = ()) -> Prompt:
        """A conversation; `media` are those of its parts, in order. Raises BadRequestError."""
        self._check_chars(field_sizes(conversation))
        if self._asr is not None:
            return self._checked(_transcription(self._asr, conversation, media), "messages")
        ids = self.template.encode(conversation)
        if self._vision is not None and media:
            expanded = expand_vision(
                ids,
                self._vision,
                self._encode_plain,
                images=[each for each in media if isinstance(each, EncoderItem)],
                videos=[each for each in media if isinstance(each, VideoItems)],
            )
            prompt = Prompt(expanded.token_ids, _unique(expanded.items), expanded.spans)
        else:
            prompt = Prompt(ids)
        return self._checked(prompt, "messages")

    def check_kind(self, part: MediaPart) -> None:
        """Raise BadRequestError naming the part if the model does not take its kind of media."""
        if part.kind not in self.kinds:
            takes = ", ".join(sorted(self.kinds | {"text"}))
            raise BadRequestError(
                f"`{part.param}` is {_article(part.kind)}; the model {self.info.name} takes {takes}.",
                param=part.param,
                code="unsupported_media",
            )

    def num_room(self, prompt: Prompt) -> int:
        """Tokens the context leaves for an answer, at least one."""
        return self.info.max_context - len(prompt.token_ids)

    @cached_property
    def _encode_plain(self) -> Callable[[str], tuple[int, ...]]:
        return lambda text: self.text.encode(text, allow_special=False)

    def _check_chars(self, sizes: dict[str, int]) -> None:
        """`sizes` are characters by field; the largest is the one to blame."""
        num_chars = sum(sizes.values())
        if num_chars > self.info.max_context * _MAX_CHARS_PER_TOKEN:
            param = max(sizes, key=lambda name: sizes[name])
            raise BadRequestError(
                f"The prompt has {num_chars:,} characters, {sizes[param]:,} of them in `{param}`, which "
                f"cannot fit the model's context of {self.info.max_context:,} tokens.",
                param=param,
                code="context_length_exceeded",
            )

    def _checked(self, prompt: Prompt, param: str) -> Prompt:
        if not prompt.token_ids:
            raise BadRequestError("The prompt has no tokens.", param=param)
        self._check_tokens(len(prompt.token_ids), param)
        return prompt

    def _check_tokens(self, num_tokens: int, param: str) -> None:
        if num_tokens >= self.info.max_context:
            raise BadRequestError(
                f"The prompt has {num_tokens:,} tokens; the context of {self.info.max_context:,} tokens "
                "must hold prompt and answer.",
                param=param,
                code="context_length_exceeded",
            )


def media_parts(conversation: Conversation) -> tuple[MediaPart, ...]:
    """The media of a conversation, in order."""
    return tuple(
        part
        for message in conversation.messages
        if isinstance(message.content, tuple)
        for part in message.content
        if isinstance(part, MediaPart)
    )


def plain_text(message: ChatMessage) -> str:
    """A message's text, media left out."""
    content = message.content
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(part.text for part in content if isinstance(part, TextPart))


def _unique(items: Sequence[EncoderItem]) -> tuple[EncoderItem, ...]:
    return tuple({item.content_hash: item for item in items}.values())


def _article(kind: MediaKind) -> str:
    return {"image": "an image", "audio": "audio", "video": "a video"}[kind]


def _transcription(text: AsrText, conversation: Conversation, media: Sequence[PreparedMedia]) -> Prompt:
    """What Qwen3-ASR's template makes of a conversation: the system's text and the audio, nothing else."""
    windows = [each for each in media if isinstance(each, tuple)]
    if len(windows) != 1:
        raise BadRequestError(
            f"The model transcribes one input_audio part; the messages have {len(windows)}.", param="messages"
        )
    language = conversation.template_kwargs.get("language")
    if language is not None and not isinstance(language, str):
        raise refuse("chat_template_kwargs.language", language, "a language's code or name")
    context = "".join(
        plain_text(message) for message in conversation.messages if message.role in ("system", "developer")
    )
    prompt = text.prompt(windows[0], context=context, language=language)
    return Prompt(prompt.token_ids, _unique(windows[0]), prompt.spans)
