"""Thousands of damaged, lying and hostile files through the decode processes of a server, some at a time.

    python examples/benchmarks/hostile_media.py --files 2000 --seed 0

Each must give a result or a client's error with the right `param`, in time; after them a good file must open.
Prints how many were opened and refused, the slowest, how many processes died, and the most memory of one.
Run from the repository: the files are made by `tests/support/hostile_files.py`.
"""

from __future__ import annotations

import argparse
import logging
import resource
import sys
from collections import Counter
from itertools import chain
from pathlib import Path

import trio

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from sensorium.actors.media import MediaActor, MediaConfig, MediaHandle
from sensorium.media.vision_config import PixelConfig, VideoConfig
from sensorium.protocols.errors import ClientError
from support.hostile_files import Hostile, damaged_files, good_files, lying_files

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


async def outcome(media: MediaHandle, file: Hostile) -> str:
    """What became of a file: opened, refused, or what is wrong with that."""
    try:
        match file.kind:
            case "image":
                await media.measure_image(file.data, PIXELS)
                await media.prepare_image(file.data, PIXELS)
            case "video":
                await media.measure_video(file.data, VideoConfig(pixels=PIXELS))
                await media.prepare_video(file.data, VideoConfig(pixels=PIXELS))
            case "audio":
                await media.decode(file.data)
    except ClientError as error:
        return "refused" if error.param == PARAMS[file.kind] else f"wrong param {error.param}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "opened"


async def run(num_files: int, seed: int, workers: int) -> int:
    """Try all. The number of files that did not fare as they should."""
    found: Counter[str] = Counter()
    slowest: list[tuple[float, str]] = []
    wrong: list[str] = []
    actor = MediaActor(MediaConfig(max_workers=workers, deadline_s=30.0))
    files = iter(chain(lying_files(), damaged_files(num_files, seed)))
    async with trio.open_nursery() as actors:
        media = await actors.start(actor.run)

        async def work() -> None:
            for file in files:
                began = trio.current_time()
                end = await outcome(media, file)
                slowest.append((trio.current_time() - began, file.name))
                found[end if end in ("opened", "refused") else "wrong"] += 1
                if end not in ("opened", "refused"):
                    wrong.append(f"{file.name} ({file.kind}): {end}")

        async with trio.open_nursery() as nursery:
            for _ in range(workers):
                nursery.start_soon(work)
        for name, (kind, data) in good_files().items():
            if await outcome(media, Hostile(name, kind, data)) != "opened":
                wrong.append(f"{name}: a good file is not opened afterwards")
        statistics = media.statistics()
        actors.cancel_scope.cancel()
    most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"{sum(found.values())} files: " + ", ".join(f"{number} {end}" for end, number in found.items()))
    print("slowest: " + ", ".join(f"{seconds:.2f} s {name}" for seconds, name in sorted(slowest)[-3:]))
    print(f"{statistics.num_jobs} jobs, {statistics.num_killed} processes killed; the largest {most:.0f} MiB")
    print("\n".join(wrong))
    return len(wrong)


def main() -> None:
    """Read the options and go."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    logging.getLogger("libav").setLevel(logging.CRITICAL)
    sys.exit(1 if trio.run(run, options.files, options.seed, options.workers) else 0)


if __name__ == "__main__":
    main()
