"""How a request wants its media looked at reaches what is encoded and what is kept, of that request only; and
what was encoded elsewhere."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TypeVar, cast

import numpy as np
import pytest
import trio
from sensorium.actors.config.fetching import FetchConfig
from sensorium.actors.fetching.fetcher import Fetcher
from sensorium.actors.media_decoding.cache import MediaCache
from sensorium.actors.media_decoding.memory_budget import MediaBudget
from sensorium.actors.media_decoding.worker_pool import DecoderPool, MediaConfig
from sensorium.actors.text.media_opener import ThreadOpener
from sensorium.actors.text.media_opening import MediaLimits, media_bytes
from sensorium.actors.text.prompts import Prompter
from sensorium.engine.models.prompts import Prompt, PromptBuilder
from sensorium.engine.models.registry import open_model
from sensorium.protocols.chat.content import ChatMessage, MediaAddress, MediaPart, Part
from sensorium.protocols.chat.embeds import Embeds
from sensorium.protocols.chat.processor_options import ProcessorKwargs, read_processor_options
from sensorium.protocols.chat.request import Conversation
from sensorium.protocols.engine.messages import MediaItems
from sensorium.protocols.errors import BadRequestError, ClientError, MediaError, OverloadedError
from support.text_folder import make_qwen3_folder
from support.vision_files import grey_steps, movie, picture, png
from support.vl_folder import make_vl_folder
from trio.testing import wait_all_tasks_blocked

T = TypeVar("T")

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
    return Conversation(
        messages=(message,), template_kwargs={}, processor_options=read_processor_options(kwargs)
    )


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
    monkeypatch.setattr("sensorium.media.vision.processor_options.LOW_DETAIL_PIXELS", 64 * 6)
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


@pytest.mark.slow
async def test_a_family_may_have_a_rule_of_its_own(vision: PromptBuilder) -> None:
    """It is named by the family and run in decode processes, as Qwen-VL's is."""
    builder = copy.copy(vision)
    builder.media = replace(vision.media, pixels="support.mean_colours")
    async with trio.open_nursery() as nursery:
        handle = await nursery.start(DecoderPool(MediaConfig(max_workers=1)).run)
        prompter = Prompter(builder, handle)
        for part, size in ((PICTURE, (64, 80)), (replace(PICTURE, data=png(20, 30)), (20, 30))):
            (item,) = (await prompt(prompter, asked(part))).items
            mean = np.frombuffer(item.features.data, np.float32)
            assert item.num_tokens == 1
            np.testing.assert_allclose(mean, picture(*size).mean((0, 1)), rtol=1e-5)
        clip = await prompt(prompter, asked(CLIP, ProcessorKwargs(num_frames=4)))
        assert len(clip.spans) > 0
        nursery.cancel_scope.cancel()


async def test_a_model_that_sees_nothing_says_so(tmp_path: Path) -> None:
    conversation = Conversation(
        messages=(ChatMessage(role="user", content="Hi", extra={}, param="messages[0]"),),
        template_kwargs={},
        processor_options=read_processor_options(SMALLER),
    )
    prompter = Prompter(built(make_qwen3_folder(tmp_path / "text")), ThreadOpener())
    with pytest.raises(BadRequestError) as caught:
        await prompt(prompter, conversation)
    assert (caught.value.param, caught.value.code) == ("mm_processor_kwargs", "unsupported_parameter")


