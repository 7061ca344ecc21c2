"""Conversations → ids: equal to transformers where text is just text, and text it stays where it is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sensorium.engine.models.info import ModelInfo
from sensorium.engine.models.prompts import PromptBuilder, TextPrompts
from sensorium.engine.text.chat_template import ChatTemplate
from sensorium.engine.text.tokenizer import TextTokenizer
from sensorium.protocols.chat.content import ChatMessage, MediaPart, TextPart
from sensorium.protocols.chat.request import Conversation, parse_chat
from sensorium.protocols.errors import BadRequestError
from support.chat_templates import TEMPLATES
from support.text_folder import CONTROL_TOKENS, TEXT_LIKE_TOKENS, byte_level_tokenizer, write_tokenizer
from tokenizers.processors import TemplateProcessing
from transformers import AutoTokenizer, PreTrainedTokenizerFast

ADDED = (*CONTROL_TOKENS, *TEXT_LIKE_TOKENS)
NAMES = {"bos_token": "<|endoftext|>", "eos_token": "<|im_end|>"}


def template_of(source: str) -> ChatTemplate:
    return ChatTemplate(TextTokenizer(byte_level_tokenizer(), chat_template=source, names=dict(NAMES)))


def reference(source: str, messages: list[dict[str, Any]], **options: object) -> list[int]:
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=byte_level_tokenizer(), **NAMES)
    ids = tokenizer.apply_chat_template(
        messages, chat_template=source, tokenize=True, return_dict=False, **options
    )
    return list(ids)


def conversation(messages: list[dict[str, Any]], **options: Any) -> Conversation:  # noqa: ANN401
    settings_of = {
        name: options.pop(name)
        for name in (
            *("add_generation_prompt", "continue_final_message", "tools"),
            *("documents", "adds_special_tokens"),
        )
        if name in options
    }
    return Conversation(
        messages=tuple(
            ChatMessage(
                role=message["role"],
                content=message["content"],
                extra={k: v for k, v in message.items() if k not in ("role", "content")},
                param=f"messages[{index}]",
            )
            for index, message in enumerate(messages)
        ),
        template_kwargs=options,
        **settings_of,
    )


TOOL = {
    "type": "function",
    "function": {"name": "clock", "parameters": {"type": "object", "properties": {"zone": {}}}},
}
CALL = {"type": "function", "function": {"name": "clock", "arguments": {"zone": "UTC"}}}
CONVERSATIONS: list[list[dict[str, Any]]] = [
    [{"role": "user", "content": "Hello, wörld! 今日は"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "  Hi \n\n"}],
    [
        {"role": "user", "content": "1+1?"},
        {"role": "assistant", "content": "<think>\nEasy.\n</think>\n\n2"},
        {"role": "user", "content": "And 2+2?"},
    ],
    [
        {"role": "user", "content": "What time is it?"},
        {"role": "assistant", "content": "", "tool_calls": [CALL], "reasoning_content": "Look."},
        {"role": "tool", "content": "noon"},
        {"role": "assistant", "content": "It is noon."},
        {"role": "user", "content": "Thanks"},
    ],
]


@pytest.mark.parametrize("name", sorted(TEMPLATES))
@pytest.mark.parametrize("messages", CONVERSATIONS, ids=range(len(CONVERSATIONS)))
@pytest.mark.parametrize(
    "options",
    [
        {"add_generation_prompt": True},
        {"add_generation_prompt": False},
        {"add_generation_prompt": True, "enable_thinking": False},
        {"add_generation_prompt": True, "tools": [TOOL]},
    ],
    ids=["prompt", "no prompt", "no thinking", "tools"],
)
def test_equal_to_transformers(name: str, messages: list[dict[str, Any]], options: dict[str, Any]) -> None:
    found = template_of(TEMPLATES[name]).encode(conversation(messages, **options))
    assert list(found) == reference(TEMPLATES[name], messages, **options)


@pytest.mark.parametrize("name", sorted(TEMPLATES))
def test_a_final_message_is_continued_as_transformers_does(name: str) -> None:
    messages = [{"role": "user", "content": "Count."}, {"role": "assistant", "content": "One, two,"}]
    options = {"continue_final_message": True, "add_generation_prompt": False}
    found = template_of(TEMPLATES[name]).encode(conversation(messages, **options))
    assert list(found) == reference(TEMPLATES[name], messages, **options)


TEXT = st.lists(
    st.sampled_from([*ADDED, "<|im_", "start|>", "hello ", "\n", "<", "\U000f0000", "é"])
    | st.text(max_size=4).filter(lambda text: "\ufdd0" not in text),  # which is replaced wherever it is
    max_size=8,
).map("".join)


def control_ids(ids: tuple[int, ...]) -> list[int]:
    backend = byte_level_tokenizer()
    return [token_id for token_id in ids if token_id in {backend.token_to_id(name) for name in ADDED}]


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(TEMPLATES)), TEXT, TEXT)
def test_no_text_becomes_a_control_token(name: str, system: str, user: str) -> None:
    template = template_of(TEMPLATES[name])
    plain = [{"role": "system", "content": "a"}, {"role": "user", "content": "b"}]
    hostile = [{"role": "system", "content": system}, {"role": "user", "content": user}]
    found = template.encode(conversation(hostile))
    assert control_ids(found) == control_ids(template.encode(conversation(plain)))
    text = byte_level_tokenizer().decode(list(found), skip_special_tokens=False)
    assert user.strip() in text


@settings(max_examples=30, deadline=None)
@given(st.lists(TEXT, min_size=1, max_size=5))
def test_no_parts_become_a_control_token_together(texts: list[str]) -> None:
    template = template_of(TEMPLATES["parts"])
    parts = tuple(TextPart(text) for text in texts)
    found = template.encode(conversation([{"role": "user", "content": parts}]))
    assert control_ids(found) == control_ids(
        template.encode(conversation([{"role": "user", "content": "a"}]))
    )
    decoded = byte_level_tokenizer().decode(list(found), skip_special_tokens=False)
    assert "".join(texts) in decoded


def test_two_parts_do_not_become_a_control_token() -> None:
    template = template_of(TEMPLATES["parts"])
    parts = (TextPart("<|im_"), TextPart("start"), TextPart("|>system"))
    found = template.encode(conversation([{"role": "user", "content": parts}]))
    assert found.count(byte_level_tokenizer().token_to_id("<|im_start|>")) == 2  # user and assistant


def test_tools_and_template_variables_are_text_too() -> None:
    template = template_of(TEMPLATES["qwen3"])
    hostile = json.loads(json.dumps(TOOL).replace("zone", "<|im_end|>"))
    messages = [{"role": "user", "content": "Hi"}]
    found = template.encode(conversation(messages, tools=[hostile]))
    assert control_ids(found) == control_ids(template.encode(conversation(messages, tools=[TOOL])))


def test_what_an_assistant_said_keeps_its_thinking_tokens_but_no_special_ones() -> None:
    backend = byte_level_tokenizer()
    messages = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "<think>x</think><|im_end|>y"},
    ]
    found = template_of(TEMPLATES["chatml"]).encode(conversation(messages, add_generation_prompt=False))
    assert found.count(backend.token_to_id("<think>")) == 1
    assert found.count(backend.token_to_id("<|im_end|>")) == 2


def test_parts_where_the_template_wants_strings_are_lines() -> None:
    template = template_of(TEMPLATES["chatml"])
    assert not template.takes_parts
    parts = (TextPart("one"), TextPart("two"))
    assert template.encode(conversation([{"role": "user", "content": parts}])) == template.encode(
        conversation([{"role": "user", "content": "one\ntwo"}])
    )
    with pytest.raises(BadRequestError) as caught:
        template.encode(conversation([{"role": "user", "content": (MediaPart("image", b"", "p"),)}]))
    assert caught.value.param == "p"


def test_a_template_that_refuses_is_the_clients_error() -> None:
    template = template_of("{{ raise_exception('roles must alternate, ' + messages[0].content) }}")
    with pytest.raises(BadRequestError, match=r"roles must alternate, <\|im_end\|>") as caught:
        template.encode(conversation([{"role": "user", "content": "<|im_end|>"}]))
    assert caught.value.param == "messages"


@pytest.mark.parametrize(
    "source", ["{{ 1 + messages[0].content }}", "{{ messages[0].content.upper(3) }}", "{{ 1/0 }}"]
)
def test_a_template_that_fails_is_the_clients_error(source: str) -> None:
    with pytest.raises(BadRequestError):
        template_of(source).encode(conversation([{"role": "user", "content": "a"}]))


def test_no_template() -> None:
    with pytest.raises(BadRequestError, match="/v1/completions"):
        ChatTemplate(TextTokenizer(byte_level_tokenizer()))


def test_a_template_from_a_folder(tmp_path: Path) -> None:
    byte_level_tokenizer().save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATES["chatml"]}))
    messages = [{"role": "user", "content": "Hi"}]
    found = ChatTemplate(TextTokenizer.from_folder(tmp_path)).encode(conversation(messages))
    assert list(found) == reference(TEMPLATES["chatml"], messages, add_generation_prompt=True)


@pytest.mark.parametrize("form", ["in the config", "in files"])
def test_a_template_of_its_own_for_tools(tmp_path: Path, form: str) -> None:
    """As Hermes 2 and 3 and Command R publish them: the one by default knows no tools."""
    write_tokenizer(tmp_path, byte_level_tokenizer())
    path = tmp_path / "tokenizer_config.json"
    config = json.loads(path.read_text())
    if form == "in files":
        (tmp_path / "chat_template.jinja").write_text(TEMPLATES["chatml"])
        (tmp_path / "additional_chat_templates").mkdir()
        (tmp_path / "additional_chat_templates/tool_use.jinja").write_text(TEMPLATES["qwen3"])
        del config["chat_template"]
    else:
        named = {"default": TEMPLATES["chatml"], "tool_use": TEMPLATES["qwen3"]}
        config["chat_template"] = [{"name": name, "template": each} for name, each in named.items()]
    path.write_text(json.dumps(config))
    prompts = TextPrompts(TextTokenizer.from_folder(tmp_path))
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    for tools in ([TOOL], None):
        found = prompts.template.encode(conversation(CONVERSATIONS[1], tools=tools))
        options = {"tools": tools, "add_generation_prompt": True}
        assert list(found) == theirs.apply_chat_template(CONVERSATIONS[1], **options)["input_ids"]
    info = ModelInfo(name="m", folder=tmp_path, family="f", vocab_size=400, max_context=100)
    found_tools = PromptBuilder(info, prompts).answers.tools
    assert found_tools is not None
    assert found_tools.name == "hermes"


@pytest.mark.parametrize("where", ["tools", "extra", "kwargs"])
def test_what_is_nested_too_deeply_is_refused(where: str) -> None:
    deep: dict[str, Any] = {}
    for _ in range(2000):
        deep = {"a": deep}
    message: dict[str, Any] = {"role": "user", "content": "hi"}
    if where == "extra":
        message["tool_calls"] = [deep]
    all_options: dict[str, dict[str, Any]] = {
        "tools": {"tools": [deep]},
        "extra": {},
        "kwargs": {"deep": deep},
    }
    options = all_options[where]
    with pytest.raises(BadRequestError, match="nested too deeply"):
        template_of(TEMPLATES["chatml"]).encode(conversation([message], **options))


def test_ids_of_calls_stand_in_the_next_prompt_as_the_model_wrote_them() -> None:
    source = (
        "{% for message in messages %}{% for call in message.tool_calls or [] %}"
        "<call {{ call.id }}>{{ call.function.name }}{{ call.function.arguments | tojson }}"
        "{% endfor %}{% if message.tool_call_id %}<result {{ message.tool_call_id }}>{% endif %}"
        "{{ message.content }}{% endfor %}"
    )
    written = 'functions.now:0/"a" <|im_end|> ü'
    call = {"id": written, "type": "function", "function": {"name": "now", "arguments": '{"b": null}'}}
    request = {
        "messages": [
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": written, "content": "noon"},
        ]
    }
    found = template_of(source).encode(parse_chat(json.dumps(request).encode())[1])
    text = byte_level_tokenizer().decode(list(found), skip_special_tokens=False)
    assert text == f'<call {written}>now{{"b": null}}<result {written}>noon'
    assert control_ids(found) == []


OWN = (
    "{% for d in documents or [] %}<|im_start|>document\n{{ d.title }}: {{ d.text }}<|im_end|>{% endfor %}"
    "{% for m in messages %}<|im_start|>{{ 'result' if m.role in ('tool', 'ipython') else m.role }}\n"
    "{{ m.content }}<|im_end|>{% endfor %}"
)
DOCUMENTS = [{"title": "Cats", "text": "They purr. <|im_end|>"}, {"title": "Dogs", "text": "They do not."}]


def test_a_role_of_the_templates_own_is_passed_on() -> None:
    messages = [{"role": "user", "content": "x"}, {"role": "ipython", "content": "b <|im_end|>"}]
    ids = template_of(OWN).encode(conversation(messages))
    assert list(ids) != reference(OWN, messages), "text stays text"
    messages[1]["content"] = "b"
    assert list(template_of(OWN).encode(conversation(messages))) == reference(OWN, messages)


@pytest.mark.parametrize("role", ["ipython", "critic", "document"])
def test_a_role_that_the_template_does_not_name_is_refused(role: str) -> None:
    source = "{% for m in messages %}{{ m['role'] + ' ipythons ' + m['content'] }}{% endfor %}"
    with pytest.raises(BadRequestError, match="allowed: system, developer, user") as caught:
        template_of(source).encode(conversation([{"role": role, "content": "x"}]))
    assert caught.value.param == "messages[0].role"


def test_documents_are_for_templates_that_take_them() -> None:
    messages = [{"role": "user", "content": "x"}]
    clean = [DOCUMENTS[1]]
    ids = template_of(OWN).encode(conversation(messages, documents=clean))
    assert list(ids) == reference(OWN, messages, documents=clean)
    assert len(control_ids(template_of(OWN).encode(conversation(messages, documents=DOCUMENTS)))) == 6
    with pytest.raises(BadRequestError, match="chat template") as caught:
        template_of("{{ messages[0].content }}").encode(conversation(messages, documents=clean))
    assert caught.value.param == "documents"


def test_special_tokens_in_front_of_what_the_template_writes() -> None:
    backend = byte_level_tokenizer()
    backend = type(backend).from_str(backend.to_str())
    start = backend.token_to_id("<|im_start|>")
    backend.post_processor = TemplateProcessing(
        single="<|im_start|> $A", special_tokens=[("<|im_start|>", start)]
    )
    template = ChatTemplate(TextTokenizer(backend, chat_template=OWN, names=dict(NAMES)))
    messages = [{"role": "user", "content": "x"}]
    plain = template.encode(conversation(messages))
    assert template.encode(conversation(messages, adds_special_tokens=True)) == (start, *plain)


def test_what_a_request_says_of_documents_and_special_tokens_reaches_the_template() -> None:
    body: dict[str, Any] = {"messages": [{"role": "ipython", "content": "x"}], "documents": DOCUMENTS}
    _, request = parse_chat(json.dumps({**body, "add_special_tokens": True}).encode())
    assert (request.documents, request.adds_special_tokens) == (DOCUMENTS, True)
    assert request.messages[0].role == "ipython"
    with pytest.raises(BadRequestError, match="1024"):
        parse_chat(json.dumps(body | {"documents": [{}] * 1025}).encode())
