"""How one request's answers are read, and what sampling must do so that they can be.

Joins what the request says of tools, what the model's template writes and how its prompt ends. Read next:
`engine/text/tools/machine.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ...engine.models.prompts import Prompt, PromptBuilder
from ...engine.text.tools.formats import FORMATS
from ...engine.text.tools.grammars import after_thinking, call_grammar
from ...engine.text.tools.machine import AnswerMachine
from ...engine.text.tools.thinking import Thinking
from ...protocols.chat.request import Conversation
from ...protocols.engine.messages import ReasoningBudget, SamplingParams
from ...protocols.errors import BadRequestError, wrong
from .reasoning_count import ReasoningCount


def check_calls(builder: PromptBuilder) -> None:
    """Raise BadRequestError where the model has no way to call."""
    if builder.answers.tools is None:
        raise BadRequestError(
            f"The model `{builder.info.name}` calls no tools: its chat template writes no calls. "
            f"If it was trained to, start the server with --tool-parser {' | '.join(FORMATS)}.",
            param="tools",
            code="unsupported_parameter",
        )


class AnswerReading:
    """Of one conversation; with `shows_special` all special tokens are text. `fit` comes first.

    Raises BadRequestError where the model has no way to call."""

    def __init__(
        self, builder: PromptBuilder, conversation: Conversation, *, shows_special: bool = False
    ) -> None:
        self._builder = builder
        self._conversation = conversation
        self._use = use = conversation.tool_use
        self._kind = builder.answers
        self._marks = builder.shown[bool(use.tools)]
        self._shown = builder.text.special_tokens if shows_special else self._marks
        self._thinking: Thinking = "may"
        if use.tools:
            check_calls(builder)

    def fit(self, prompt: Prompt, params: SamplingParams) -> SamplingParams:
        """How to sample the answers to this prompt: what must show, and the grammar of calls that must come,
        or may where text must have a form."""
        self._thinking = self._builder.thinking(prompt, self._conversation)
        text, use, grammar = self._builder.text, self._use, params.grammar
        may_call = use.may_call and self._conversation.forms_text
        if use.is_forced or (grammar is not None and may_call):
            grammar = call_grammar(
                self._kind,
                use.tools,
                text.added_id,
                is_parallel=use.max_calls is None,
                thinking=self._thinking,
                form=None if use.is_forced else grammar,
            )
        elif grammar is not None:
            grammar = after_thinking(self._kind, grammar, text.added_id, self._thinking)
        budget = self._reasoning_budget()
        if (grammar, self._shown, budget) == (params.grammar, params.shown, params.reasoning_budget):
            return params
        return msgspec.structs.replace(params, grammar=grammar, shown=self._shown, reasoning_budget=budget)

    def _reasoning_budget(self) -> ReasoningBudget | None:
        """What the conversation says of it in tokens, if it does and the model thinks."""
        num_tokens = self._conversation.thinking_budget
        if num_tokens is None or not self._kind.reasons:
            return None
        start, ends = self._kind.reasoning_marks()
        text = self._builder.text
        start_ids = text.encode(start, allow_special=True)
        end_ids = tuple(token_id for end in ends if (token_id := text.added_id(end)) is not None)
        if not start_ids or text.added_id(ends[0]) is None:
            if self._conversation.is_budget_optional:
                return None
            raise BadRequestError(
                f"`thinking_token_budget`: no token of `{self._builder.info.name}` ends its thoughts",
                param="thinking_token_budget",
                code="unsupported_parameter",
            )
        return ReasoningBudget(num_tokens, start_ids, end_ids, is_open=self._thinking == "open")

    def machine(self, *, traces: bool = False) -> AnswerMachine | None:
        """A reader of one answer; None where all of it is text. With `traces` it knows where texts were.

        Raises BadRequestError where it would, but special tokens show."""
        schemas = self._use.schemas
        if schemas is None and not self._kind.reasons:
            return None
        asides = [name for key, name in self._shown if (key, name) not in self._marks]
        if traces and asides:
            raise wrong(
                "skip_special_tokens",
                "false and log-probabilities are served together for answers that are "
                "text only, without tools and by models that do not reason",
            )
        return AnswerMachine(
            self._kind,
            schemas,
            thinking=self._thinking,
            max_calls=self._use.max_calls,
            only_calls=self._use.is_forced,
            asides=asides,
            traces=traces,
        )

    @property
    def shown_ids(self) -> frozenset[int]:
        """Special tokens that show in an answer's text."""
        return frozenset(key for key, _ in self._shown)

    @property
    def may_think(self) -> bool:
        """Whether the model has a way to think in front of its answers."""
        return self._kind.reasons

    def count(self) -> ReasoningCount:
        """Counts the reasoning tokens of one answer."""
        return ReasoningCount(self._builder, self._thinking)

    def num_reasoning_tokens(self, token_ids: Sequence[int]) -> int:
        """Of a whole answer's tokens, those of its reasoning, the marks included."""
        count = self.count()
        count.push(token_ids)
        return count.num
