"""Prompts with media: opened by whoever opens them, counted while they are held, errors named by part."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar, cast

import numpy as np
import pytest
import trio
from PIL import Image
from sensorium.actors.media_decoding.cache import MediaCache
from sensorium.actors.media_decoding.memory_budget import MediaBudget
from sensorium.actors.text.media_opener import ThreadOpener
from sensorium.actors.text.media_opening import Frames, MediaLimits, Samples, Source, media_bytes
from sensorium.actors.text.prompts import Prompter
from sensorium.engine.models.prompts import Prompt, PromptBuilder, media_parts
from sensorium.engine.models.registry import open_model
from sensorium.media.audio.decode import DecodedAudio, DecodeLimits
from sensorium.protocols.chat.content import ChatMessage, MediaPart, Part, TextPart
from sensorium.protocols.chat.request import Conversation
from sensorium.protocols.engine.messages import MediaItems, MediaKind
from sensorium.protocols.errors import (
    BadRequestError,
    InternalError,
    MediaError,
    OverloadedError,
    TooLargeError,
)
from support.asr_folder import make_asr_folder
from support.vl_folder import make_vl_folder

T = TypeVar("T")

RATE = 16_000


@pytest.fixture(scope="module")
def vision(tmp_path_factory: pytest.TempPathFactory) -> PromptBuilder:
    return builder(make_vl_folder(tmp_path_factory.mktemp("vision")))


@pytest.fixture(scope="module")
def audio(tmp_path_factory: pytest.TempPathFactory) -> PromptBuilder:
    return builder(make_asr_folder(tmp_path_factory.mktemp("audio")))


def builder(folder: Path) -> PromptBuilder:
    source = open_model(folder, device="cpu", dtype="float32")
    assert source.side.prompts is not None
    return PromptBuilder(source.info, source.side.prompts)


def conversation(*parts: Part) -> Conversation:
    message = ChatMessage(role="user", content=parts, extra={}, param="messages[0]")
    return Conversation(messages=(message,), template_kwargs={})


def part(kind: MediaKind, data: bytes = b"", index: int = 0) -> MediaPart:
    return MediaPart(kind, data, f"messages[0].content[{index}]")


async def chat(
    prompter: Prompter, conversation: Conversation, sources: dict[str, Source] | None = None
) -> Prompt:
    async with prompter.chat(conversation, sources) as prompt:
        return prompt


async def test_media_are_looked_for_once_before_they_are_fetched_and_once_behind(
    vision: PromptBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of thousands of messages that is what a prompt takes of the loop."""
    num_looks = [0]

    def counted(conversation: Conversation) -> tuple[MediaPart, ...]:
        num_looks[0] += 1
        return media_parts(conversation)

    for module in ("prompts", "media_urls"):
        monkeypatch.setattr(f"sensorium.actors.text.{module}.media_parts", counted, raising=False)
    prompter = Prompter(vision, ThreadOpener())
    async with prompter.fetched(conversation(TextPart("hi"))) as whole, prompter.read(whole) as prompt:
        assert prompt.token_ids
    assert num_looks == [2]
    await chat(prompter, conversation(TextPart("hi")))
    assert num_looks == [4]


def pixels(seed: int = 0) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    return np.random.default_rng(seed).integers(0, 256, (40, 48, 3), dtype=np.uint8)


def png(seed: int = 0) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels(seed)).save(buffer, "PNG")
    return buffer.getvalue()


