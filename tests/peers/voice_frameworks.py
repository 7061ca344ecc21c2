"""LiveKit's plugin and Pipecat's services: transcripts, streamed answers, calls of tools, of one server."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from interop import livekit_stt, pipecat_stt
from livekit.agents import ChatContext, ChatMessage, function_tool, llm
from livekit.agents.utils import http_context
from livekit.plugins import openai as livekit_openai
from openai import AsyncOpenAI
from peers.script import GREETING
from pipecat.adapters.llm.schemas.function_schema import FunctionSchema
from pipecat.adapters.llm.schemas.tools_schema import ToolsSchema
from pipecat.frames.frames import (
    EndFrame,
    Frame,
    LLMContextFrame,
    LLMFullResponseEndFrame,
    LLMTextFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.runner import PipelineRunner
from pipecat.pipeline.task import PipelineTask
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.services.llm_service import FunctionCallParams
from pipecat.services.openai.llm import OpenAILLMService
from pipecat.services.openai.responses.llm import (
    OpenAIResponsesHttpLLMService,
    OpenAIResponsesLLMService,
)

URL = os.environ["PEERS_URL"]
MODEL = os.environ["PEERS_MODEL"]
SPEECH_MODEL = os.environ["PEERS_SPEECH_MODEL"]
SPEECH = str(Path(__file__).resolve().parents[2] / "examples" / "data" / "kitchen_lights.wav")
SPOKEN = {"kitchen", "lights"}


def words(texts: list[str]) -> set[str]:
    """The words of transcripts."""
    return set(re.findall(r"\w+", " ".join(texts).lower()))


async def test_livekit_transcribes() -> None:
    assert words(await livekit_stt.main(SPEECH, f"{URL}/v1", SPEECH_MODEL)) >= SPOKEN


async def test_pipecat_transcribes() -> None:
    realtime = f"ws{URL.removeprefix('http')}/v1/realtime"
    assert words(await pipecat_stt.main(SPEECH, realtime, SPEECH_MODEL)) >= SPOKEN


LIVEKIT: dict[str, Callable[[], llm.LLM]] = {
    "chat": lambda: livekit_openai.LLM(model=MODEL, base_url=f"{URL}/v1", api_key="none"),
    "responses over a socket": lambda: livekit_openai.responses.LLM(
        model=MODEL, base_url=f"{URL}/v1/responses", api_key="none"
    ),
    "responses": lambda: livekit_openai.responses.LLM(
        model=MODEL, client=AsyncOpenAI(base_url=f"{URL}/v1", api_key="none"), use_websocket=False
    ),
}


@function_tool
async def add_numbers(first: int, second: int) -> str:
    """The sum of two numbers."""
    return str(first + second)


async def livekit_answer(kind: str, context: ChatContext) -> tuple[str, list[llm.FunctionToolCall], int]:
    """Text, calls and the number of answered tokens."""
    text, calls, tokens = "", [], 0
    async with (
        http_context.open(),  # where the plugins take their connections from outside of LiveKit's workers
        LIVEKIT[kind]().chat(chat_ctx=context, tools=[add_numbers]) as stream,
    ):
        async for chunk in stream:
            if chunk.delta is not None:
                text += chunk.delta.content or ""
                calls += chunk.delta.tool_calls
            if chunk.usage is not None:
                tokens = chunk.usage.completion_tokens
    return text, calls, tokens


@pytest.mark.parametrize("kind", LIVEKIT)
async def test_livekit_is_answered(kind: str) -> None:
    context = ChatContext([ChatMessage(role="system", content=["Be kind."])])
    context.add_message(role="user", content="hi")
    text, calls, tokens = await livekit_answer(kind, context)
    assert (text, calls) == (GREETING, [])
    assert tokens > 5


@pytest.mark.parametrize("kind", LIVEKIT)
async def test_livekit_calls_and_reports(kind: str) -> None:
    context = ChatContext()
    context.add_message(role="user", content="Call add_numbers of 3 and 4.")
    _, (call,), _ = await livekit_answer(kind, context)
    assert (call.name, call.arguments) == ("add_numbers", '{"first": 3, "second": 4}')
    context.insert(llm.FunctionCall(call_id=call.call_id, name=call.name, arguments=call.arguments))
    context.insert(llm.FunctionCallOutput(call_id=call.call_id, name=call.name, output="7", is_error=False))
    text, calls, _ = await livekit_answer(kind, context)
    assert text.endswith("7")
    assert not calls


class Collector(FrameProcessor):
    """Text of answers; `ended` for each of them."""

    def __init__(self) -> None:
        super().__init__()
        self.text = ""
        self.ended: asyncio.Queue[str] = asyncio.Queue()

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        """Look at a frame and hand it on."""
        await super().process_frame(frame, direction)
        match frame:
            case LLMTextFrame():
                self.text += frame.text
            case LLMFullResponseEndFrame():
                await self.ended.put(self.text)
                self.text = ""
        await self.push_frame(frame, direction)


SERVICES: dict[str, Callable[[], Any]] = {
    "chat": lambda: OpenAILLMService(
        api_key="none", base_url=f"{URL}/v1", settings=OpenAILLMService.Settings(model=MODEL)
    ),
    "responses": lambda: OpenAIResponsesHttpLLMService(
        api_key="none",
        base_url=f"{URL}/v1",
        settings=OpenAIResponsesHttpLLMService.Settings(model=MODEL),
    ),
    "responses over a socket": lambda: OpenAIResponsesLLMService(
        api_key="none",
        base_url=f"{URL}/v1",
        ws_url=f"ws{URL.removeprefix('http')}/v1/responses",
        settings=OpenAIResponsesLLMService.Settings(model=MODEL),
    ),
}
TOOLS = ToolsSchema(
    standard_tools=[
        FunctionSchema(
            name="add_numbers",
            description="The sum of two numbers.",
            properties={"first": {"type": "integer"}, "second": {"type": "integer"}},
            required=["first", "second"],
        )
    ]
)


async def pipecat_answer(kind: str, question: str) -> tuple[str, list[dict[str, Any]]]:
    """The text of one answer, and the arguments of calls."""
    service, collector = SERVICES[kind](), Collector()
    called: list[dict[str, Any]] = []
    was_called = asyncio.Event()

    async def handle(params: FunctionCallParams) -> None:
        called.append(dict(params.arguments))
        was_called.set()
        await params.result_callback("7")

    service.register_function("add_numbers", handle)
    task = PipelineTask(Pipeline([service, collector]), enable_rtvi=False)
    running = asyncio.create_task(PipelineRunner(handle_sigint=False).run(task))
    context = LLMContext(messages=[{"role": "user", "content": question}], tools=TOOLS)
    await task.queue_frame(LLMContextFrame(context=context))
    text = await asyncio.wait_for(collector.ended.get(), 60)
    if "add_numbers" in question:
        await asyncio.wait_for(was_called.wait(), 60)
    await task.queue_frame(EndFrame())
    await running
    return text, called


@pytest.mark.parametrize("kind", SERVICES)
async def test_pipecat_is_answered(kind: str) -> None:
    assert await pipecat_answer(kind, "hi") == (GREETING, [])


@pytest.mark.parametrize("kind", SERVICES)
async def test_pipecat_calls(kind: str) -> None:
    _, called = await pipecat_answer(kind, "Call add_numbers of 3 and 4.")
    assert called == [{"first": 3, "second": 4}]
