"""`LocalEngine` from plain Python, asyncio and trio: text, images, video and audio on random models."""

from __future__ import annotations

import asyncio
import gc
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest
import sensorium
import trio
from PIL import Image
from sensorium import AsyncLocalEngine, LocalEngine, SamplingOptions
from sensorium.actors.local.core import LocalCore
from sensorium.protocols.errors import BadRequestError, ModelLoadError, UnavailableError
from support.server import wait_until

pytestmark = pytest.mark.slow

PROMPT = "The quick brown fox"
SHORT = SamplingOptions(max_tokens=8)
ENDLESS = SamplingOptions(max_tokens=400, ignore_eos=True)
MESSAGES = [{"role": "user", "content": "Hello"}]
SETTINGS: dict[str, Any] = {
    "device": "cpu",
    "dtype": "float32",
    "num_threads": 1,
    "kv_memory": "16MiB",
    "max_running": 8,
}


def open_engine(folders: dict[str, Path], kind: str = "text") -> LocalEngine:
    return LocalEngine(folders[kind], **SETTINGS)


def open_async(folders: dict[str, Path]) -> AsyncLocalEngine:
    return AsyncLocalEngine(folders["text"], **SETTINGS)


@pytest.fixture(scope="module")
def shared(folders: dict[str, Path]) -> Iterator[LocalEngine]:
    with open_engine(folders) as engine:
        yield engine


@pytest.fixture
def engine(shared: LocalEngine) -> Iterator[LocalEngine]:
    """The shared engine; the test fails if it leaves anything running."""
    yield shared
    wait_until(lambda: is_quiet(core_of(shared)), what=lambda: str(core_of(shared).model.engine.statistics()))


def core_of(engine: LocalEngine) -> LocalCore:
    assert engine._threaded is not None
    return engine._threaded.core


def is_quiet(core: LocalCore) -> bool:
    now = core.model.engine.statistics()
    held = now.num_running + now.num_waiting + now.num_cache_references
    return held == 0 and now.num_free_blocks == now.num_total_blocks


async def quiet(core: LocalCore) -> None:
    for _ in range(1000):
        if is_quiet(core):
            return
        await anyio.sleep(0.01)
    raise AssertionError(core.model.engine.statistics())


def test_names_at_the_root() -> None:
    for name in ("LocalEngine", "AsyncLocalEngine", "SamplingOptions", "Completion"):
        assert name in sensorium.__all__
        assert getattr(sensorium, name).__name__ == name


def test_the_kinds_of_prompt(engine: LocalEngine) -> None:
    one = engine.generate(PROMPT, SHORT)[0]
    assert len(one.token_ids) == 8
    assert one.finish_reason == "length"
    assert one.logprobs is None
    ids = core_of(engine).model.prompter.builder.completion(PROMPT).token_ids
    assert one.num_prompt_tokens == len(ids)
    forms: list[Any] = [ids, {"text": PROMPT}, list(ids)]
    assert [each.text for each in engine.generate(forms, SHORT)] == [one.text] * 3
    assert (chat := engine.chat(MESSAGES, SHORT)).text == engine.chat(MESSAGES[0]["content"], SHORT).text
    same: list[Any] = [MESSAGES, {"messages": MESSAGES}, MESSAGES[0]]
    for prompt in same:
        assert engine.generate(prompt, SHORT)[0].text == chat.text
    assert engine.generate([], SHORT) == []


def test_options_and_logprobs(engine: LocalEngine) -> None:
    options = SamplingOptions(max_tokens=4, logprobs=2, prompt_logprobs=1)
    found = engine.generate([PROMPT, "Hello"], [options, SHORT])
    assert found[0].logprobs is not None
    assert found[0].top_logprobs is not None
    assert [len(top) for top in found[0].top_logprobs] == [2] * 4
    assert found[0].logprobs == pytest.approx([top[0][1] for top in found[0].top_logprobs])
    assert found[0].prompt_logprobs is not None
    assert len(found[0].prompt_logprobs.logprobs) == found[0].num_prompt_tokens - 1
    assert len(found[1].token_ids) == 8
    seeded = SamplingOptions(max_tokens=8, temperature=1.5, seed=3)
    assert engine.generate(PROMPT, seeded) == engine.generate(PROMPT, seeded)
    assert engine.generate(PROMPT, SamplingOptions(choice=["yes", "no"]))[0].text in {"yes", "no"}
    schema = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}
    text = engine.generate(PROMPT, SamplingOptions(json_schema=schema))[0].text
    assert text.lstrip().startswith("{")


def test_many_prompts_keep_their_order_and_are_held_back(engine: LocalEngine) -> None:
    prompts = [f"Number {index}" for index in range(1000)]
    most = 0

    async def watch() -> None:  # in the engine's loop, where the queues are whole
        nonlocal most
        while True:
            now = core_of(engine).model.engine.statistics()
            most = max(most, now.num_waiting + now.num_running)
            await trio.sleep(0.002)

    assert engine._threaded is not None
    watching = engine._threaded.start(watch)
    try:
        found = engine.generate(prompts, SamplingOptions(max_tokens=2))
    finally:
        watching.cancel()
    assert 0 < most <= 2 * SETTINGS["max_running"]
    assert len(found) == 1000
    for index in (0, 17, 500, 999):
        assert (
            found[index].token_ids
            == engine.generate(prompts[index], SamplingOptions(max_tokens=2))[0].token_ids
        )