async def test_spans_lie_where_the_placeholders_are(vision: PromptBuilder) -> None:
    prompter = Prompter(vision, ThreadOpener())
    prompt = await chat(
        prompter,
        conversation(
            part("image", png(1)), TextPart("and"), part("image", png(2), 2), part("image", png(1), 3)
        ),
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
    from_file = await chat(prompter, conversation(part("image", png(1))))
    sources: dict[str, Source] = {"messages[0].content[0]": pixels(1)}
    assert await chat(prompter, conversation(part("image")), sources) == from_file


async def test_frames(vision: PromptBuilder) -> None:
    prompter = Prompter(vision, ThreadOpener())
    sources: dict[str, Source] = {
        "messages[0].content[0]": Frames([pixels(index) for index in range(4)], [0.0, 0.5, 1.0, 1.5])
    }
    prompt = await chat(prompter, conversation(part("video")), sources)
    assert len(prompt.spans) == 2
    text = vision.text.backend.decode(list(prompt.token_ids), skip_special_tokens=False)
    assert "<0.2 seconds>" in text or "<0.3 seconds>" in text


async def test_audio_windows(audio: PromptBuilder) -> None:
    prompter = Prompter(audio, ThreadOpener())
    samples = np.random.default_rng(0).normal(0, 0.1, 9 * RATE).astype(np.float32)
    sources: dict[str, Source] = {"messages[0].content[0]": Samples(samples)}
    prompt = await chat(prompter, conversation(part("audio")), sources)
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
        await chat(prompter, conversation(*parts))
    assert getattr(caught.value, "param", None) == param
    assert param in str(caught.value) or "limit is 2" in str(caught.value)


async def test_limits_of_a_request(vision: PromptBuilder, audio: PromptBuilder) -> None:
    small = Prompter(vision, ThreadOpener(), budget=MediaBudget(max_bytes=1000))
    with pytest.raises(TooLargeError, match="limit is 500"):
        await chat(small, conversation(part("image", png())))
    short = Prompter(audio, ThreadOpener(), limits=MediaLimits(max_clip_s=1.0))
    sources: dict[str, Source] = {"messages[0].content[0]": Samples(np.ones(2 * RATE, np.float32))}
    with pytest.raises(TooLargeError, match="limit is 1 s") as caught:
        await chat(short, conversation(part("audio")), sources)
    assert caught.value.param == "messages[0].content[0]"


class WatchingOpener(ThreadOpener):
    """Notes how much of a budget is reserved when something is decoded."""

    def __init__(self, budget: MediaBudget) -> None:
        self.budget = budget
        self.seen: list[int] = []

    async def prepare(self, data: bytes, prepare: Callable[[bytes], MediaItems], what: str) -> MediaItems:
        self.seen.append(self.budget.num_bytes)
        return await super().prepare(data, prepare, what)


async def test_memory_is_reserved_before_anything_is_decoded(vision: PromptBuilder) -> None:
    budget = MediaBudget(max_bytes=10**7, wait_s=0.01)
    opener = WatchingOpener(budget)
    prompter = Prompter(vision, opener, budget=budget)
    async with prompter.chat(conversation(part("image", png(1)), part("image", png(2), 1))) as prompt:
        num_bytes = sum(len(item.features.data) for item in prompt.items)
        assert opener.seen == [num_bytes, num_bytes], "both at once, and exactly"
        assert budget.num_bytes == num_bytes
        tight = MediaBudget(max_bytes=4 * num_bytes, wait_s=0.01)
        async with tight.reserved(2 * num_bytes), tight.reserved(2 * num_bytes):
            late = WatchingOpener(tight)
            with pytest.raises(OverloadedError):
                await chat(Prompter(vision, late, budget=tight), conversation(part("image", png(1))))
            assert late.seen == []
        async with prompter.chat(conversation(TextPart("Hi"))):
            assert budget.num_bytes == num_bytes
    assert budget.num_bytes == 0


async def test_a_short_clip_may_take_the_window_that_its_length_does_not_tell(audio: PromptBuilder) -> None:
    """Beside a longer one of a caller that was let in with nearly all that others leave."""
    asked = conversation(part("audio"), part("audio", index=1))
    sources: dict[str, Source] = {
        f"messages[0].content[{index}]": Samples(np.full(num_samples, 0.1, np.float32))
        for index, num_samples in enumerate((10 * RATE, RATE // 10))
    }
    budget = MediaBudget(max_bytes=10**7, wait_s=0.01)
    budget.change(10**7 - 1_300_000, "others")
    with pytest.raises(BadRequestError, match="transcribes one input_audio part"):  # both were opened
        async with Prompter(audio, ThreadOpener(), budget=budget).chat(asked, sources, caller="one"):
            pass


async def test_a_large_image_is_made_smaller(vision: PromptBuilder) -> None:
    buffer = io.BytesIO()
    Image.fromarray(np.zeros((300, 400, 3), np.uint8)).save(buffer, "PNG")
    sizes = []
    for most in (None, 640):
        limits = MediaLimits(max_image_pixels=most)
        found = await chat(
            Prompter(vision, ThreadOpener(), limits=limits), conversation(part("image", buffer.getvalue()))
        )
        sizes.append(found.items[0].features.shape[0])
    assert sizes[1] < sizes[0]


@pytest.mark.parametrize("field", ["tools", "chat_template_kwargs", "messages"])
async def test_a_conversation_that_cannot_fit_is_refused_unread(vision: PromptBuilder, field: str) -> None:
    """Whatever the template sees counts, and nothing is tokenized to find out."""
    text = "x" * (64 * vision.info.max_context)
    message = ChatMessage(
        role="assistant",
        content="Hi",
        extra={"reasoning_content": text} if field == "messages" else {},
        param="messages[0]",
    )
    found = Conversation(
        messages=(message,),
        tools=[{"description": text}] if field == "tools" else None,
        template_kwargs={"note": [text]} if field == "chat_template_kwargs" else {},
    )
    with pytest.raises(BadRequestError, match="characters") as caught:
        await chat(Prompter(vision, ThreadOpener()), found)
    assert (caught.value.param, caught.value.code) == (field, "context_length_exceeded")


async def test_tools_are_rendered_off_the_loop(
    vision: PromptBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []
    build = vision.chat

    def noted(*args: object) -> Prompt:
        threads.append(threading.get_ident())
        return build(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(vision, "chat", noted)
    message = ChatMessage(role="user", content="Hi", extra={}, param="messages[0]")
    for length in (10, 3000):
        tools = [{"description": "x" * length}]
        await chat(
            Prompter(vision, ThreadOpener()),
            Conversation(messages=(message,), tools=tools, template_kwargs={}),
        )
    assert threads[0] == threading.get_ident() != threads[1]


class StuckOpener(ThreadOpener):
    """Never done with an image; fails on audio in a way of its own."""

    def __init__(self) -> None:
        self.num_cancelled = 0

    async def measure(self, data: bytes, measuring: Callable[[bytes], T], what: str) -> T:
        return cast(T, 1)

    async def measure_audio(self, data: bytes, *, limits: DecodeLimits) -> float:
        return 1.0

    async def prepare(self, data: bytes, prepare: Callable[[bytes], MediaItems], what: str) -> MediaItems:
        if what == "video":
            return await super().prepare(data, prepare, what)
        try:
            await trio.sleep_forever()
        finally:
            self.num_cancelled += 1
        raise AssertionError

    async def decode(self, data: bytes, *, limits: DecodeLimits) -> DecodedAudio:
        raise InternalError("ours")


async def test_cancelling_stops_the_opening_of_files(
    vision: PromptBuilder, autojump_clock: trio.testing.MockClock
) -> None:
    opener = StuckOpener()
    prompter = Prompter(vision, opener)
    with trio.move_on_after(1) as scope:
        await chat(prompter, conversation(part("image", b"x"), part("image", b"y", 1)))
    assert scope.cancelled_caught
    assert opener.num_cancelled == 2


async def test_a_part_that_cannot_be_opened_stops_the_others(vision: PromptBuilder) -> None:
    opener = StuckOpener()
    with pytest.raises(MediaError):
        await chat(Prompter(vision, opener), conversation(part("image", b"x"), part("video", b"y", 1)))
    assert opener.num_cancelled == 1


async def test_our_own_faults_keep_their_words(audio: PromptBuilder) -> None:
    with pytest.raises(InternalError, match=r"^ours$"):
        await chat(Prompter(audio, StuckOpener()), conversation(part("audio", b"x")))


async def test_raw_prompts(vision: PromptBuilder) -> None:
    prompter = Prompter(vision, ThreadOpener())
    short = await prompter.completion("Hello <|im_end|>")
    assert short.token_ids[-1] == vision.text.id_of("<|im_end|>")
    assert (await prompter.completion(short.token_ids)) == short
    for bad in ("", "word " * 2000, (10**7,)):
        with pytest.raises(BadRequestError):
            await prompter.completion(bad)


class CountingOpener(ThreadOpener):
    """Counts the files it is given."""

    def __init__(self) -> None:
        self.num_measured = 0
        self.num_opened = 0

    async def measure(self, data: bytes, measuring: Callable[[bytes], T], what: str) -> T:
        self.num_measured += 1
        return await super().measure(data, measuring, what)

    async def prepare(self, data: bytes, prepare: Callable[[bytes], MediaItems], what: str) -> MediaItems:
        self.num_opened += 1
        return await super().prepare(data, prepare, what)


def remembering(vision: PromptBuilder) -> tuple[Prompter, CountingOpener]:
    opener = CountingOpener()
    return Prompter(vision, opener, cache=MediaCache(10**9, media_bytes)), opener


async def ask(prompter: Prompter, scope: str | None, *parts: Part) -> Prompt:
    async with prompter.chat(conversation(*parts), scope=scope) as prompt:
        return prompt


async def test_ten_turns_over_ten_images_open_ten(vision: PromptBuilder) -> None:
    prompter, opener = remembering(vision)
    parts = [part("image", png(seed), seed) for seed in range(10)]
    turns = [await ask(prompter, "alice", *parts[: turn + 1]) for turn in range(10)]
    assert (opener.num_measured, opener.num_opened) == (10, 10)
    fresh = await chat(Prompter(vision, ThreadOpener()), conversation(*parts))
    assert [item.key for item in turns[-1].items] == [item.key for item in fresh.items]
    assert turns[-1].token_ids == fresh.token_ids


async def test_what_one_scope_has_opened_is_opened_again_for_another(vision: PromptBuilder) -> None:
    prompter, opener = remembering(vision)
    image = part("image", png())
    for scope in ("alice", "bob", None, None):
        await ask(prompter, scope, image)
    assert opener.num_opened == 4


async def test_a_file_may_be_left_out_where_its_name_is_known(vision: PromptBuilder) -> None:
    prompter, opener = remembering(vision)
    whole = MediaPart("image", png(), "messages[0].content[0]", name="cat")
    named = MediaPart("image", b"", "messages[0].content[0]", name="cat")
    first = await ask(prompter, "alice", whole)
    again = await ask(prompter, "alice", named)
    assert [item.key for item in again.items] == [item.key for item in first.items]
    assert opener.num_opened == 1
    for scope, missing in (("bob", named), (None, named), ("alice", replace(named, name="dog"))):
        with pytest.raises(MediaError, match="send it again") as caught:
            await ask(prompter, scope, missing)
        assert (caught.value.code, caught.value.param) == ("media_not_kept", "messages[0].content[0]")


async def test_a_name_means_the_file_it_was_last_sent_with(vision: PromptBuilder) -> None:
    prompter, _ = remembering(vision)
    named = MediaPart("image", b"", "messages[0].content[0]", name="cat")
    for seed in (1, 2):
        sent = await ask(prompter, "alice", replace(named, data=png(seed)))
        found = await ask(prompter, "alice", named)
        assert [item.key for item in found.items] == [item.key for item in sent.items]
