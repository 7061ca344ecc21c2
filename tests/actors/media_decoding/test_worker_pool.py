"""The decoder pool decodes in processes it can kill; whatever happens there is one request's error."""

from __future__ import annotations

import errno
import gc
import io
import math
import operator
import os
import resource
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import cache, partial
from multiprocessing.process import BaseProcess
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import trio
import trio.testing
from PIL import Image
from sensorium.actors.media_decoding.worker_pool import DecoderPool, MediaConfig, MediaHandle
from sensorium.actors.telemetry.loop_blocking import LoopHold
from sensorium.media.audio.decode import DecodedAudio, DecodeLimits
from sensorium.media.vision.config import VideoConfig
from sensorium.media.vision.images import ImageLimits, prepare_image
from sensorium.media.vision.video import prepare_video
from sensorium.protocols.errors import (
    InternalError,
    MediaError,
    OverloadedError,
    TooLargeError,
    UnavailableError,
)
from support.audio_files import encoded, plain_wav, sound_file, tone
from support.children import Children
from support.vision_files import pixel_config

UNLIMITED = DecodeLimits(max_seconds=1e6)
PIXELS = pixel_config(1024, 4096, patch_size=8)
AS_IMAGE = partial(prepare_image, config=PIXELS)

pytestmark = pytest.mark.slow


@cache
def half_hour() -> bytes:
    """Of silence: much work in a small file. Others can be hung on to it."""
    return encoded(np.zeros(16_000 * 1800, np.float32), container="flac", codec="flac")


@asynccontextmanager
async def running(config: MediaConfig | None = None) -> AsyncIterator[tuple[DecoderPool, MediaHandle]]:
    actor = DecoderPool(config)
    async with trio.open_nursery() as nursery:
        handle = await nursery.start(actor.run)
        yield actor, handle
        nursery.cancel_scope.cancel()


async def until_working(children: Children, besides: int = 0) -> int:
    """Wait until a worker uses the processor, another one than `besides`; its process id."""
    while True:
        for child in children():
            with open(f"/proc/{child.pid}/stat", encoding="ascii") as file:  # noqa: ASYNC230 (a file in memory)
                ticks = int(file.read().rsplit(")", 1)[1].split()[11])
            if ticks > 0.6 * os.sysconf("SC_CLK_TCK") and child.pid is not None and child.pid != besides:
                return child.pid
        await trio.sleep(0.02)


async def test_channels_come_apart() -> None:
    both = np.stack([tone(0.5), 0.25 * tone(0.5)], axis=1)
    async with running() as (_, handle):
        audio = await handle.decode(sound_file(both), are_channels_kept=True)
    np.testing.assert_allclose(audio.samples, both.T, atol=1e-3)
    assert audio.duration_s == 0.5


async def test_a_file_is_decoded_and_the_worker_kept(children: Children) -> None:
    async with running() as (_, handle):
        for _ in range(2):
            audio = await handle.decode(plain_wav(tone(1.0)))
            np.testing.assert_allclose(audio.samples, tone(1.0), atol=1e-4)
        statistics = handle.statistics()
        assert (statistics.num_jobs, statistics.num_failed, statistics.num_workers) == (2, 0, 1)
        assert (statistics.num_running, statistics.num_waiting) == (0, 0)
        assert statistics.decoded_s == 2.0
        assert statistics.busy_s > 0
        (child,) = children()
        assert child.pid is not None
        own = os.getpriority(os.PRIO_PROCESS, 0)
        assert os.getpriority(os.PRIO_PROCESS, child.pid) == min(19, own + 10), "speech goes first"
    assert not children()


async def test_errors_of_the_file_come_back_as_they_are() -> None:
    async with running() as (_, handle):
        with pytest.raises(MediaError, match="no audio samples"):
            await handle.decode(plain_wav(tone(0.0)))
        with pytest.raises(TooLargeError, match="limit of 1 seconds"):
            await handle.decode(plain_wav(tone(2.0)), limits=DecodeLimits(max_seconds=1))
        assert handle.statistics().num_failed == 2


async def test_what_is_obviously_wrong_costs_no_process(children: Children) -> None:
    async with running() as (_, handle):
        with pytest.raises(MediaError, match="not in a supported"):
            await handle.decode(b"some text, not audio")
        with pytest.raises(TooLargeError):
            await handle.decode(bytes(11), limits=DecodeLimits(max_bytes=10))
        assert not children()


