"""Prompts with media: opened by whoever opens them, counted while they are held, errors named by part."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import trio
from PIL import Image
from sensorium.actors.text.prompts import Frames, MediaLimits, Prompter, Samples, Source, ThreadOpener
from sensorium.engine.models.prompts import PromptBuilder
from sensorium.engine.models.registry import open_model
from sensorium.media.decode import DecodedAudio, DecodeLimits
from sensorium.media.images import ImageLimits
from sensorium.media.vision_config import PixelConfig
from sensorium.protocols.chat import Conversation
from sensorium.protocols.chat_content import ChatMessage, MediaKind, MediaPart, Part, TextPart
from sensorium.protocols.errors import (
    BadRequestError,
    InternalError,
    MediaError,
    OverloadedError,
    TooLargeError,
)
from sensorium.protocols.messages import EncoderItem
from support.asr_folder import make_asr_folder
from support.vl_folder import make_vl_folder

RATE = 16_000


@pytest.fixture(scope="module")
def vision(tmp_path_factory: pytest.TempPathFactory) -> PromptBuilder:
    return builder(make_vl_folder(tmp_path_factory.mktemp("vision")))


@pytest.fixture(scope="module")
def audio(tmp_path_factory: pytest.TempPathFactory) -> PromptBuilder:
    return builder(make_asr_folder(tmp_path_factory.mktemp("audio")))


def builder(folder: Path) -> PromptBuilder:
    source = open_model(folder, device="cpu", dtype="float32")
    assert source.prompts is not None
    return PromptBuilder(source.info, source.prompts)


def conversation(*parts: Part) -> Conversation:
    message = ChatMessage(role="user", content=parts, extra={}, param="messages[0]")
    return Conversation(messages=(message,), template_kwargs={})


def part(kind: MediaKind, data: bytes = b"", index: int = 0) -> MediaPart:
    return MediaPart(kind, data, f"messages[0].content[{index}]")


def pixels(seed: int = 0) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    return np.random.default_rng(seed).integers(0, 256, (40, 48, 3), dtype=np.uint8)


def png(seed: int = 0) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels(seed)).save(buffer, "PNG")
    return buffer.getvalue()


async def test_spans_lie_where_the_placeholders_are(vision: PromptBuilder) -> None:
    prompter = Prompter(vision, ThreadOpener())
    prompt = await prompter.chat(
        conversation(
            part("image", png(1)), TextPart("and"), part("image", png(2), 2), part("image", png(1), 3)
        )
    )
    image_id = vision.text.id_of("<|image_pad|>")
    places = [index for index, token_id in enumerate(prompt.token_ids) if token_id == image_id]
    spanned = [span.start + index for span in prompt.spans for index in range(span.num_tokens)]
    assert spanned == places
    assert len(prompt.spans) == 3
    assert prompt.spans[0].content_hash == prompt.spans[2].content_hash != prompt.spans[1].content_hash
    assert [item.content_hash for item in prompt.items] == [span.content_hash for span in prompt.spans[:2]]


async def test_files_and_what_is_in_them_are_the_same(vision: PromptBuilder) -> None:
    prompter = Prompter(vision, ThreadOpener())
    from_file = await prompter.chat(conversation(part("image", png(1))))
    sources: dict[str, Source] = {"messages[0].content[0]": pixels(1)}
    assert await prompter.chat(conversation(part("image")), sources) == from_file


async def test_frames(vision: PromptBuilder) -> None:
    prompter = Prompter(vision, ThreadOpener())
    sources: dict[str, Source] = {
        "messages[0].content[0]": Frames([pixels(index) for index in range(4)], [0.0, 0.5, 1.0, 1.5])
    }
    prompt = await prompter.chat(conversation(part("video")), sources)
    assert len(prompt.spans) == 2
    text = vision.text.backend.decode(list(prompt.token_ids), skip_special_tokens=False)
    assert "<0.2 seconds>" in text or "<0.3 seconds>" in text


async def test_audio_windows(audio: PromptBuilder) -> None:
    prompter = Prompter(audio, ThreadOpener())
    samples = np.random.default_rng(0).normal(0, 0.1, 9 * RATE).astype(np.float32)
    sources: dict[str, Source] = {"messages[0].content[0]": Samples(samples)}
    prompt = await prompter.chat(conversation(part("audio")), sources)
    assert [span.num_tokens for span in prompt.spans] == [104, 13]
    assert [item.num_tokens for item in prompt.items] == [104, 13]


@pytest.mark.parametrize(
    ("parts", "error", "param"),
    [
        ((part("audio", b"x"),), BadRequestError, "messages[0].content[0]"),
        ((TextPart("a"), part("image", b"x", 1)), MediaError, "messages[0].content[1]"),
        ((part("video", b"x"),), MediaError, "messages[0].content[0]"),
        (tuple(part("image", png(), index) for index in range(3)), TooLargeError, "messages[0].content[2]"),
    ],
    ids=["kind", "image", "video", "number"],
)
async def test_errors_name_the_part(
    vision: PromptBuilder, parts: tuple[Part, ...], error: type[Exception], param: str
) -> None:
    prompter = Prompter(vision, ThreadOpener(), limits=MediaLimits(max_items=2))
    with pytest.raises(error) as caught:
        await prompter.chat(conversation(*parts))
    assert getattr(caught.value, "param", None) == param
    assert param in str(caught.value) or "limit is 2" in str(caught.value)


async def test_limits_of_a_request(vision: PromptBuilder, audio: PromptBuilder) -> None:
    small = Prompter(vision, ThreadOpener(), limits=MediaLimits(max_request_bytes=1000))
    with pytest.raises(TooLargeError, match="limit is"):
        await small.chat(conversation(part("image", png())))
    short = Prompter(audio, ThreadOpener(), limits=MediaLimits(max_audio_s=1.0))
    sources: dict[str, Source] = {"messages[0].content[0]": Samples(np.ones(2 * RATE, np.float32))}
    with pytest.raises(TooLargeError, match="limit is 1 s"):
        await short.chat(conversation(part("audio")), sources)


async def test_what_is_held_is_counted(vision: PromptBuilder) -> None:
    prompt = await Prompter(vision, ThreadOpener()).chat(conversation(part("image", png(1))))
    num_bytes = len(prompt.items[0].features.data)
    prompter = Prompter(vision, ThreadOpener(), limits=MediaLimits(max_held_bytes=2 * num_bytes - 1))
    with prompter.holding(prompt):
        assert prompter.held_bytes == num_bytes > 0
        with pytest.raises(OverloadedError), prompter.holding(prompt):
            pass
        with prompter.holding(await prompter.completion("Hi")):
            pass
    assert prompter.held_bytes == 0


class StuckOpener(ThreadOpener):
    """Never done with an image; fails on audio in a way of its own."""

    def __init__(self) -> None:
        self.num_cancelled = 0

    async def prepare_image(
        self, data: bytes, config: PixelConfig, limits: ImageLimits | None = None
    ) -> EncoderItem:
        try:
            await trio.sleep_forever()
        finally:
            self.num_cancelled += 1
        raise AssertionError

    async def decode(self, data: bytes, *, limits: DecodeLimits | None = None) -> DecodedAudio:
        raise InternalError("ours")


async def test_cancelling_stops_the_opening_of_files(
    vision: PromptBuilder, autojump_clock: trio.testing.MockClock
) -> None:
    opener = StuckOpener()
    prompter = Prompter(vision, opener)
    with trio.move_on_after(1) as scope:
        await prompter.chat(conversation(part("image", b"x"), part("image", b"y", 1)))
    assert scope.cancelled_caught
    assert opener.num_cancelled == 2


async def test_a_part_that_cannot_be_opened_stops_the_others(vision: PromptBuilder) -> None:
    opener = StuckOpener()
    with pytest.raises(MediaError):
        await Prompter(vision, opener).chat(conversation(part("image", b"x"), part("video", b"y", 1)))
    assert opener.num_cancelled == 1


async def test_our_own_faults_keep_their_words(audio: PromptBuilder) -> None:
    with pytest.raises(InternalError, match=r"^ours$"):
        await Prompter(audio, StuckOpener()).chat(conversation(part("audio", b"x")))


async def test_raw_prompts(vision: PromptBuilder) -> None:
    prompter = Prompter(vision, ThreadOpener())
    short = await prompter.completion("Hello <|im_end|>")
    assert short.token_ids[-1] == vision.text.id_of("<|im_end|>")
    assert (await prompter.completion(short.token_ids)) == short
    for bad in ("", "word " * 2000, (10**7,)):
        with pytest.raises(BadRequestError):
            await prompter.completion(bad)
