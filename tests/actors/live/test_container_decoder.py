"""Streams of many sessions in one process that may die: each gets its samples, or an error with a name."""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import trio
from sensorium.actors.live.container_decoder import Sound, SoundActor, SoundConfig
from sensorium.media.audio.decode import decode_audio
from sensorium.protocols.errors import MediaError
from support.audio_files import FloatArray
from support.children import Children, children_from_now
from support.sound_streams import ogg, voice, webm

pytestmark = pytest.mark.slow

WEBM, OGG = webm(voice(1.0)), ogg(voice(1.0))


@asynccontextmanager
async def running(deadline_s: float = 5.0) -> AsyncIterator[SoundActor]:
    children = children_from_now()
    actor = SoundActor(SoundConfig(num_workers=1, deadline_s=deadline_s))
    async with trio.open_nursery() as nursery:
        await nursery.start(actor.run)
        with trio.fail_after(60):
            yield actor
        nursery.cancel_scope.cancel()
    assert not children()


async def decoded(sound: Sound, data: bytes, *, is_first: bool = False, is_end: bool = False) -> FloatArray:
    parts, has_more = [], True
    while has_more:
        samples, has_more = await sound.decode(data, is_first=is_first, is_end=is_end)
        parts.append(samples)
        data, is_first = b"", False
    return np.concatenate(parts)


async def test_streams_are_decoded_side_by_side() -> None:
    results: dict[int, FloatArray] = {}

    async def listen(actor: SoundActor, number: int) -> None:
        data, sound = (WEBM if number % 2 else OGG), actor.open_sound("auto")
        step = 300 + 100 * number
        parts = [await decoded(sound, data[at : at + step]) for at in range(0, len(data), step)]
        parts.append(await decoded(sound, b"", is_end=True))
        results[number] = np.concatenate(parts)
        sound.close()

    async with running() as actor:
        async with trio.open_nursery() as nursery:
            for number in range(6):
                nursery.start_soon(listen, actor, number)
        statistics = actor.statistics()
    for number, samples in results.items():
        np.testing.assert_array_equal(samples, decode_audio(WEBM if number % 2 else OGG).samples)
    assert (statistics.num_streams, statistics.num_deaths, statistics.decoded_s) == (0, 0, 6.0)


async def test_a_stream_that_is_none_is_refused_and_another_begins() -> None:
    async with running() as actor:
        sound, neighbour = actor.open_sound("webm"), actor.open_sound("ogg")
        before = await decoded(neighbour, OGG[:3_000], is_first=True)
        with pytest.raises(MediaError, match="damaged at byte 0") as refused:
            await decoded(sound, bytes(64), is_first=True)
        assert (refused.value.code, refused.value.param) == ("invalid_audio", "audio")
        with pytest.raises(MediaError, match="begins a new stream") as refused:
            await decoded(sound, WEBM[100:200], is_first=True)
        assert refused.value.code == "audio_stream_broken"
        assert not len(await decoded(sound, b"", is_end=True))
        assert len(await decoded(sound, WEBM, is_first=True)) > 15_000
        after = await decoded(neighbour, OGG[3_000:])
        tail = await decoded(neighbour, b"", is_end=True)
        np.testing.assert_array_equal(np.concatenate([before, after, tail]), decode_audio(OGG).samples)


class _Fatal:
    """A state that does something to the process that takes it up."""

    def __init__(self, deed: Callable[..., object], *args: object) -> None:
        self._deed = deed, args

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return self._deed


@pytest.mark.parametrize("deed", [_Fatal(os.abort), _Fatal(time.sleep, 60)], ids=["crash", "hang"])
async def test_who_ends_the_process_is_refused_and_the_others_go_on(deed: _Fatal) -> None:
    async with running(deadline_s=2.0) as actor:
        culprit, others = actor.open_sound("webm"), [actor.open_sound("auto") for _ in range(2)]
        for other in others:
            assert len(await decoded(other, WEBM[:3_000])) > 3_000
        culprit.state, culprit.process = pickle.dumps(deed), b"elsewhere"  # type: ignore[attr-defined]
        counts: list[int] = []

        async def go_on(sound: Sound) -> None:
            counts.append(len(await decoded(sound, WEBM[3_000:])))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(blamed, culprit))
            for other in others:
                nursery.start_soon(go_on, other)
        assert min(counts) > 16_000 * (1 - 3_000 / len(WEBM)) - 3_000
        assert actor.statistics().num_deaths == 2


async def blamed(sound: Sound) -> None:
    with pytest.raises(MediaError, match="ended by it") as refused:
        await decoded(sound, WEBM, is_first=True)
    assert refused.value.code == "decoder_died"


async def test_a_process_that_is_gone_is_replaced_unnoticed(children: Children) -> None:
    async with running() as actor:
        sound = actor.open_sound("ogg")
        first = await decoded(sound, OGG[:2_000])
        (child,) = children()
        assert child.pid is not None
        os.kill(child.pid, signal.SIGKILL)
        second = await decoded(sound, OGG[2_000:])
        assert len(first) + len(second) > 14_000


def clear(folder: Path) -> None:
    for each in folder.iterdir():
        shutil.rmtree(each)


async def test_streams_go_on_after_somebody_has_cleared_the_temporary_folder(
    children: Children, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    async with running() as actor:
        sound = actor.open_sound("webm")
        parts = [await decoded(sound, WEBM[:4_000], is_first=True)]
        clear(tmp_path)
        # The next process, which one that has been idle for long is followed by, is confined to it, too.
        for child in children():
            child.kill()
            child.join()
        parts += [await decoded(sound, WEBM[4_000:]), await decoded(sound, b"", is_end=True)]
        assert actor.statistics().num_deaths == 0
    assert sum(map(len, parts)) > 14_000
