"""How a model's conversations are written, where the operator says it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jinja2
import pytest
from sensorium.actors.config.server import EngineConfig
from sensorium.actors.errors import ConfigError
from sensorium.actors.model_loading import load_model
from sensorium.engine.models.prompts import PromptBuilder
from sensorium.protocols.chat.content import ChatMessage, TextPart
from sensorium.protocols.chat.request import Conversation
from sensorium.protocols.errors import ModelLoadError
from support.text_folder import make_qwen3_folder
from transformers.utils import chat_template_utils

TEMPLATE = "{{ mood | default('calm') }}:{% for message in messages %}{{ message.content }}{% endfor %}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_qwen3_folder(tmp_path_factory.mktemp("text"))


def prompts(folder: Path, **options: str) -> PromptBuilder:
    config = EngineConfig(device="cpu", dtype="float32", kv_memory="1MiB", **options)  # type: ignore[arg-type]
    found = load_model("m", str(folder), config).prompts
    assert found is not None
    return found


def written(
    builder: PromptBuilder,
    tools: list[dict[str, Any]] | None = None,
    **kwargs: Any,  # noqa: ANN401 (as a request's)
) -> str:
    message = ChatMessage(role="user", content=(TextPart("hi"),), extra={}, param="messages[0]")
    prompt = builder.chat(Conversation(messages=(message,), template_kwargs=kwargs, tools=tools))
    return builder.text.decode_all(prompt.token_ids)


def test_a_template_and_what_it_is_told_are_the_operators(folder: Path, tmp_path: Path) -> None:
    template = tmp_path / "chat.jinja"
    template.write_text(TEMPLATE, encoding="utf-8-sig")  # as some editors do
    for tools in (None, [{"type": "function"}]):
        assert written(prompts(folder, chat_template=str(template)), tools) == "calm:hi"
    shown = prompts(folder, chat_template=str(template), default_chat_template_kwargs='{"mood": "glad"}')
    assert written(shown) == "glad:hi"
    assert written(shown, mood="sad") == "sad:hi"
    assert written(prompts(folder)) not in ("calm:hi", "glad:hi")


def test_the_first_chat_does_not_compile_the_template(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That takes 10 ms and more, of the loop's where the chat is short."""
    num_compiled = [0]

    def compiled(*given: Any, **more: Any) -> Any:  # noqa: ANN401 (jinja's)
        num_compiled[0] += 1
        return compile_template(*given, **more)

    compile_template = jinja2.Environment.compile
    monkeypatch.setattr(jinja2.Environment, "compile", compiled)
    chat_template_utils._compile_jinja_template.cache_clear()
    builder = prompts(folder)
    assert num_compiled == [1]
    written(builder)
    assert num_compiled == [1]


def test_a_template_that_is_none_ends_the_start(folder: Path, tmp_path: Path) -> None:
    template = tmp_path / "broken.jinja"
    with pytest.raises(ConfigError, match=r"broken\.jinja': no such file"):
        EngineConfig(chat_template=str(template))
    template.write_text("{% for message in messages %}")
    with pytest.raises(ModelLoadError, match=r"broken\.jinja cannot be read"):
        prompts(folder, chat_template=str(template))


@pytest.mark.parametrize(
    ("value", "said"),
    [("{", "truncated"), ("[1]", "a JSON object"), ('{"messages": []}', "may not set 'messages'")],
)
def test_what_a_template_cannot_be_told_is_refused(value: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        EngineConfig(default_chat_template_kwargs=value)
