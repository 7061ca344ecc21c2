"""LangChain's standard suite of chat models, over three routes of one server.

Nothing is changed in the suite but where its picture comes from.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import httpx
import pytest
from langchain_anthropic import ChatAnthropic
from langchain_core.language_models import BaseChatModel
from langchain_openai import ChatOpenAI
from langchain_tests.integration_tests import ChatModelIntegrationTests

URL = os.environ["PEERS_URL"]
MODEL = os.environ["PEERS_MODEL"]
OTHER_MODEL = "tiny-qwen3-vl"

EXPECTED: dict[str, str] = {}
"""Tests that fail, by class and name, and why. One that passes after all is a failure."""
PICTURE = Path(__file__).resolve().parents[2] / "examples" / "data" / "shapes.png"


@pytest.fixture(autouse=True)
def expect(request: pytest.FixtureRequest) -> None:
    """Mark what is expected to fail; the suite forbids to override its tests."""
    name = f"{request.node.cls.__name__}::{request.node.name}"
    if reason := EXPECTED.get(name):
        request.applymarker(pytest.mark.xfail(reason=reason, strict=True))


@pytest.fixture(autouse=True)
def local_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    """The picture that the suite fetches from the internet is one of ours."""

    def get(url: str, **_: object) -> httpx.Response:
        assert url.startswith("https://raw.githubusercontent.com/langchain-ai/"), url
        return httpx.Response(200, content=PICTURE.read_bytes())

    monkeypatch.setattr(httpx, "get", get)


class _Model(ChatModelIntegrationTests):
    """What the three routes have in common."""

    @property
    def supports_image_inputs(self) -> bool:
        return True

    @property
    def supports_image_urls(self) -> bool:
        return False  # the suite's address is on the internet

    @property
    def supports_image_tool_message(self) -> bool:
        return True

    @property
    def supports_anthropic_inputs(self) -> bool:
        return True

    @property
    def supports_model_override(self) -> bool:
        return True

    @property
    def model_override_value(self) -> str:
        return OTHER_MODEL

    @property
    def has_tool_choice(self) -> bool:
        return True

    @property
    def supports_json_mode(self) -> bool:
        return True


class TestChat(_Model):
    """`/v1/chat/completions`, by langchain-openai."""

    @property
    def chat_model_class(self) -> type[BaseChatModel]:
        found: type[BaseChatModel] = ChatOpenAI
        return found

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {
            "model": MODEL,
            "base_url": f"{URL}/v1",
            "api_key": "none",
            "temperature": 0,
            "max_tokens": 200,
            "stream_usage": True,
        }


class TestResponses(_Model):
    """`/v1/responses`, by langchain-openai."""

    @property
    def chat_model_class(self) -> type[BaseChatModel]:
        found: type[BaseChatModel] = ChatOpenAI
        return found

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {
            "model": MODEL,
            "base_url": f"{URL}/v1",
            "api_key": "none",
            "temperature": 0,
            "max_tokens": 200,
            "use_responses_api": True,
        }


class TestMessages(_Model):
    """`/v1/messages`, by langchain-anthropic."""

    @property
    def chat_model_class(self) -> type[BaseChatModel]:
        found: type[BaseChatModel] = ChatAnthropic
        return found

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {"model": MODEL, "base_url": URL, "api_key": "none", "temperature": 0, "max_tokens": 200}

    @property
    def supports_json_mode(self) -> bool:
        return False  # Anthropic's interface has none
