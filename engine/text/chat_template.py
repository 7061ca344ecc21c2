"""A conversation → token ids, by the checkpoint's own Jinja template, as `transformers` renders it.

Text from outside cannot become a control token: where it contains the name of one, a stand-in character goes
through the template instead, and the text around it is encoded without control tokens. Where it contains
none, the ids are exactly those of `apply_chat_template`. Read next: `engine/models/prompts.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from itertools import chain, count, groupby
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import jinja2

from ...protocols.chat.content import ROLES, ChatMessage, MediaPart, Part, TextPart
from ...protocols.chat.request import Conversation
from ...protocols.errors import BadRequestError, ModelLoadError
from ...protocols.shared.json_body import refuse, unsupported
from .chat_size import fields_of
from .pieces import PieceEncoder, names_pattern
from .template_trial import fault_of
from .tokenizer import TextTokenizer

_V = TypeVar("_V")

_FIRST_STAND_IN: Final = 0xF0000  # a private plane: no text means anything by it
_MAX_MESSAGE: Final = 500
_DOCUMENTS: Final = re.compile(r"\bdocuments\b")
_PROBE: Final = "content-parts-probe"


def _rendered(messages: list[dict[str, Any]], **options: Any) -> str:  # noqa: ANN401 (a template's variables)
    # Half a second of a processor, which who serves no template does not spend; others do as they start.
    from transformers.utils.chat_template_utils import render_jinja_template

    (rendered,), _ = render_jinja_template([messages], **options)
    return cast("str", rendered)


def read_template(path: Path) -> str:
    """The Jinja source in a file. Raises ModelLoadError naming it if it cannot be read, is no template, or
    cannot be rendered within bounds (`engine/text/template_trial.py`). Blocking."""
    source = ""
    try:
        source = path.read_text(encoding="utf-8-sig")  # some editors begin with a mark
        if (fault := fault_of(source)) is not None:
            raise ModelLoadError(f"the chat template {path} {fault}")
        _rendered([{"role": "user", "content": _PROBE}], chat_template=source)
    except (OSError, UnicodeDecodeError, jinja2.TemplateSyntaxError) as error:
        raise ModelLoadError(f"the chat template {path} cannot be read: {error}") from None
    except ModelLoadError:
        raise
    except Exception:  # a template may fail in any way on what it does not expect
        return source
    return source


class ChatTemplate:
    """Renders conversations for one tokenizer. Thread-safe; a long conversation takes a while, so use one."""

    def __init__(self, text: TextTokenizer, places: Mapping[str, str] | None = None) -> None:
        """`places` is what stands for a medium of each kind in the string of a template that takes no parts.
        Raises BadRequestError if there is no template."""
        if text.chat_template is None:
            raise BadRequestError(
                "The model has no chat template; use /v1/completions.",
                param="messages",
                code="no_chat_template",
            )
        self._text = text
        self._places = places or {}
        added = text.backend.get_added_tokens_decoder()
        control = {
            token.content: token.special for token_id, token in added.items() if text.is_control(token_id)
        }
        # A place that is no token of the tokenizer, nor made of any, is hidden as those are.
        plain = frozenset(
            written for written in self._places.values() if not any(name in written for name in control)
        )
        self._any_control = names_pattern(frozenset(control) | plain)
        special = frozenset(name for name, is_special in control.items() if is_special)
        self._special = names_pattern(special | plain)
        self._pieces = PieceEncoder(text)

    def encode(
        self, conversation: Conversation, rewrite: Callable[[str], str] = lambda rendered: rendered
    ) -> tuple[int, ...]:
        """The prompt's ids. Raises BadRequestError with the template's own message if it refuses.

        `rewrite` changes what the template wrote, in which nothing of a client's is a control token.
        """
        self._check(conversation)
        try:
            hider = _Hider(conversation, self._any_control)
            messages = [self._message(each, hider) for each in conversation.messages]
            tools = None if conversation.tools is None else hider.hide(conversation.tools, self._any_control)
            rendered = rewrite(self._render(messages, tools, conversation, hider))
        except RecursionError:
            raise BadRequestError("The request is nested too deeply.", param="messages") from None
        start = self._text.start_ids if conversation.adds_special_tokens else ()
        return (*start, *self._encode(rendered, hider))

    def _check(self, conversation: Conversation) -> None:
        """Raise BadRequestError for roles and documents that the template does not name."""
        source = self._source(conversation.tools)
        for message in conversation.messages:
            if message.role not in ROLES and not re.search(rf"""["']{re.escape(message.role)}["']""", source):
                raise refuse(f"{message.param}.role", message.role, ", ".join(ROLES))
        if conversation.documents and not _DOCUMENTS.search(source):
            raise unsupported("documents", "are not in this model's chat template; write them into a message")

    def _source(self, tools: list[dict[str, Any]] | None) -> str:
        return (self._text.chat_template if tools is None else self._text.tool_template) or ""

    @cached_property
    def takes_parts(self) -> bool:
        """Whether a message's content may be a list of parts. Templates of text models want one string."""
        message = {"role": "user", "content": [{"type": "text", "text": _PROBE}]}
        try:
            rendered = _rendered([message], chat_template=self._text.chat_template, **self._text.names)
        except Exception:  # a template may fail in any way on what it does not expect
            return False
        return _PROBE in rendered and "'text'" not in rendered and '"text"' not in rendered

    def _render(
        self,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]] | None,
        conversation: Conversation,
        hider: _Hider,
    ) -> str:
        try:
            return _rendered(
                messages,
                tools=tools,
                documents=hider.hide(conversation.documents, self._any_control),
                chat_template=self._source(tools),
                add_generation_prompt=conversation.add_generation_prompt,
                continue_final_message=conversation.continue_final_message,
                **{**self._text.names, **hider.hide(conversation.template_kwargs, self._any_control)},
            )
        except (
            jinja2.TemplateError,
            TypeError,
            ValueError,
            LookupError,
            AttributeError,
            ArithmeticError,
            SyntaxError,  # of what it is compiled to
        ) as error:
            message = hider.show(str(error))[:_MAX_MESSAGE]
            raise BadRequestError(
                f"The model's chat template refuses the messages: {message}",
                param="messages",
                code="chat_template",
            ) from None

    def _message(self, message: ChatMessage, hider: _Hider) -> dict[str, Any]:
        # What the model itself wrote may hold the control tokens that decoding shows (<think>, <tool_call>).
        pattern = self._special if message.role == "assistant" else self._any_control
        role = "system" if message.role == "developer" else message.role
        return {
            "role": role,
            "content": self._content(message, hider, pattern),
            **hider.hide(message.extra, pattern),
        }

    def _content(
        self, message: ChatMessage, hider: _Hider, pattern: re.Pattern[str]
    ) -> str | list[dict[str, str]]:
        content = message.content
        if content is None or isinstance(content, str):
            return hider.hide(content or "", pattern)
        if self.takes_parts:
            return hider.hide_parts(content, pattern)
        joined, is_behind_text = "", False
        for part in content:
            if isinstance(part, TextPart):
                joined += "\n" * is_behind_text + hider.hide(part.text, pattern)
            elif isinstance(part, MediaPart):
                if part.kind not in self._places:
                    raise BadRequestError(f"`{part.param}`: the model takes text only", param=part.param)
                joined += self._places[part.kind]
            is_behind_text = isinstance(part, TextPart)
        return joined

    def _encode(self, rendered: str, hider: _Hider) -> tuple[int, ...]:
        if not hider.has_hidden:
            return self._pieces.encode(rendered)
        ids: list[int] = []
        trusted = ""
        for piece in self._any_control.split(rendered):
            if hider.is_in(piece):
                ids += self._pieces.encode(trusted)
                ids += self._text.encode(hider.show(piece), allow_special=False)
                trusted = ""
            else:
                trusted += piece
        return (*ids, *self._pieces.encode(trusted))


