"""The console's views by Lighthouse: `make lighthouse`, or `python -m support.lighthouse` in `tests/`.

Each view is opened in both colour schemes, on a desktop and on a phone. Lighthouse is run from
`build/lighthouse`; `make build/lighthouse/.ready` installs the version of `tests/lighthouse/package.json`.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from .browser import ARGUMENTS, CHROMIUM
from .command_line import serving

Scheme = Literal["light", "dark"]
COMMAND: Final = Path(__file__).parents[2] / "build" / "lighthouse" / "node_modules" / ".bin" / "lighthouse"
SKIP: Final = "Lighthouse needs Node, Chromium and `make build/lighthouse/.ready`, which downloads it once"
IS_INSTALLED: Final = CHROMIUM is not None and shutil.which("node") is not None and COMMAND.exists()
VIEWS: Final = ("live", "files", "chat", "server")
SCHEMES: Final[tuple[Scheme, ...]] = ("light", "dark")
HEIGHTS: Final = {360: 780, 1440: 900}
"""Pixels, by the width of the window."""
MIN_SCORE: Final = 0.95
_CATEGORIES: Final = ("accessibility", "best-practices")
_PHONE_WIDTH: Final = 500
_TIMEOUT_S: Final = 180.0


@dataclass(frozen=True)
class Report:
    """What Lighthouse found of a page."""

    scores: dict[str, float]
    """By category, from 0 to 1."""
    failed: list[str]
    """Audits that lower a score."""

    @property
    def is_good(self) -> bool:
        """Whether every score is high enough."""
        return all(score >= MIN_SCORE for score in self.scores.values())


def report(url: str, *, width: int, scheme: Scheme) -> Report:
    """Open a page in a Chromium of its own. Raises CalledProcessError with what Lighthouse printed."""
    is_phone = width < _PHONE_WIDTH
    browser = [each for each in ARGUMENTS if " " not in each]  # blanks separate the flags
    browser += ["--headless", f"--blink-settings=preferredColorScheme={int(scheme == 'light')}"]
    command = (
        *(str(COMMAND), url, "--quiet", "--output=json", f"--only-categories={','.join(_CATEGORIES)}"),
        *("--no-enable-error-reporting", "--disable-full-page-screenshot", "--throttling-method=provided"),
        *(f"--form-factor={'mobile' if is_phone else 'desktop'}", f"--screenEmulation.width={width}"),
        *(f"--screenEmulation.height={HEIGHTS[width]}", f"--screenEmulation.mobile={str(is_phone).lower()}"),
        f"--screenEmulation.deviceScaleFactor={2 if is_phone else 1}",
        f"--chrome-flags={' '.join(browser)}",
    )
    environment = os.environ | {"CHROME_PATH": CHROMIUM or ""}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, timeout=_TIMEOUT_S, check=True)
    found: dict[str, Any] = msgspec.json.decode(done.stdout)
    if error := found.get("runtimeError"):
        raise RuntimeError(f"Lighthouse could not open {url}: {error['message']}")
    categories = {name: found["categories"][name] for name in _CATEGORIES}
    weighted = {audit["id"] for each in categories.values() for audit in each["auditRefs"] if audit["weight"]}
    failed = [name for name, each in found["audits"].items() if name in weighted and each["score"] == 0]
    return Report({name: each["score"] for name, each in categories.items()}, failed)


def main() -> int:
    """Print a line for each combination; 1 if a score is too low."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--view", choices=VIEWS, action="append", help="all of them if not given")
    views = parser.parse_args().view or list(VIEWS)
    if not IS_INSTALLED:
        print(SKIP, file=sys.stderr)
        return 2
    is_good = True
    print(
        f"| view | colours | width | {' | '.join(_CATEGORIES)} | failed audits |\n|---|---|---|---|---|---|"
    )
    with serving("--port", "0") as (_, url):
        for view, scheme, width in itertools.product(views, SCHEMES, HEIGHTS):
            found = report(f"{url}/console#{view}", width=width, scheme=scheme)
            scores = " | ".join(f"{100 * score:.0f}" for score in found.scores.values())
            print(f"| {view} | {scheme} | {width} | {scores} | {', '.join(found.failed)} |", flush=True)
            is_good = is_good and found.is_good
    return int(not is_good)


if __name__ == "__main__":
    sys.exit(main())
