"""Which formats there are, and which one a checkpoint's chat template writes.

Read `engine/text/tools/machine.py` for who reads an answer with one.
"""

from __future__ import annotations

import secrets
import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, get_args

from ....protocols.chat.answer_events import EventSink, MakeId
from .gemma_calls import FUNCTION_GEMMA, GEMMA_4, read_gemma
from .harmony import HARMONY, read_harmony
from .json_calls import (
    DEEPSEEK,
    HERMES,
    KIMI,
    MISTRAL,
    Tools,
    read_deepseek,
    read_hermes,
    read_kimi,
    read_mistral,
)
from .python_calls import LLAMA, read_llama
from .source import Source, Steps
from .tagged_calls import CODER, GLM, MINIMAX, read_coder, read_glm, read_minimax

FormatName = Literal[
    "hermes",
    "qwen3_coder",
    "llama",
    "mistral",
    "deepseek",
    "glm",
    "kimi_k2",
    "minimax_m2",
    "harmony",
    "gemma",
]


@dataclass(frozen=True, slots=True)
class ToolFormat:
    """One way to write calls."""

    name: FormatName
    read: Callable[[Source, EventSink, Tools], Steps[None]]
    """Reads an answer to its end."""
    marks: tuple[str, ...]
    """What is written around calls; special tokens among them must show in the text."""
    make_id: MakeId
    """Ids as the family's templates take them back."""


def _openai_id(_: int, __: str) -> str:
    return f"call_{secrets.token_hex(12)}"


def _mistral_id(_: int, __: str) -> str:
    """Its templates refuse any that are not nine letters or digits."""
    return "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(9))


def _kimi_id(index: int, name: str) -> str:
    return f"functions.{name}:{index}"


FORMATS: Final[Mapping[FormatName, ToolFormat]] = {
    each.name: each
    for each in (
        ToolFormat("hermes", read_hermes, HERMES, _openai_id),
        ToolFormat("qwen3_coder", read_coder, CODER, _openai_id),
        ToolFormat("llama", read_llama, LLAMA, _openai_id),
        ToolFormat("mistral", read_mistral, MISTRAL, _mistral_id),
        ToolFormat("deepseek", read_deepseek, DEEPSEEK, _openai_id),
        ToolFormat("glm", read_glm, GLM, _openai_id),
        ToolFormat("kimi_k2", read_kimi, KIMI, _kimi_id),
        ToolFormat("minimax_m2", read_minimax, MINIMAX, _openai_id),
        ToolFormat("harmony", read_harmony, HARMONY, _openai_id),
        ToolFormat("gemma", read_gemma, (*GEMMA_4, *FUNCTION_GEMMA), _openai_id),
    )
}
assert set(FORMATS) == set(get_args(FormatName))

_BY_TEMPLATE: Final[tuple[tuple[tuple[str, ...], FormatName], ...]] = (
    (("<|channel|>", "<|message|>"), "harmony"),
    ((KIMI[1],), "kimi_k2"),
    ((DEEPSEEK[1],), "deepseek"),
    ((MINIMAX[0],), "minimax_m2"),
    (("<tool_call>", "<function="), "qwen3_coder"),
    (("<tool_call>", "<arg_key>"), "glm"),
    (("<tool_call>",), "hermes"),
    (("[TOOL_CALLS]",), "mistral"),
    (("<|tool_call>",), "gemma"),
    ((FUNCTION_GEMMA[0],), "gemma"),
    (("<|python_tag|>",), "llama"),
    (("<|python_start|>",), "llama"),
    (("ipython", '"parameters":'), "llama"),
)
"""What a template must hold, the particular before the general."""


def format_of(template: str) -> ToolFormat | None:
    """The format a chat template writes calls in; None if it knows of none."""
    found = (name for words, name in _BY_TEMPLATE if all(word in template for word in words))
    name = next(found, None)
    return None if name is None else FORMATS[name]
