"""How a request wants its media looked at reaches what is encoded and what is kept, of that request only."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from sensorium.actors.fetch_config import FetchConfig
from sensorium.actors.fetching.fetcher import Fetcher
from sensorium.actors.media_cache import MediaCache
from sensorium.actors.text.openers import ThreadOpener
from sensorium.actors.text.opening import media_bytes
from sensorium.actors.text.prompts import Prompter
from sensorium.engine.models.prompts import Prompt, PromptBuilder
from sensorium.engine.models.registry import open_model
from sensorium.protocols.chat import Conversation
from sensorium.protocols.chat_content import ChatMessage, MediaAddress, MediaPart, Part
from sensorium.protocols.errors import BadRequestError
from sensorium.protocols.media_wish import ProcessorKwargs, read_media_wishes
from support.text_folder import make_qwen3_folder
from support.vision_files import grey_steps, movie, png
from support.vl_folder import make_vl_folder

PICTURE = MediaPart("image", png(64, 80), "messages[0].content[0]")
CLIP = MediaPart("video", movie(grey_steps(16)), "messages[0].content[0]")
SMALLER = ProcessorKwargs(max_pixels=64 * 6)


@pytest.fixture(scope="module")
def vision(tmp_path_factory: pytest.TempPathFactory) -> PromptBuilder:
    return built(make_vl_folder(tmp_path_factory.mktemp("vision")))


def built(folder: Path) -> PromptBuilder:
    source = open_model(folder, device="cpu", dtype="float32")
    assert source.side.prompts is not None
    return PromptBuilder(source.info, source.side.prompts)


def asked(part: Part, kwargs: ProcessorKwargs | None = None) -> Conversation:
    message = ChatMessage(role="user", content=(part,), extra={}, param="messages[0]")
    return Conversation(messages=(message,), template_kwargs={}, media_wishes=read_media_wishes(kwargs))


async def prompt(prompter: Prompter, conversation: Conversation, scope: str | None = "alice") -> Prompt:
    async with prompter.chat(conversation, scope=scope) as found:
        return found


async def test_a_wish_is_kept_apart_from_the_models_own_way(vision: PromptBuilder) -> None:
    """The same file under two wishes is two contents, for the cache of files and for the encoder's."""
    cache = MediaCache(10**8, media_bytes)
    prompter = Prompter(vision, ThreadOpener(), cache=cache)
    for _ in range(2):
        usual = await prompt(prompter, asked(PICTURE))
        smaller = await prompt(prompter, asked(PICTURE, SMALLER))
        assert smaller.items[0].num_tokens <= 6 < usual.items[0].num_tokens
        assert smaller.items[0].content_hash != usual.items[0].content_hash
    statistics = cache.statistics()
    assert (statistics.num_entries, statistics.num_misses, statistics.num_hits) == (2, 2, 2)


async def test_low_detail_is_of_one_image(vision: PromptBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same file in both details in one request is two contents, each kept as such."""
    monkeypatch.setattr("sensorium.media.vision_wish.LOW_DETAIL_PIXELS", 64 * 6)
    cache = MediaCache(10**8, media_bytes)
    prompter = Prompter(vision, ThreadOpener(), cache=cache)
    low = replace(PICTURE, param="messages[0].content[1]", is_low=True)
    message = ChatMessage(role="user", content=(PICTURE, low), extra={}, param="messages[0]")
    for _ in range(2):
        found = await prompt(prompter, Conversation(messages=(message,), template_kwargs={}))
        usual, small = found.items
        assert small.num_tokens <= 6 < usual.num_tokens
        assert small.content_hash != usual.content_hash
    statistics = cache.statistics()
    assert (statistics.num_entries, statistics.num_misses, statistics.num_hits) == (2, 2, 2)


async def test_wishes_that_come_to_the_same_share_the_encoders_work(vision: PromptBuilder) -> None:
    prompter = Prompter(vision, ThreadOpener(), cache=MediaCache(10**8, media_bytes))
    low = await prompt(prompter, asked(PICTURE, ProcessorKwargs(max_pixels=400)))
    lower = await prompt(prompter, asked(PICTURE, ProcessorKwargs(max_pixels=384)))
    assert low.items[0].content_hash == lower.items[0].content_hash


@pytest.mark.parametrize(("num_frames", "num_items"), [(2, 1), (4, 2), (7, 4)])
async def test_a_clip_has_as_many_frames_as_were_wished(
    vision: PromptBuilder, num_frames: int, num_items: int
) -> None:
    found = await prompt(
        Prompter(vision, ThreadOpener()), asked(CLIP, ProcessorKwargs(num_frames=num_frames))
    )
    assert len(found.spans) == num_items


async def test_what_asks_for_too_much_is_refused_before_anything_is_fetched(vision: PromptBuilder) -> None:
    """The fetcher is not even running."""
    address = MediaAddress("https://example.com/a.png", "messages[0].content[0].image_url.url")
    far = replace(PICTURE, data=b"", address=address)
    prompter = Prompter(vision, ThreadOpener(), fetcher=Fetcher(FetchConfig()))
    with pytest.raises(BadRequestError, match="allowed: up to") as caught:
        await prompt(prompter, asked(far, ProcessorKwargs(max_pixels=10**9)))
    assert caught.value.param == "mm_processor_kwargs.max_pixels"


async def test_a_model_that_sees_nothing_says_so(tmp_path: Path) -> None:
    conversation = Conversation(
        messages=(ChatMessage(role="user", content="Hi", extra={}, param="messages[0]"),),
        template_kwargs={},
        media_wishes=read_media_wishes(SMALLER),
    )
    prompter = Prompter(built(make_qwen3_folder(tmp_path / "text")), ThreadOpener())
    with pytest.raises(BadRequestError) as caught:
        await prompt(prompter, conversation)
    assert (caught.value.param, caught.value.code) == ("mm_processor_kwargs", "unsupported_parameter")
