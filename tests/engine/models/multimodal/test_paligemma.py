"""Prompts of PaliGemma are those of its processor, which has them of one question."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from sensorium.engine.models.registry import open_model
from sensorium.engine.models.source import ModelSource
from sensorium.media.vision.pixel_rule import open_rule
from sensorium.protocols.chat.content import ChatMessage, MediaPart, Part, TextPart
from sensorium.protocols.chat.request import Conversation
from sensorium.protocols.errors import BadRequestError
from support.media_families import BY_NAME
from support.media_family import make_media_folder
from support.text_folder import END
from support.vision_files import picture
from transformers import PaliGemmaProcessor, PreTrainedTokenizerFast
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

NUM_ROWS = 16


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint without a chat template, as published ones are."""
    path = make_media_folder(tmp_path_factory.mktemp("paligemma"), BY_NAME["paligemma"])
    (path / "chat_template.jinja").unlink()
    config = json.loads((path / "tokenizer_config.json").read_text())
    del config["chat_template"]
    (path / "tokenizer_config.json").write_text(json.dumps(config | {"bos_token": END}))
    return path


@pytest.fixture(scope="module")
def source(folder: Path) -> ModelSource:
    return open_model(folder, device="cpu", dtype="float32")


def conversation(*messages: tuple[str, Sequence[Part] | str]) -> Conversation:
    return Conversation(
        messages=tuple(
            ChatMessage(
                role=role,
                content=content if isinstance(content, str) else tuple(content),
                extra={},
                param="messages",
            )
            for role, content in messages
        ),
        template_kwargs={},
    )


IMAGE = MediaPart("image", b"", param="messages")


@pytest.mark.parametrize("num_pictures", [1, 2])
def test_a_question_becomes_the_prompt_of_the_processor(
    folder: Path, source: ModelSource, num_pictures: int
) -> None:
    pixels = SiglipImageProcessorPil(size={"height": 32, "width": 32})
    pixels.image_seq_length = NUM_ROWS
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    tokenizer.image_token = "<image>"
    tokenizer.image_token_id = tokenizer.convert_tokens_to_ids("<image>")
    pictures = [picture(40, 56, seed) for seed in range(num_pictures)]
    expected = PaliGemmaProcessor(pixels, tokenizer)(
        images=[pictures], text=["<image>" * num_pictures + "answer en What is it?"]
    )
    prompts = source.side.prompts
    assert prompts is not None
    assert prompts.media.pixels is not None
    rule = open_rule(prompts.media.pixels, folder)
    asked: list[Part] = [*[IMAGE] * num_pictures, TextPart("answer en What is it?")]
    for parts in (asked, asked[::-1]):  # pictures are in front, wherever they are in the message
        prompt = prompts.chat(
            conversation(("user", parts)), [rule.prepare_picture(each) for each in pictures]
        )
        assert list(prompt.token_ids) == expected["input_ids"][0]
        assert [span.start for span in prompt.spans] == [NUM_ROWS * index for index in range(num_pictures)]


def test_a_second_message_is_refused(source: ModelSource) -> None:
    prompts = source.side.prompts
    assert prompts is not None
    with pytest.raises(BadRequestError, match="give one user message, and no system prompt"):
        prompts.chat(conversation(("system", "Be brief."), ("user", "What is it?")), [])


def test_a_context_is_no_longer_than_a_window_of_its_layers(source: ModelSource, tmp_path: Path) -> None:
    """All of a prompt is seen in those layers, too, which would let go of its beginning."""
    family = BY_NAME["paligemma"]
    text = {**family.text, "model_type": "gemma2", "sliding_window": 48}
    windowed = make_media_folder(tmp_path, replace(family, text=text))
    assert source.info.max_context == 1024
    assert open_model(windowed, device="cpu", dtype="float32").info.max_context == 48