async def test_cancellation_kills_the_worker_at_once(children: Children) -> None:
    async with running(MediaConfig(max_workers=1)) as (_, handle):
        with trio.fail_after(120):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(lambda: handle.decode(4 * half_hour(), limits=UNLIMITED))
                await until_working(children)
                start = trio.current_time()
                nursery.cancel_scope.cancel()
        assert trio.current_time() - start < 1
        assert not children()
        statistics = handle.statistics()
        assert (statistics.num_killed, statistics.num_running, statistics.num_workers) == (1, 0, 0)
        assert len((await handle.decode(plain_wav(tone(1.0)))).samples) == 16_000


async def test_a_file_that_takes_too_long_is_given_up(children: Children) -> None:
    async with running(MediaConfig(deadline_s=1.0)) as (_, handle):
        with pytest.raises(MediaError, match="too long"):
            await handle.decode(4 * half_hour(), limits=UNLIMITED)
        assert not children()
        assert handle.statistics().num_killed == 1


async def test_a_file_that_takes_too_much_processor_time_is_given_up_and_not_tried_again() -> None:
    async with running(MediaConfig(max_workers=1, cpu_s=0.5)) as (actor, handle):
        with trio.fail_after(120), pytest.raises(MediaError, match="too much processor time") as refused:
            await handle.measure(b"x", partial(operator.countOf, iter(int, 1)), "video")
        assert refused.value.param == "video"
        assert actor.statistics().num_jobs == actor.statistics().num_killed == 1
        assert (await handle.decode(plain_wav(tone(0.2)))).duration_s == 0.2, "the next file goes on"


async def test_a_worker_that_somebody_stopped_is_not_the_files_fault(
    children: Children, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sensorium.actors.media_decoding.worker_pool._SILENCE_S", 0.0)
    config = MediaConfig(max_workers=1, deadline_s=5.0)
    async with running(config) as (_, handle), trio.open_nursery() as nursery:

        async def decode() -> None:
            with trio.fail_after(120):
                assert (await handle.decode(plain_wav(tone(0.2)))).duration_s == 0.2
            assert handle.statistics().num_killed == 1

        nursery.start_soon(decode)
        while not (started := children()):  # noqa: ASYNC110 (of processes)
            await trio.sleep(0.001)
        assert started[0].pid is not None
        os.kill(started[0].pid, signal.SIGSTOP)


async def test_one_with_files_that_take_long_leaves_others_a_worker() -> None:
    async with running(MediaConfig(max_workers=2)) as (_, handle), trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(handle.of("a").measure, b"x", partial(operator.countOf, iter(int, 1)), "image")
        await trio.testing.wait_all_tasks_blocked()
        assert (handle.statistics().num_running, handle.statistics().num_waiting) == (2, 2)
        assert (await handle.of("b").decode(plain_wav(tone(0.2)))).duration_s == 0.2
        assert (handle.statistics().num_running, handle.statistics().num_waiting) == (2, 2)
        nursery.cancel_scope.cancel()


async def test_what_keeps_decoders_in_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "sensorium")
    async with running(MediaConfig(max_workers=1)) as (_, handle):
        for _ in range(2):
            await handle.decode(plain_wav(tone(0.2)))
    (message,) = [record.message for record in caplog.records if "kept from the network" in record.message]
    assert message.startswith("processes that decode files are kept from the network: ")


async def test_a_worker_that_dies_is_not_the_files_fault(children: Children) -> None:
    """It is tried again, once; then its client may."""
    async with running(MediaConfig(max_workers=1)) as (_, handle):
        errors: list[OverloadedError] = []

        async def doomed() -> None:
            with pytest.raises(OverloadedError, match="try again") as caught:
                await handle.decode(4 * half_hour(), limits=UNLIMITED)
            errors.append(caught.value)

        with trio.fail_after(120):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(doomed)
                first = await until_working(children)
                os.kill(first, signal.SIGSEGV)
                os.kill(await until_working(children, besides=first), signal.SIGKILL)
                # Waits behind the doomed one, and is served by the next worker.
                assert len((await handle.decode(plain_wav(tone(1.0)))).samples) == 16_000
        assert len(errors) == 1
        assert (errors[0].status, errors[0].code) == (503, "decoder_died")
        assert handle.statistics().num_killed == 2


