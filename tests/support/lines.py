"""Print how large each room is: files, lines, median and longest file. `make lines` runs it."""

from __future__ import annotations

import statistics
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = (
    "protocols",
    "kernels",
    "media",
    "realtime",
    "engine",
    "actors",
    "client",
    "testing",
    "examples",
    "tests",
)


def main() -> None:
    """Print one row a room and a total."""
    print(f"{'room':<10}{'files':>7}{'lines':>8}{'median':>8}{'longest':>9}  file")
    total_files = total_lines = 0
    for room in ROOMS:
        sizes = {path: len(path.read_text().splitlines()) for path in sorted((ROOT / room).rglob("*.py"))}
        sizes = {path: size for path, size in sizes.items() if size > 3}
        if not sizes:
            continue
        longest = max(sizes, key=lambda path: sizes[path])
        total_files += len(sizes)
        total_lines += sum(sizes.values())
        print(
            f"{room:<10}{len(sizes):>7}{sum(sizes.values()):>8}{statistics.median(sizes.values()):>8.0f}"
            f"{sizes[longest]:>9}  {longest.relative_to(ROOT)}"
        )
    print(f"{'all':<10}{total_files:>7}{total_lines:>8}")


if __name__ == "__main__":
    main()
