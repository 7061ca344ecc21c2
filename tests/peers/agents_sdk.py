"""OpenAI's agents package: one agent with a tool, over chat and over responses, whole and streamed.

The model is forced to call once, and to answer in a form afterwards.
"""

from __future__ import annotations

import os
from typing import Literal

import pytest
from agents import (
    Agent,
    Model,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI
from pydantic import BaseModel, ConfigDict

set_tracing_disabled(True)
URL = os.environ["PEERS_URL"]
MODEL = os.environ["PEERS_MODEL"]
KINDS = {"chat": OpenAIChatCompletionsModel, "responses": OpenAIResponsesModel}


class Light(BaseModel):
    """A form without free text: a small model fills it in few tokens."""

    model_config = ConfigDict(extra="forbid")

    room: Literal["kitchen", "garage"]
    is_on: bool


def model(kind: str) -> Model:
    """The server's model over one of the two routes."""
    made: Model = KINDS[kind](MODEL, AsyncOpenAI(base_url=f"{URL}/v1", api_key="none"))
    return made


def agent(kind: str, calls: list[str]) -> Agent[None]:
    """An agent that has to call its one tool first."""

    @function_tool
    def weather(city: Literal["Paris", "Rome"]) -> str:
        """The weather of a city."""
        calls.append(city)
        return "Sunny."

    return Agent(
        name="reporter",
        instructions="Be brief.",
        model=model(kind),
        tools=[weather],
        output_type=Light,  # an answer that ends by itself; the package refuses responses that are cut
        model_settings=ModelSettings(tool_choice="required", max_tokens=120, temperature=0),
    )


@pytest.mark.parametrize("kind", KINDS)
async def test_a_tool_is_called_and_its_result_is_answered(kind: str) -> None:
    calls: list[str] = []
    result = await Runner.run(agent(kind, calls), "What is the weather in Paris?", max_turns=3)
    assert len(calls) == 1
    assert [item.type for item in result.new_items][:2] == ["tool_call_item", "tool_call_output_item"]
    assert isinstance(result.final_output, Light)


@pytest.mark.parametrize("kind", KINDS)
async def test_the_same_streamed(kind: str) -> None:
    calls: list[str] = []
    result = Runner.run_streamed(agent(kind, calls), "What is the weather in Paris?", max_turns=3)
    seen = [event.type async for event in result.stream_events()]
    assert len(calls) == 1
    assert {"raw_response_event", "run_item_stream_event"} <= set(seen)
    assert isinstance(result.final_output, Light)


@pytest.mark.parametrize("kind", KINDS)
async def test_an_answer_has_the_form_that_was_given(kind: str) -> None:
    arguments: Agent[None] = Agent(
        name="lamp",
        model=model(kind),
        output_type=Light,
        model_settings=ModelSettings(max_tokens=120, temperature=0),
    )
    result = await Runner.run(arguments, "Is the light on?")
    assert isinstance(result.final_output, Light)
