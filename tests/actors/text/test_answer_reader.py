"""How a request's answers are read: what sampling must do for it, and how much of them was thought."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import msgspec
import pytest
from sensorium.actors.text.answer_reader import AnswerReading
from sensorium.engine.models.info import ModelInfo
from sensorium.engine.models.prompts import Prompt, PromptBuilder, TextPrompts
from sensorium.engine.text.tokenizer import TextTokenizer
from sensorium.engine.text.tools.machine import ToolParser, read_whole
from sensorium.protocols.chat.content import ChatMessage, read_messages
from sensorium.protocols.chat.request import Conversation
from sensorium.protocols.chat.tools import NO_ARGUMENTS, Tool, ToolUse
from sensorium.protocols.engine.messages import Grammar, ReasoningBudget, SamplingParams
from sensorium.protocols.errors import BadRequestError
from support.answers import as_tuples
from support.chat_templates import QWEN3
from support.text_folder import byte_level_tokenizer

HARMONY_TOKENS = ("<|channel|>", "<|message|>", "<|end|>", "<|start|>")
HARMONY = "<|start|>{{ messages[0].content }}<|channel|><|message|>"
NOW = Tool("now", NO_ARGUMENTS)
PARAMS = SamplingParams(max_tokens=5)


def builder(
    template: str | None = QWEN3, parser: ToolParser = "auto", extra: tuple[str, ...] = ()
) -> PromptBuilder:
    text = TextTokenizer(byte_level_tokenizer(320, extra), chat_template=template)
    info = ModelInfo(name="m", folder=Path(), family="f", vocab_size=text.num_ids, max_context=1000)
    return PromptBuilder(info, TextPrompts(text), parser)


def conversation(
    *messages: dict[str, str], continues: bool = False, use: ToolUse | None = None
) -> Conversation:
    raw = [msgspec.Raw(json.dumps(each).encode()) for each in messages]
    found: tuple[ChatMessage, ...] = read_messages(raw) if raw else ()
    return Conversation(
        messages=found,
        template_kwargs={},
        continue_final_message=continues,
        tool_use=use or ToolUse(),
    )


def prompt(made: PromptBuilder, text: str) -> Prompt:
    return Prompt(made.text.encode(text, allow_special=True))


def test_a_form_of_text_leaves_room_for_calls_where_they_may_come() -> None:
    made = builder()
    asked = prompt(made, "<|im_start|>assistant\n")
    params = SamplingParams(max_tokens=5, grammar=Grammar("json_object"))

    def grammar(use: ToolUse, *, forms_text: bool) -> Grammar | None:
        whole = dataclasses.replace(conversation(use=use), forms_text=forms_text)
        return AnswerReading(made, whole).fit(asked, params).grammar

    alongside = grammar(ToolUse((NOW,)), forms_text=True)
    assert alongside is not None
    assert alongside.kind == "answer"
    # A grammar of the whole answer (`structured_outputs`) has no room, nor where no call may come any more.
    assert grammar(ToolUse((NOW,)), forms_text=False) == params.grammar
    assert grammar(ToolUse((NOW,), max_calls=0), forms_text=True) == params.grammar
    assert grammar(ToolUse(), forms_text=True) == params.grammar


def test_what_goes_in_front_of_a_text_can_be_left_out() -> None:
    made = builder()
    made.text.start_ids = (7,)
    ids = made.text.encode("Hi", allow_special=True)
    assert made.completion("Hi").token_ids == (7, *ids)
    assert made.completion("Hi", with_start=False).token_ids == ids
    assert made.completion([1, 2]).token_ids == (1, 2)


def test_what_is_cut_of_a_prompt_is_the_beginning_of_its_own_text() -> None:
    made = builder()
    made.text.start_ids = (7,)
    ids = made.text.encode("Hello there", allow_special=True)
    assert len(ids) > 3
    assert made.completion("Hello there", most=3).token_ids == (7, *ids[-2:])
    assert made.completion("Hello there", most=3, with_start=False).token_ids == ids[-3:]
    assert made.completion("Hello there", most=1).token_ids == (7, *ids[-1:])
    assert made.completion("Hello there", most=100).token_ids == (7, *ids)
    assert made.completion(ids, most=2).token_ids == ids[-2:]


def test_forced_calls_are_a_grammar_and_others_are_not() -> None:
    made = builder()
    asked = prompt(made, "<|im_start|>assistant\n")
    must = conversation(use=ToolUse((NOW,), is_forced=True))
    forced = AnswerReading(made, must).fit(asked, PARAMS)
    assert forced.grammar is not None
    assert "<tool_call>" not in forced.grammar.source, "it is the token"
    cut = AnswerReading(made, must).machine()
    assert cut is not None
    assert read_whole(cut, '<tool_call>\n{"na') == []
    free = AnswerReading(made, conversation(use=ToolUse((NOW,))))
    assert free.fit(asked, PARAMS) == PARAMS
    withheld = free.machine()
    assert withheld is not None
    assert as_tuples(read_whole(withheld, '<tool_call>\n{"na')) == [("text", '<tool_call>\n{"na')]


def test_a_grammar_waits_for_thoughts_that_the_prompt_has_begun() -> None:
    made = builder()
    params = SamplingParams(max_tokens=5, grammar=Grammar("json_object"))
    reading = AnswerReading(made, conversation())
    assert reading.fit(prompt(made, "<|im_start|>assistant\n"), params) == params
    after = reading.fit(prompt(made, "<|im_start|>assistant\n<think>\n"), params)
    assert after.grammar is not None
    assert after.grammar.kind == "answer"


def test_special_tokens_that_are_marks_show() -> None:
    made = builder("[TOOL_CALLS] {{ messages[0].content }}", extra=("[TOOL_CALLS]",))
    token_id = made.text.id_of("[TOOL_CALLS]")
    with_tools = AnswerReading(made, conversation(use=ToolUse((NOW,)))).fit(prompt(made, "a"), PARAMS)
    assert with_tools.shown == ((token_id, "[TOOL_CALLS]"),)
    assert AnswerReading(made, conversation()).fit(prompt(made, "a"), PARAMS) == PARAMS


@pytest.mark.parametrize(("template", "parser"), [("{{ messages }}", "auto"), (QWEN3, "none")])
def test_a_model_that_writes_no_calls_says_so(template: str, parser: ToolParser) -> None:
    with pytest.raises(BadRequestError) as caught:
        AnswerReading(builder(template, parser), conversation(use=ToolUse((NOW,))))
    assert caught.value.param == "tools"
    assert "--tool-parser hermes | qwen3_coder | llama" in caught.value.message


def test_a_named_format_is_taken() -> None:
    made = builder("{{ messages }}", "mistral")
    assert made.answers.tools is not None
    assert made.answers.tools.name == "mistral"


def test_without_tools_and_thoughts_there_is_nothing_to_read() -> None:
    assert AnswerReading(builder("{{ messages }}"), conversation()).machine() is None


@pytest.mark.parametrize(
    ("begun", "answer", "thought"),
    [
        ("", "<think>Hm.</think>Yes.", "<think>Hm.</think>"),
        ("", "Yes.", ""),
        ("<think>\n", "Hm.</think>Yes.", "Hm.</think>"),
        ("<think>\n", "Hm, cut", "Hm, cut"),
        ("<think>\n\n</think>\n\n", "Yes.", ""),
    ],
)
def test_tokens_of_what_is_thought(begun: str, answer: str, thought: str) -> None:
    made = builder()
    reading = AnswerReading(made, conversation())
    reading.fit(prompt(made, f"<|im_start|>assistant\n{begun}"), PARAMS)
    ids = made.text.encode(answer, allow_special=True)
    assert reading.num_reasoning_tokens(ids) == len(made.text.encode(thought, allow_special=True))


@pytest.mark.parametrize("is_token", [True, False])
def test_a_call_that_ends_the_thoughts_is_none(is_token: bool) -> None:
    mark = "<|tool_calls_section_begin|>"
    made = builder(f"</think>{mark}", "kimi_k2", extra=(mark,) if is_token else ())
    reading = AnswerReading(made, conversation(use=ToolUse((NOW,))))
    reading.fit(prompt(made, "<think>"), PARAMS)
    thought, call = (made.text.encode(text, allow_special=True) for text in ("Hm. ", f"{mark}f"))
    assert reading.num_reasoning_tokens((*thought, *call)) == len(thought)


def test_tokens_on_the_channel_of_analysis() -> None:
    made = builder(HARMONY, extra=HARMONY_TOKENS)
    reading = AnswerReading(made, conversation())
    reading.fit(prompt(made, "a"), PARAMS)
    thought = "<|channel|>analysis<|message|>Hm.<|end|>"
    ids = made.text.encode(f"{thought}<|start|>assistant<|channel|>final<|message|>Yes.", allow_special=True)
    assert reading.num_reasoning_tokens(ids) == len(made.text.encode(thought, allow_special=True))
    cut = made.text.encode("<|channel|>analysis<|message|>Hm", allow_special=True)
    assert reading.num_reasoning_tokens(cut) == len(cut)


def test_an_answer_that_goes_on_says_how_it_began() -> None:
    made = builder()
    begun = conversation({"role": "assistant", "content": "<think>So"}, continues=True)
    assert made.thinking(prompt(made, "So"), begun) == "open"
    assert made.thinking(prompt(made, "So"), conversation()) == "may"


def test_all_special_tokens_show_where_they_are_asked_for() -> None:
    """Those of a format are read by it, and the others stand in the text."""
    made = builder("[TOOL_CALLS] {{ messages[0].content }}", extra=("[TOOL_CALLS]", "<box>"))
    reading = AnswerReading(made, conversation(use=ToolUse((NOW,))), shows_special=True)
    shown = reading.fit(prompt(made, "a"), PARAMS).shown
    assert (
        {"[TOOL_CALLS]", "<box>"}
        <= {name for _, name in shown}
        == {name for _, name in made.text.special_tokens}
    )
    machine = reading.machine()
    assert machine is not None
    assert as_tuples(read_whole(machine, "<box>So:[TOOL_CALLS]now[ARGS]{}<box>")) == [
        ("text", "<box>So:"),
        ("call", "now", "{}"),
        ("text", "<box>"),
    ]


def test_a_budget_of_thoughts_is_told_in_tokens() -> None:
    def budget(made: PromptBuilder, asked: str) -> ReasoningBudget | None:
        whole = dataclasses.replace(conversation(), thinking_budget=3)
        return AnswerReading(made, whole).fit(prompt(made, asked), PARAMS).reasoning_budget

    tags = builder()
    (start,), (end,) = (tags.text.encode(name, allow_special=True) for name in ("<think>", "</think>"))
    assert budget(tags, "a") == ReasoningBudget(3, (start,), (end,))
    assert budget(tags, "a<think>\n") == ReasoningBudget(3, (start,), (end,), is_open=True)
    channels = builder(HARMONY, extra=HARMONY_TOKENS)
    found = budget(channels, "a")
    assert found is not None
    assert channels.text.decode_all(found.start) == "<|channel|>analysis"
    assert [channels.text.decode_all([each]) for each in found.ends] == [
        "<|end|>",
        "<|start|>",
        "<|channel|>",
    ]
    assert budget(builder("{{ messages[0].content }}"), "a") is None
    without = builder("[THINK]{{ messages[0].content }}[/THINK]")
    with pytest.raises(BadRequestError, match="ends its thoughts") as caught:
        budget(without, "a")
    assert caught.value.param == "thinking_token_budget"
    given = dataclasses.replace(conversation(), thinking_budget=3, is_budget_optional=True)
    assert AnswerReading(without, given).fit(prompt(without, "a"), PARAMS).reasoning_budget is None
