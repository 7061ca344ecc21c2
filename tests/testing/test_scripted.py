"""Scripted models behind all that users reach them by: OpenAI's client, ours, `LocalEngine`, the engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import openai
import pytest
import trio
import trio.testing
from sensorium import Client, SamplingOptions
from sensorium.protocols.engine.messages import Request, RequestId, Sample, SamplingParams
from sensorium.protocols.errors import InternalError, ModelLoadError
from sensorium.testing import (
    AsyncScriptedLocalEngine,
    InlineWorker,
    ScriptedLocalEngine,
    Server,
    make_config,
    scripted_model,
    scripted_server,
)
from support.fake_engine import run_whole

DATA = Path(__file__).resolve().parents[2] / "examples" / "data"
STEP_S = 0.25


def answer(prompt: str) -> str:
    """Of the demo's kind: by what is in the prompt."""
    if "weather" in prompt:
        return '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>'
    if "fail" in prompt:
        raise LookupError("no such line")
    return "The capital of France is Paris." if "France" in prompt else "I do not know."


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with scripted_server(answer) as server:
        yield server


def ask(server: Server, question: str) -> str | None:
    client = openai.OpenAI(base_url=server.api, api_key="none", max_retries=0)
    messages: list[openai.types.chat.ChatCompletionMessageParam] = [{"role": "user", "content": question}]
    return client.chat.completions.create(model="tiny-qwen3-vl", messages=messages).choices[0].message.content


@pytest.mark.slow
def test_the_answer_depends_on_the_prompt(server: Server) -> None:
    assert ask(server, "What is the capital of France?") == "The capital of France is Paris."
    assert ask(server, "And of Atlantis?") == "I do not know."


@pytest.mark.slow
def test_streams_pictures_and_stop_strings_work_as_with_a_model(server: Server) -> None:
    client = openai.OpenAI(base_url=server.api, api_key="none")
    stream = client.completions.create(model="tiny-qwen3-vl", prompt="France", max_tokens=50, stream=True)
    pieces = [chunk.choices[0].text for chunk in stream]
    assert "".join(pieces) == "The capital of France is Paris."
    assert len(pieces) > 3
    cut = client.completions.create(model="tiny-qwen3-vl", prompt="France", max_tokens=50, stop=" is")
    assert (cut.choices[0].text, cut.choices[0].finish_reason) == ("The capital of France", "stop")
    with Client(server.url) as ours:
        about = ours.chat("Is this in France?", images=[DATA / "shapes.png"])
    assert about.text == "The capital of France is Paris."


@pytest.mark.slow
def test_a_script_calls_tools_as_the_model_writes_them(server: Server) -> None:
    client = openai.OpenAI(base_url=server.api, api_key="none")
    made = client.chat.completions.create(
        model="tiny-qwen3-vl",
        messages=[{"role": "user", "content": "How is the weather?"}],
        tools=[{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}],
    )
    calls = made.choices[0].message.tool_calls or []
    assert len(calls) == 1
    call = calls[0]
    assert call.type == "function"
    assert (call.function.name, call.function.arguments) == ("weather", '{"city": "Paris"}')


@pytest.mark.slow
def test_a_script_that_raises_is_an_error_and_the_server_goes_on(server: Server) -> None:
    with pytest.raises(openai.InternalServerError, match="the script raised LookupError"):
        ask(server, "fail")
    assert ask(server, "And of Atlantis?") == "I do not know."


@pytest.mark.slow
def test_speech_is_transcribed_by_a_script_that_writes_as_the_model_does() -> None:
    with scripted_server("language English<asr_text>Turn on the light.", model="tiny-qwen3-asr") as server:
        client = openai.OpenAI(base_url=server.api, api_key="none")
        with (DATA / "kitchen_lights.wav").open("rb") as file:
            made = client.audio.transcriptions.create(model="tiny-qwen3-asr", file=file)
    assert made.text == "Turn on the light."


@pytest.mark.slow
def test_a_local_engine() -> None:
    with ScriptedLocalEngine(answer) as engine:
        questions = ["What is the capital of France?", "And of Atlantis?"]
        texts = [each.text for each in engine.generate(questions)]
        assert texts == ["The capital of France is Paris.", "I do not know."]
        cut = engine.chat("France", SamplingOptions(max_tokens=2, logprobs=0))
        assert (len(cut.token_ids), cut.finish_reason, cut.logprobs) == (2, "length", (0.0, 0.0))
        with pytest.raises(InternalError, match="LookupError"):
            engine.chat("fail")


@pytest.mark.slow
async def test_an_async_local_engine() -> None:
    async with AsyncScriptedLocalEngine("Paris.") as engine:
        pieces = [delta.text async for delta in engine.stream("The capital of France")]
        assert "".join(pieces) == "Paris."


async def test_an_engine_on_a_virtual_clock(autojump_clock: trio.testing.MockClock) -> None:
    """Each step takes its time: of the prompt, and of every token behind it."""
    model = scripted_model("Paris.", make_worker=lambda: InlineWorker(STEP_S))
    assert model.prompts is not None
    num_tokens = len(model.prompts.text.encode("Paris.", allow_special=True))
    async with trio.open_nursery() as nursery:
        await nursery.start(model.engine.run)
        start = trio.current_time()
        request = Request(RequestId("r"), (1, 2, 3), Sample(SamplingParams(max_tokens=20)))
        made = await run_whole(model.engine, request)
        assert (made.text, made.finish_reason) == ("Paris.", "stop")
        assert trio.current_time() - start >= num_tokens * STEP_S
        nursery.cancel_scope.cancel()


def test_a_name_and_a_model_that_cannot_chat() -> None:
    assert scripted_model("", name="mine").info.name == "mine"
    with pytest.raises(ModelLoadError, match="a script needs a model that chats"):
        scripted_model("", model="tiny-whisper")


@pytest.mark.slow
def test_a_server_under_another_name() -> None:
    config = make_config("tiny-qwen3-vl")
    with scripted_server("Yes.", model="tiny-qwen3-vl", config=config) as server:
        assert ask(server, "Is it?") == "Yes."
