"""What people's chat frameworks do on this server: `python chat_frameworks.py [URL [MODEL [PACKAGE…]]]`.

    pip install openai anthropic langchain-openai langchain-anthropic litellm mcp instructor \
        llama-index-llms-openai-like 'pydantic-ai-slim[openai,anthropic]'
    sensorium serve MODEL          # one that calls tools

One line a feature: `ok`, `FAILED` and why, or `absent` where the package is not installed (they do not all go
into one environment). Calls are forced, so that a small model makes them, too. Exits with 1 if any failed.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

URL = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000"
MODEL = sys.argv[2] if len(sys.argv) > 2 else "smollm2"
QUESTION = "What is the weather in Paris?"
LIMIT = 120
"""Tokens an answer may have."""

os.environ |= {"OPENAI_API_KEY": "none", "ANTHROPIC_API_KEY": "none"}


class City(BaseModel):
    """What a weather tool asks for."""

    city: Literal["Paris", "Rome"]


class Light(BaseModel):
    """The state of a light, and nothing beside: a small model that may add fields adds them."""

    model_config = ConfigDict(extra="forbid")

    room: Literal["kitchen", "garage"]
    is_on: bool


def get_weather(city: Literal["Paris", "Rome"]) -> str:
    """The weather of a city."""
    return f"It is sunny in {city}."


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": ["Paris", "Rome"]}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOL = {"name": "get_weather", "description": "The weather of a city.", "parameters": SCHEMA}
TOOLS: list[Any] = [{"type": "function", "function": TOOL}]
HELLO: list[Any] = [{"role": "user", "content": QUESTION}]


def openai_chat() -> None:
    client = _openai()
    options: dict[str, Any] = {"model": MODEL, "messages": HELLO, "max_tokens": LIMIT}
    assert client.chat.completions.create(**options).choices[0].message.content
    stream = client.chat.completions.create(**options, stream=True, stream_options={"include_usage": True})
    assert [chunk.usage for chunk in stream][-1].total_tokens > 0
    assert MODEL in [model.id for model in client.models.list()]


def openai_tools() -> None:
    client = _openai()
    options: dict[str, Any] = {"model": MODEL, "max_tokens": LIMIT, "parallel_tool_calls": False}
    answer = client.chat.completions.create(**options, messages=HELLO, tools=TOOLS, tool_choice="required")
    message = answer.choices[0].message
    result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": get_weather("Paris")}
    again = [*HELLO, message, result]
    assert client.chat.completions.create(**options, messages=again, tools=TOOLS).choices[0].finish_reason
    with client.chat.completions.stream(
        **options, messages=HELLO, tools=TOOLS, tool_choice="required"
    ) as stream:
        for _ in stream:
            pass
        assert stream.get_final_completion().choices[0].message.tool_calls[0].function.name == "get_weather"


def openai_parse() -> None:
    answer = _openai().chat.completions.parse(
        model=MODEL, messages=HELLO, response_format=Light, max_tokens=LIMIT
    )
    assert isinstance(answer.choices[0].message.parsed, Light)


def openai_responses() -> None:
    client = _openai()
    first = client.responses.create(model=MODEL, input=QUESTION, max_output_tokens=LIMIT)
    more = client.responses.create(
        model=MODEL, input="Why?", previous_response_id=first.id, max_output_tokens=LIMIT
    )
    assert more.output_text
    tool = {"type": "function", **TOOL, "strict": True}
    with client.responses.stream(
        model=MODEL, input=QUESTION, tools=[tool], tool_choice="required", max_output_tokens=LIMIT
    ) as stream:
        kinds = {event.type for event in stream}
    assert "response.function_call_arguments.done" in kinds
    parsed = client.responses.parse(model=MODEL, input=QUESTION, text_format=Light, max_output_tokens=LIMIT)
    assert isinstance(parsed.output_parsed, Light)
    assert client.responses.input_tokens.count(model=MODEL, input=QUESTION).input_tokens


def anthropic_messages() -> None:
    import anthropic

    client: Any = anthropic.Anthropic(base_url=URL, api_key="none", max_retries=0)
    options: dict[str, Any] = {"model": MODEL, "max_tokens": LIMIT}
    assert client.messages.create(**options, messages=HELLO, system="Be brief.").content[0].text
    with client.messages.stream(**options, messages=HELLO) as stream:
        assert "".join(stream.text_stream)
        assert stream.get_final_message().usage.output_tokens
    assert client.messages.count_tokens(model=MODEL, messages=HELLO).input_tokens
    parsed = client.messages.parse(**options, messages=HELLO, output_format=Light)
    assert isinstance(parsed.parsed_output, Light)
    tool = {"name": "get_weather", "description": "The weather.", "input_schema": SCHEMA}
    forced = {"type": "any", "disable_parallel_tool_use": True}
    with client.messages.stream(**options, messages=HELLO, tools=[tool], tool_choice=forced) as stream:
        (call,) = [each for each in stream.get_final_message().content if each.type == "tool_use"]
    result = {"type": "tool_result", "tool_use_id": call.id, "content": get_weather("Paris")}
    call_message = {"role": "assistant", "content": [call.model_dump(mode="json", exclude_none=True)]}
    again = [*HELLO, call_message, {"role": "user", "content": [result]}]
    assert client.messages.create(**options, messages=again, tools=[tool]).stop_reason


def langchain_openai() -> None:
    from langchain_openai import ChatOpenAI

    _langchain(ChatOpenAI(model=MODEL, base_url=f"{URL}/v1", max_tokens=LIMIT, max_retries=0))


def langchain_anthropic() -> None:
    from langchain_anthropic import ChatAnthropic

    _langchain(ChatAnthropic(model=MODEL, base_url=URL, max_tokens=LIMIT, max_retries=0))


def _langchain(model: Any) -> None:  # noqa: ANN401 (a package that may be absent)
    assert model.invoke(QUESTION).content
    assert len(list(model.stream(QUESTION))) > 1
    assert model.bind_tools([get_weather], tool_choice="any").invoke(QUESTION).tool_calls
    pieces = list(model.bind_tools([get_weather], tool_choice="any").stream(QUESTION))
    whole = pieces[0]
    for piece in pieces[1:]:
        whole += piece
    assert whole.tool_calls[0]["args"]["city"] in ("Paris", "Rome")
    assert isinstance(model.with_structured_output(Light).invoke(QUESTION), Light)


def litellm_completion() -> None:
    import litellm

    for provider, base in (("openai", f"{URL}/v1"), ("anthropic", URL)):
        options: dict[str, Any] = {"model": f"{provider}/{MODEL}", "api_base": base, "api_key": "none"}
        options |= {"messages": HELLO, "max_tokens": LIMIT}
        assert litellm.completion(**options).choices[0].message.content
        assert len(list(litellm.completion(**options, stream=True))) > 1
        called = litellm.completion(**options, tools=TOOLS, tool_choice="required")
        assert called.choices[0].message.tool_calls[0].function.name == "get_weather"


def llama_index() -> None:
    from llama_index.core.llms import ChatMessage
    from llama_index.core.tools import FunctionTool
    from llama_index.llms.openai_like import OpenAILike

    options: dict[str, Any] = {"model": MODEL, "api_base": f"{URL}/v1", "api_key": "none"}
    model: Any = OpenAILike(
        **options, max_tokens=LIMIT, is_chat_model=True, is_function_calling_model=True, max_retries=0
    )
    assert model.complete(QUESTION).text
    assert len(list(model.stream_chat([ChatMessage(role="user", content=QUESTION)]))) > 1
    tool = FunctionTool.from_defaults(get_weather, fn_schema=City)
    answer = model.chat_with_tools([tool], user_msg=QUESTION, tool_required=True)
    assert model.get_tool_calls_from_response(answer)[0].tool_name == "get_weather"
    text: Any = OpenAILike(**options, max_tokens=LIMIT)
    assert text.complete("Once upon a time").text


def instructor_modes() -> None:
    import instructor

    for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA):
        client = instructor.from_openai(_openai(), mode=mode)
        options: dict[str, Any] = {"model": MODEL, "messages": HELLO, "max_tokens": LIMIT, "temperature": 0}
        assert isinstance(client.chat.completions.create(response_model=Light, **options), Light)


def pydantic_ai_agents() -> None:
    from pydantic_ai import Agent, NativeOutput
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.anthropic import AnthropicProvider
    from pydantic_ai.providers.openai import OpenAIProvider

    provider: Any = OpenAIProvider(base_url=f"{URL}/v1", api_key="none")
    models: list[Any] = [
        OpenAIChatModel(MODEL, provider=provider),
        OpenAIResponsesModel(MODEL, provider=provider),
        AnthropicModel(MODEL, provider=AnthropicProvider(base_url=URL, api_key="none")),
    ]
    for model in models:
        settings: Any = {"max_tokens": LIMIT}
        assert Agent(model, model_settings=settings).run_sync(QUESTION).output
        agent: Any = Agent(model, model_settings=settings, output_type=Light)
        assert isinstance(agent.run_sync(QUESTION).output, Light)
    for model in models[:2]:  # of Anthropic's models it knows by name which have a form
        native: Any = Agent(model, model_settings=settings, output_type=NativeOutput(Light))
        assert isinstance(native.run_sync(QUESTION).output, Light)


def _openai() -> Any:  # noqa: ANN401 (a package that may be absent)
    from openai import OpenAI

    return OpenAI(base_url=f"{URL}/v1", api_key="none", max_retries=0)


FEATURES: tuple[tuple[str, Callable[[], None]], ...] = (
    ("openai", openai_chat),
    ("openai", openai_tools),
    ("openai", openai_parse),
    ("openai", openai_responses),
    ("anthropic", anthropic_messages),
    ("langchain_openai", langchain_openai),
    ("langchain_anthropic", langchain_anthropic),
    ("litellm", litellm_completion),
    ("llama_index", llama_index),
    ("instructor", instructor_modes),
    ("pydantic_ai", pydantic_ai_agents),
)


def main() -> int:
    """The exit code."""
    failed = 0
    for package, feature in FEATURES:
        if sys.argv[3:] and package not in sys.argv[3:]:
            continue
        if importlib.util.find_spec(package) is None:
            print(f"{feature.__name__:24} absent")
            continue
        try:
            feature()
        except Exception as error:  # any: it is what the script is for
            failed += 1
            reason = f"{type(error).__name__}: {error}".replace("\n", " ")
            print(f"{feature.__name__:24} FAILED  {reason[:300]}", flush=True)
        else:
            print(f"{feature.__name__:24} ok", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