def test_a_stream_joins_to_the_whole(engine: LocalEngine) -> None:
    whole = engine.generate(PROMPT, SHORT)[0]
    deltas = list(engine.stream(PROMPT, SHORT))
    assert "".join(delta.text for delta in deltas) == whole.text
    assert tuple(token_id for delta in deltas for token_id in delta.token_ids) == whole.token_ids
    assert [delta.finish_reason for delta in deltas if delta.finish_reason] == ["length"]


def test_a_stream_broken_off_aborts_its_request(engine: LocalEngine) -> None:
    before = core_of(engine).model.engine.statistics().num_decode_tokens
    for delta in engine.stream(PROMPT, ENDLESS):
        assert delta.finish_reason is None
        break
    wait_until(lambda: is_quiet(core_of(engine)))
    assert core_of(engine).model.engine.statistics().num_decode_tokens - before < 399


def test_several_threads(engine: LocalEngine) -> None:
    texts: list[str] = []
    threads = [
        threading.Thread(target=lambda: texts.append(engine.generate(PROMPT, SHORT)[0].text))
        for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == [engine.generate(PROMPT, SHORT)[0].text] * 6


@pytest.mark.parametrize(
    ("prompt", "options", "param"),
    [
        (PROMPT, SamplingOptions(temperature=-1), "temperature"),
        (PROMPT, SamplingOptions(logprobs=99), "logprobs"),
        (PROMPT, SamplingOptions(max_tokens=0), "max_tokens"),
        ("", SHORT, "prompt"),
        ("word " * 600, SHORT, "prompt"),
        ([10**6], SHORT, "prompt[0]"),
        ({"text": "a", "picture": 3}, SHORT, "prompt"),
        ({"text": "a", "images": [np.zeros((4, 4), np.uint8)]}, SHORT, "images[0]"),
        ({"text": "a", "images": [np.zeros((8, 8, 3), np.uint8)]}, SHORT, "images[0]"),
        ({"text": "a", "audio": (np.zeros(100), 3)}, SHORT, "audio"),
        ([{"role": "wizard", "content": "a"}], SHORT, "messages[0].role"),
        (PROMPT, SamplingOptions(regex="("), "response_format"),
    ],
    ids=range(12),
)
def test_errors_are_ours_and_the_next_prompt_is_served(
    engine: LocalEngine,
    prompt: Any,  # noqa: ANN401
    options: SamplingOptions,
    param: str,
) -> None:
    with pytest.raises(BadRequestError) as caught:
        engine.generate([PROMPT, prompt, PROMPT], options) if param != "prompt" else engine.generate(
            prompt, options
        )
    assert caught.value.param == param
    assert engine.generate(PROMPT, SHORT)[0].text


def test_a_stream_raises_what_is_wrong(engine: LocalEngine) -> None:
    with pytest.raises(BadRequestError):
        list(engine.stream("word " * 600, SHORT))


def test_numbers_of_options_and_prompts_differ(engine: LocalEngine) -> None:
    with pytest.raises(BadRequestError):
        engine.generate([PROMPT], [SHORT, SHORT])
    with pytest.raises(BadRequestError, match="max_tokens=8` is of sampling"):
        engine.generate(PROMPT, max_tokens=8)


def test_images_and_video(folders: dict[str, Path], tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (40, 48, 3), dtype=np.uint8)
    path = tmp_path / "a.png"
    Image.fromarray(pixels).save(path)
    forms: list[Any] = [pixels, Image.fromarray(pixels), path, str(path), path.read_bytes()]
    with open_engine(folders, "vision") as engine:
        answers = engine.generate([{"text": "What?", "images": [form]} for form in forms], SHORT)
        assert len({answer.token_ids for answer in answers}) == 1
        assert core_of(engine).model.engine.statistics().num_windows_encoded == 1
        without = engine.chat([{"role": "user", "content": "What?"}], SHORT)
        assert without.token_ids != answers[0].token_ids
        in_chat = engine.generate(
            {"messages": [{"role": "user", "content": "What?"}], "images": [pixels]}, SHORT
        )
        assert in_chat[0].token_ids == answers[0].token_ids
        video = engine.generate({"text": "What?", "video": [pixels] * 5, "fps": 2}, SHORT)[0]
        assert video.num_prompt_tokens > answers[0].num_prompt_tokens


def test_audio(folders: dict[str, Path]) -> None:
    path = Path(__file__).parents[2] / "examples" / "data" / "kitchen_lights.wav"
    tone = np.sin(np.arange(48_000) / 30).astype(np.float32)
    sounds: list[Any] = [{"text": "", "audio": path}, {"text": "", "audio": (tone, 48_000)}]
    with open_engine(folders, "audio") as engine:
        from_file, from_samples = engine.generate(sounds, SHORT)
        assert from_file.num_prompt_tokens > from_samples.num_prompt_tokens > 13
        forced = engine.generate({"text": "", "audio": path}, SHORT, language="en")[0]
        assert forced.num_prompt_tokens > from_file.num_prompt_tokens
        with pytest.raises(BadRequestError) as caught:
            engine.generate({"text": "", "audio": path}, SHORT, language="xx")
        assert caught.value.param == "language"


def test_a_closed_engine(folders: dict[str, Path]) -> None:
    engine = open_engine(folders)
    with pytest.raises(UnavailableError):
        engine.generate(PROMPT)
    engine.close()
    with engine:
        deltas = engine.stream(PROMPT, ENDLESS)
        next(deltas)
        engine.close()
        engine.close()
        with pytest.raises(UnavailableError):
            list(deltas)
    with pytest.raises(UnavailableError):
        engine.generate(PROMPT)


def test_a_folder_that_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError), LocalEngine(tmp_path):
        pass

    async def start() -> None:
        async with AsyncLocalEngine(tmp_path):
            pass

    with pytest.raises(ModelLoadError):
        asyncio.run(start())
    with pytest.raises(ModelLoadError):
        trio.run(start)