def rows(grid: tuple[int, int, int], width: int, value: float = 0.5, name: str = "") -> MediaPart:
    """Of as many tokens as the grid has cells of 2 x 2."""
    values = np.full((grid[1] * grid[2] // 4, width), value, "<f4")
    embeds = Embeds("float32", values.shape, grid)
    return MediaPart("image", values.tobytes(), "messages[0].content[0]", name=name, embeds=embeds)


def taking(vision: PromptBuilder, cache: MediaCache[MediaItems] | None = None) -> Prompter:
    return Prompter(vision, ThreadOpener(), limits=MediaLimits(takes_embeds=True), cache=cache)


async def test_embeddings_are_taken_where_that_was_said_only(vision: PromptBuilder) -> None:
    """The small model's rows are 32 numbers and two levels of a deepstack."""
    part = rows((1, 4, 6), 96)
    with pytest.raises(BadRequestError, match="--enable-mm-embeds") as caught:
        await prompt(Prompter(vision, ThreadOpener()), asked(part))
    assert caught.value.param == "messages[0].content[0].image_embeds"
    found = await prompt(taking(vision), asked(part))
    (item,), (span,) = found.items, found.spans
    assert (item.features.data, item.features.encoded, span.grid) == (part.data, "float32", (1, 2, 3))
    other = await prompt(taking(vision), asked(rows((1, 4, 6), 96, value=0.25)))
    turned = await prompt(taking(vision), asked(rows((1, 6, 4), 96)))
    assert len({each.items[0].content_hash for each in (found, other, turned)}) == 3


@pytest.mark.parametrize(
    ("part", "field", "words"),
    [
        (rows((1, 4, 6), 32), "shape", r"is \[6,32\]; allowed: rows of 96 numbers"),
        (rows((1, 3, 8), 96), "image_grid_thw", "sides that divide by 2"),
        (
            replace(rows((1, 4, 6), 96), embeds=Embeds("float32", (6, 96), (1, 4, 8))),
            "image_grid_thw",
            "6 rows",
        ),
        (rows((1, 4, 6), 96, value=float("nan")), "data", "not all finite"),
    ],
)
async def test_embeddings_that_are_none_of_the_models(
    vision: PromptBuilder, part: MediaPart, field: str, words: str
) -> None:
    with pytest.raises(ClientError, match=words) as caught:
        await prompt(taking(vision), asked(part))
    assert caught.value.param == f"messages[0].content[0].image_embeds.{field}"


async def test_a_model_without_rows_of_others_takes_no_embeddings(tmp_path: Path) -> None:
    prompter = taking(built(make_qwen3_folder(tmp_path / "text")))
    with pytest.raises(BadRequestError) as caught:
        await prompt(prompter, asked(rows((1, 4, 6), 96)))
    assert (caught.value.param, caught.value.code) == ("messages[0].content[0]", "unsupported_media")


async def test_embeddings_are_kept_by_their_name(vision: PromptBuilder) -> None:
    cache = MediaCache(10**8, media_bytes)
    prompter = taking(vision, cache)
    sent = await prompt(prompter, asked(rows((1, 4, 6), 96, name="a")))
    named = replace(rows((1, 4, 6), 96, name="a"), data=b"", embeds=Embeds())
    again = await prompt(prompter, asked(named))
    assert again.items == sent.items
    file = MediaPart("image", b"", "messages[0].content[0]", name="a")
    for part, scope in ((named, "bob"), (file, "alice"), (replace(named, name="b"), "alice")):
        with pytest.raises(MediaError) as caught:
            await prompt(prompter, asked(part), scope)
        assert caught.value.code == "media_not_kept"


def pictures(num: int) -> Conversation:
    """One message of so many pictures."""
    parts = tuple(
        MediaPart("image", png(64, 80, seed), f"messages[0].content[{seed}]") for seed in range(num)
    )
    message = ChatMessage(role="user", content=parts, extra={}, param="messages[0]")
    return Conversation(
        messages=(message,), template_kwargs={}, processor_options=read_processor_options(None)
    )


class CrowdedOpener(ThreadOpener):
    """Counts the images that are opened at a time, and whose they are."""

    def __init__(self) -> None:
        self.callers: list[str] = []
        self.num_open = self.most_open = 0

    def of(self, caller: str) -> CrowdedOpener:
        self.callers.append(caller)
        return self

    async def measure(self, data: bytes, measuring: Callable[[bytes], T], what: str) -> T:
        self.num_open += 1
        self.most_open = max(self.most_open, self.num_open)
        await wait_all_tasks_blocked()
        self.num_open -= 1
        return await super().measure(data, measuring, what)


async def test_one_request_opens_a_few_files_at_a_time_in_its_callers_name(vision: PromptBuilder) -> None:
    opener = CrowdedOpener()
    async with Prompter(vision, opener).chat(pictures(12), caller="alice") as found:
        assert len(found.items) == 12
    assert opener.most_open == 8
    assert set(opener.callers) == {"alice"}


class LiedToOpener(ThreadOpener):
    """Is told by every file that it is tiny."""

    async def measure(self, data: bytes, measuring: Callable[[bytes], T], what: str) -> T:
        measured = await super().measure(data, measuring, what)
        return cast(T, 1) if isinstance(measured, int) else measured


async def test_files_that_lie_of_their_size_take_no_more_memory_than_there_is(vision: PromptBuilder) -> None:
    async with Prompter(vision, LiedToOpener()).chat(pictures(4)) as found:
        num_bytes = sum(len(item.features.data) for item in found.items)
    for room, is_enough in ((num_bytes, True), (num_bytes - 1, False)):
        budget = MediaBudget(max_bytes=room)
        with nullcontext() if is_enough else pytest.raises(OverloadedError, match="Too much media"):
            async with Prompter(vision, LiedToOpener(), budget=budget).chat(pictures(4)):
                assert budget.num_bytes == num_bytes
        assert budget.num_bytes == 0
