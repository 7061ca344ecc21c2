"""Thousands of damaged, lying and hostile files and web servers against what opens and fetches for a server.

    python examples/benchmarks/hostile_media.py --files 2000 --seed 0

Files go through the decode processes, some at a time, and those with sound as live streams, too, cut
anywhere; what is fetched comes from hosts that loop, drip, lie and lead inside. Each must give a result or a
client's error with the right `param` or code, in time; after them a good file must open. Prints how many were
opened and refused, the slowest, how many processes died, and the most memory of one. Run from the
repository: files and hosts are made by `tests/support/hostile_files.py` and `hostile_hosts.py`.
"""

from __future__ import annotations

import argparse
import logging
import random
import resource
import sys
import warnings
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path

import trio

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from sensorium.actors.config.fetching import FetchConfig
from sensorium.actors.fetching.dns import Names as Resolver
from sensorium.actors.fetching.fetcher import Fetcher
from sensorium.actors.live.container_decoder import Sound, SoundActor, SoundConfig
from sensorium.actors.media_decoding.worker_pool import DecoderPool, MediaConfig, MediaHandle
from sensorium.media.vision.config import PixelConfig, VideoConfig
from sensorium.media.vision.images import measure_image, prepare_image
from sensorium.media.vision.video import measure_video, prepare_video
from sensorium.protocols.errors import ClientError, FetchError
from support.file_host import file_host
from support.hostile_files import Hostile, damaged_files, good_files, lying_files
from support.hostile_hosts import ALLOWED, FORBIDDEN, GOOD, HostileHost, Names, hostile_hosts

PIXELS = PixelConfig(
    min_pixels=4096,
    max_pixels=1 << 20,
    patch_size=16,
    merge_size=2,
    temporal_patch_size=2,
    mean=(0.5, 0.5, 0.5),
    std=(0.5, 0.5, 0.5),
)
PARAMS = {"image": "image", "video": "video", "audio": "file"}
FETCH_S, SERVERS_AT_ONCE = 2.0, 16


@dataclass(slots=True)
class Found:
    """What became of everything that was tried."""

    title: str
    ends: Counter[str] = field(default_factory=Counter)
    times: list[tuple[float, str]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def note(self, name: str, end: str, began: float) -> None:
        """One more; `end` is opened, refused, or what is wrong with it."""
        self.times.append((trio.current_time() - began, name))
        is_right = end in ("opened", "refused")
        self.ends[end if is_right else "wrong"] += 1
        if not is_right:
            self.wrong.append(f"{name}: {end}")

    def __str__(self) -> str:
        counts = ", ".join(f"{number} {end}" for end, number in self.ends.items())
        slowest = ", ".join(f"{seconds:.2f} s {name[:60]}" for seconds, name in sorted(self.times)[-3:])
        return "\n".join([f"{self.ends.total()} {self.title}: {counts}; slowest {slowest}", *self.wrong])


async def outcome(media: MediaHandle, file: Hostile) -> str:
    """What became of a file: opened, refused, or what is wrong with that."""
    try:
        match file.kind:
            case "image":
                await media.measure(file.data, partial(measure_image, config=PIXELS), "image")
                await media.prepare(file.data, partial(prepare_image, config=PIXELS), "image")
            case "video":
                config = VideoConfig(pixels=PIXELS)
                await media.measure(file.data, partial(measure_video, config=config), "video")
                await media.prepare(file.data, partial(prepare_video, config=config), "video")
            case "audio":
                await media.decode(file.data)
    except ClientError as error:
        return "refused" if error.param == PARAMS[file.kind] else f"wrong param {error.param}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "opened"


async def decode_stream(sound: Sound, data: bytes, chance: random.Random) -> str:
    """What became of a live stream of these bytes."""
    at, is_first = 0, True
    try:
        while at < len(data):
            piece = data[at : at + chance.choice((1, 100, 5_000, 1 << 14))]
            at += len(piece)
            has_more = True
            while has_more:
                _, has_more = await sound.decode(piece, is_first=is_first, is_end=at >= len(data))
                piece, is_first = b"", False
    except ClientError as error:
        return "refused" if error.param == "audio" else f"wrong param {error.param}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    finally:
        sound.close()
    return "opened"


async def try_files(num_files: int, seed: int, workers: int) -> list[Found]:
    """All files, then good ones, and what sounds as a live stream."""
    files, streams = Found("files"), Found("live streams")
    actor = DecoderPool(MediaConfig(max_workers=workers, deadline_s=30.0))
    hostile = iter(chain(lying_files(), damaged_files(num_files, seed)))
    async with trio.open_nursery() as actors:
        media = await actors.start(actor.run)
        sounds = SoundActor(SoundConfig(num_workers=1))
        await actors.start(sounds.run)

        async def work() -> None:
            chance = random.Random(seed)
            for file in hostile:
                began = trio.current_time()
                files.note(f"{file.name} ({file.kind})", await outcome(media, file), began)
                if file.kind == "audio":
                    began = trio.current_time()
                    streams.note(
                        file.name, await decode_stream(sounds.open_sound("auto"), file.data, chance), began
                    )

        async with trio.open_nursery() as nursery:
            for _ in range(workers):
                nursery.start_soon(work)
        for name, (kind, data) in good_files().items():
            if await outcome(media, Hostile(name, kind, data)) != "opened":
                files.wrong.append(f"{name}: a good file is not opened afterwards")
        jobs, killed, deaths = (
            media.statistics().num_jobs,
            media.statistics().num_killed,
            sounds.statistics().num_deaths,
        )
        actors.cancel_scope.cancel()
    most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"{jobs} jobs, {killed} processes killed, {deaths} of streams; the largest {most:.0f} MiB")
    return [files, streams]


async def try_hosts(rounds: int, seed: int) -> Found:
    """All servers, some at a time."""
    found = Found("servers")
    config = FetchConfig(allowed_media_networks=(ALLOWED,), fetch_timeout_s=FETCH_S, max_fetch_mib=1.0)
    fetcher = Fetcher(config, Resolver(Names()))
    places = trio.CapacityLimiter(SERVERS_AT_ONCE)

    async def fetch_from(each: HostileHost) -> None:
        async with places:
            began = trio.current_time()
            try:
                await fetcher.fetch(each.url, lambda _: None)
                end = GOOD
            except FetchError as error:
                end = error.code
        is_right = ("opened" if end == GOOD else "refused") if end in each.ends else end
        found.note(each.name, is_right, began)

    async with file_host() as host, file_host((FORBIDDEN, host.port)) as inside:
        async with trio.open_nursery() as nursery:
            for each in hostile_hosts(host, seed, rounds):
                nursery.start_soon(fetch_from, each)
        if inside.num_connections:
            found.wrong.append(f"{inside.num_connections} connections went to {FORBIDDEN}")
    return found


async def run(num_files: int, rounds: int, seed: int, workers: int) -> int:
    """Try all. The number of those that did not fare as they should."""
    found = [*await try_files(num_files, seed, workers), await try_hosts(rounds, seed)]
    print(*found, sep="\n")
    return sum(len(each.wrong) for each in found)


def main() -> None:
    """Read the options and go."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3, help="of some hundred servers")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    sys.exit(1 if trio.run(run, options.files, options.rounds, options.seed, options.workers) else 0)


if __name__ == "__main__":
    main()