async def test_a_file_outlives_the_death_of_one_worker(children: Children) -> None:
    async with running(MediaConfig(max_workers=1)) as (_, handle):
        lengths: list[int] = []

        async def decode() -> None:
            lengths.append(len((await handle.decode(2 * half_hour(), limits=UNLIMITED)).samples))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(decode)
            os.kill(await until_working(children), signal.SIGKILL)
        assert lengths == [2 * 1800 * 16_000]


async def test_a_full_disk_is_nobodys_mistake() -> None:
    """The kernel refuses the largest file this process may write as it refuses one too many."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    async with running(MediaConfig(max_workers=1)) as (_, handle):
        for num_bytes, seconds in ((100_000, 10.0), (400_000, 10.0)):  # of the file itself, of its samples
            resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, before[1]))
            try:
                with pytest.raises(OverloadedError, match="no room") as caught:
                    await handle.decode(plain_wav(tone(seconds)))
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, before)
            assert (caught.value.status, caught.value.code) == (503, "insufficient_storage")
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    async with running(MediaConfig(max_workers=1)) as (_, handle):
        assert len((await handle.decode(plain_wav(tone(10.0)))).samples) == 160_000


async def test_where_no_process_can_be_started_files_are_told_to_come_back(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with running() as (_, handle):
        with monkeypatch.context() as patch:
            refuse = Mock(side_effect=BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN)))
            patch.setattr(BaseProcess, "start", refuse)
            with pytest.raises(OverloadedError, match="no process left") as caught:
                await handle.decode(plain_wav(tone(0.1)))
        assert (caught.value.status, caught.value.retry_after_s) == (503, 5)
        assert "no process can be started" in caplog.messages[0]
        assert len((await handle.decode(plain_wav(tone(0.1)))).samples) == 1600


def refuse_descriptor(_: BaseProcess) -> None:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


async def test_a_process_that_is_not_started_leaves_no_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    """At once: they are what was short, and garbage may be collected much later."""
    gc.collect()
    async with running() as (_, handle):
        monkeypatch.setattr(BaseProcess, "start", refuse_descriptor)
        gc.disable()
        try:
            before = len(os.listdir("/proc/self/fd"))
            for _ in range(3):
                with pytest.raises(OverloadedError):
                    await handle.decode(plain_wav(tone(0.1)))
            assert len(os.listdir("/proc/self/fd")) == before
        finally:
            gc.enable()


async def test_memory_that_a_worker_is_refused_is_not_the_files_fault() -> None:
    async with running() as (pool, _):
        with pytest.raises(OverloadedError, match="memory"):
            await pool._run_job(partial(operator.mul, b" ", 1 << 62), "file")


async def test_the_reason_of_a_defect_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async with running() as (pool, _):
        with pytest.raises(InternalError):
            await pool._run_job(partial(operator.truediv, 1, 0), "file")
    assert "ZeroDivisionError" in caplog.text


async def test_an_idle_worker_that_died_is_replaced(children: Children) -> None:
    async with running() as (_, handle):
        await handle.decode(plain_wav(tone(0.1)))
        (child,) = children()
        child.kill()
        child.join()
        await handle.decode(plain_wav(tone(0.1)))
        assert handle.statistics().num_failed == 0


async def test_a_full_queue_refuses_and_those_waiting_are_served(children: Children) -> None:
    async with running(MediaConfig(max_workers=1, max_waiting=2)) as (actor, handle):
        lengths: list[int] = []

        async def decode(seconds: float) -> None:
            lengths.append(len((await handle.decode(plain_wav(tone(seconds)))).samples))

        async with trio.open_nursery() as nursery:
            for seconds in (0.1, 0.2, 0.3):
                nursery.start_soon(decode, seconds)
            await trio.testing.wait_all_tasks_blocked()
            assert handle.statistics().num_waiting == 2
            assert len(os.listdir(actor._folder)) <= 2, "who waits holds no file"
            with pytest.raises(OverloadedError, match="2 files"):
                await handle.decode(plain_wav(tone(0.4)))
        assert sorted(lengths) == [1600, 3200, 4800]
        assert handle.statistics().num_refused == 1
        assert len(children()) == 1


async def test_callers_wait_in_turn_and_none_takes_the_whole_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "sensorium.actors.media_decoding.worker_pool._SPARE_AFTER_S", math.inf
    )  # on slow machines, too
    async with running(MediaConfig(max_workers=1, max_waiting=16)) as (_, handle):
        ended: list[str] = []

        async def decode(caller: str, data: bytes = plain_wav(tone(0.1))) -> None:
            await handle.of(caller).decode(data)
            ended.append(caller)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(decode, "a", half_hour())  # the others wait behind it
            await trio.testing.wait_all_tasks_blocked()
            for _ in range(14):
                nursery.start_soon(decode, "a")
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(OverloadedError, match="14 of your files"):
                await handle.of("a").decode(plain_wav(tone(0.1)))
            nursery.start_soon(decode, "b")
        assert ended.index("b") <= 2


async def test_shutdown_ends_requests_in_flight_and_waiting(children: Children) -> None:
    actor = DecoderPool(MediaConfig(max_workers=1))
    num_unavailable = 0

    async def decode() -> None:
        nonlocal num_unavailable
        with pytest.raises(UnavailableError):
            await actor.handle.decode(4 * half_hour(), limits=UNLIMITED)
        num_unavailable += 1

    with trio.fail_after(120):
        async with trio.open_nursery() as clients, trio.open_nursery() as server:
            await server.start(actor.run)
            for _ in range(3):
                clients.start_soon(decode)
            await until_working(children)
            server.cancel_scope.cancel()
    assert num_unavailable == 3
    assert not children()
    with pytest.raises(UnavailableError):
        await actor.handle.decode(plain_wav(tone(0.1)))


async def test_images_and_videos_are_prepared_in_workers() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (40, 48, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    film = io.BytesIO()
    Image.fromarray(pixels).save(film, "GIF", save_all=True, append_images=[Image.fromarray(255 - pixels)])
    as_video = partial(prepare_video, config=VideoConfig(pixels=PIXELS))
    async with running() as (_, handle):
        item = await handle.prepare(buffer.getvalue(), AS_IMAGE, "image")
        assert item == prepare_image(buffer.getvalue(), PIXELS)
        video = await handle.prepare(film.getvalue(), as_video, "video")
        assert video == as_video(film.getvalue())
        with pytest.raises(MediaError) as caught:
            await handle.prepare(b"no image", AS_IMAGE, "image")
        assert caught.value.param == "image"
        with pytest.raises(TooLargeError):
            await handle.prepare(
                buffer.getvalue(), partial(AS_IMAGE, limits=ImageLimits(max_bytes=10)), "image"
            )
        assert handle.statistics().num_jobs == 4


async def test_a_large_image_does_not_hold_the_loop() -> None:
    """A hundred megabytes of features come back, which are copied and hashed elsewhere."""
    buffer = io.BytesIO()
    Image.new("RGB", (2048, 2048)).save(buffer, "PNG")
    config = replace(PIXELS, max_pixels=2048 * 2048)
    async with running(MediaConfig(max_workers=1)) as (_, handle):
        await handle.prepare(buffer.getvalue(), AS_IMAGE, "image")
        hold = LoopHold()
        trio.lowlevel.add_instrument(hold)
        item = await handle.prepare(buffer.getvalue(), partial(prepare_image, config=config), "image")
        trio.lowlevel.remove_instrument(hold)
    assert len(item.items[0].features.data) == 24 * 2048 * 2048
    assert hold.longest.seconds < 0.02, hold.longest


def clear(folder: Path) -> None:
    for each in folder.iterdir():
        shutil.rmtree(each)


async def decoded_at_last(handle: MediaHandle, data: bytes) -> DecodedAudio:
    while True:
        try:
            return await handle.decode(data)
        except UnavailableError:
            await trio.sleep(0.01)


async def test_files_are_decoded_again_after_somebody_has_cleared_the_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    async with running() as (_, handle):
        await handle.decode(plain_wav(tone(0.1)))
        clear(tmp_path)
        with pytest.raises(UnavailableError, match="removed"):
            await handle.decode(plain_wav(tone(0.1)))
        with trio.fail_after(60):
            audio = await decoded_at_last(handle, plain_wav(tone(1.0)))
        assert len(audio.samples) == 16_000
    assert not os.listdir(tmp_path)