class _Hider:
    """Stand-in characters for the control tokens' names in one conversation's text."""

    def __init__(self, conversation: Conversation, names: re.Pattern[str]) -> None:
        """`names` are all that is ever hidden."""
        texts = chain.from_iterable(fields_of(conversation).values())
        whole = "".join(texts)  # of neighbours, too
        self._may_hide = names.search(whole) is not None
        self._taken = set(_private(whole)) if self._may_hide else set[str]()
        self._free = count(_FIRST_STAND_IN)
        self._names: dict[str, str] = {}
        self._stand_ins: dict[str, str] = {}

    @property
    def has_hidden(self) -> bool:
        """Whether anything was hidden."""
        return bool(self._names)

    def hide(self, value: _V, names: re.Pattern[str]) -> _V:
        """`value` with `names` replaced in every string, keys included."""
        found: object = value
        if not self._may_hide:
            pass
        elif isinstance(value, str):
            found = names.sub(lambda match: self._stand_in(match[0]), value)
        elif isinstance(value, dict):
            found = {self.hide(key, names): self.hide(each, names) for key, each in value.items()}
        elif isinstance(value, list):
            found = [self.hide(each, names) for each in value]
        return cast(_V, found)

    def hide_parts(self, parts: Iterable[Part], names: re.Pattern[str]) -> list[dict[str, str]]:
        """Parts as templates take them. Neighbouring texts do not form a name together either."""
        if not self._may_hide:
            return [_shown(part) for part in parts]
        found: list[dict[str, str]] = []
        for kind, group in groupby(parts, type):
            run = list(group)
            texts = [self.hide(part.text, names) for part in run if isinstance(part, TextPart)]
            if kind is TextPart and names.search("".join(texts)):
                texts = [self._stand_in("") + text for text in texts]
            found += [_shown(TextPart(text)) for text in texts]
            found += [_shown(part) for part in run if isinstance(part, MediaPart)]
        return found

    def is_in(self, piece: str) -> bool:
        """Whether `piece` has stand-ins."""
        return any(stand_in in piece for stand_in in self._names)

    def show(self, piece: str) -> str:
        """`piece` with the names put back."""
        for stand_in, name in self._names.items():
            piece = piece.replace(stand_in, name)
        return piece

    def _stand_in(self, name: str) -> str:
        if name not in self._stand_ins:
            stand_in = next(chr(code) for code in self._free if chr(code) not in self._taken)
            self._stand_ins[name] = stand_in
            self._names[stand_in] = name
        return self._stand_ins[name]


def _shown(part: Part) -> dict[str, str]:
    return {"type": "text", "text": part.text} if isinstance(part, TextPart) else {"type": part.kind}


def _private(text: str) -> Iterable[str]:
    if text.isascii() or max(text) < chr(_FIRST_STAND_IN):
        return ()
    return (character for character in text if ord(character) >= _FIRST_STAND_IN)