async def use(engine: AsyncLocalEngine) -> tuple[str, str, str]:
    """The same under both libraries."""
    whole = (await engine.generate([PROMPT] * 3, SHORT))[2]
    streamed = ""
    async for delta in engine.stream(PROMPT, SHORT):
        streamed += delta.text
    chat = await engine.chat(MESSAGES, SHORT)
    async with engine.stream(PROMPT, ENDLESS) as stream:
        async for delta in stream:
            assert delta.finish_reason is None
            break
    with pytest.raises(BadRequestError):
        await engine.generate("word " * 600)
    with pytest.raises(BadRequestError):
        async for _ in engine.stream("word " * 600):
            pass
    async for _ in engine.stream(PROMPT, ENDLESS):  # dropped, not closed
        break
    gc.collect()
    return whole.text, streamed, chat.text


@pytest.mark.parametrize("library", ["asyncio", "trio"])
def test_asyncio_and_trio(folders: dict[str, Path], engine: LocalEngine, library: str) -> None:
    expected = (engine.generate(PROMPT, SHORT)[0].text,) * 2 + (engine.chat(MESSAGES, SHORT).text,)

    async def main() -> tuple[str, str, str]:
        local = open_async(folders)
        async with local:
            found = await use(local)
            shell = local._shell
            assert shell is not None
            core = shell.core
            await quiet(core)
        await local.aclose()
        with pytest.raises(UnavailableError):
            await local.generate(PROMPT)
        return found

    assert (asyncio.run(main()) if library == "asyncio" else trio.run(main)) == expected


def test_cancelling_under_asyncio_aborts(folders: dict[str, Path]) -> None:
    async def main() -> None:
        async with open_async(folders) as local:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(local.generate([PROMPT] * 50, ENDLESS), 0.3)
            assert local._shell is not None
            await quiet(local._shell.core)
            assert (await local.generate(PROMPT, SHORT))[0].text

    asyncio.run(main())


def test_cancelling_under_trio_aborts(folders: dict[str, Path]) -> None:
    async def main() -> None:
        async with open_async(folders) as local:
            with trio.move_on_after(0.3) as scope:
                await local.generate([PROMPT] * 50, ENDLESS)
            assert scope.cancelled_caught
            assert local._shell is not None
            await quiet(local._shell.core)
            assert (await local.generate(PROMPT, SHORT))[0].text

    trio.run(main)


def test_ctrl_c_ends_a_plain_program(folders: dict[str, Path]) -> None:
    program = f"""
        import signal
        from sensorium import LocalEngine, SamplingOptions
        signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs are born ignoring it
        options = SamplingOptions(max_tokens=400, ignore_eos=True)
        with LocalEngine({str(folders["text"])!r}, **{SETTINGS!r}) as engine:
            next(engine.stream("Hello", options))
            print("generating", flush=True)
            engine.generate(["Hello"] * 100_000, options)
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "generating\n"
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == -signal.SIGINT
    assert errors.strip().endswith("KeyboardInterrupt")


def test_an_engine_left_open_does_not_break_the_exit(folders: dict[str, Path]) -> None:
    """As an interactive session does that ends while a stream goes on; so does its forked child."""
    program = f"""
        import os, signal, sys
        from sensorium import LocalEngine, SamplingOptions
        from sensorium.protocols.errors import UnavailableError

        engine = LocalEngine({str(folders["text"])!r}).__enter__()
        endless = engine.stream("Hello", SamplingOptions(max_tokens=400, ignore_eos=True))
        next(endless)
        child = os.fork()
        if child == 0:
            signal.alarm(30)
            try:
                next(endless)
            except UnavailableError:
                del endless, engine  # what collects them must not wait for the parent's threads
                sys.exit(0)
        print(os.waitpid(child, 0)[1])
        raise KeyboardInterrupt
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (-signal.SIGINT, "0\n"), done.stderr
    assert done.stderr.strip().endswith("KeyboardInterrupt")
