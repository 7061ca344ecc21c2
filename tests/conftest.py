"""The same examples in every run, so that a test fails because of a change and of nothing else. `make fuzz`
looks for new ones."""

from __future__ import annotations

import atexit
import gc
import os
import signal
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, settings
from support.children import Children, children_from_now
from support.torchvision_processors import define_missing_operators

HERE: Final = Path(__file__).parent
SLOW: Final = ("e2e/",)
"""Real servers and sockets, all of them."""
HEAVY: Final = (
    *("engine/models/", "engine/execution/", "kernels/", "examples/", "actors/live/test_hours.py"),
    "actors/live/test_captions_hours.py",
    *("realtime/dialogue/test_truncation.py", "realtime/dialogue/test_video_machine.py"),
    *("realtime/dialogue/test_dialogue_machine.py", "realtime/turns/test_silence_duration.py"),
    *(
        "realtime/test_endless_speech.py",
        "realtime/test_spoken_words.py",
        "realtime/turns/test_partial_interval.py",
    ),
)
"""Models and kernels against their references, and sessions of many hours."""

# No deadline: how long an example takes says something about the machine, not about the code.
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("fixed", patient, derandomize=True)
settings.register_profile("quick", patient, derandomize=True, max_examples=10, stateful_step_count=20)
settings.register_profile("random", patient, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))

# As the command line has it (`actors/cli.py`); read when torch is loaded. Models of two threads are tested in
# more processes than there are cores, and half of what they took was spinning for each other.
os.environ.setdefault("GOMP_SPINCOUNT", "3000")

define_missing_operators()

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # What a shell starts in the background is deaf to Ctrl-C, and so would be what tests start.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Two processes more than there are cores: half of the time tests wait for a clock or another process.
    Those of `make quick` wait for nothing, and each process more would import everything once more."""
    return len(os.sched_getaffinity(0)) + 2 * (os.environ.get("HYPOTHESIS_PROFILE") != "quick")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what lies in some folders, so that `make quick` can leave it out."""
    for item in items:
        place = item.path.relative_to(HERE).as_posix()
        for folders, mark in ((SLOW, pytest.mark.slow), (HEAVY, pytest.mark.heavy)):
            if place.startswith(folders):
                item.add_marker(mark)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Of `make families`."""
    parser.addoption(
        "--every-way",
        action="store_true",
        help="check all families that see or hear every way, not one of each kind",
    )


def pytest_collection() -> None:
    """Collecting makes hundreds of thousands of objects that stay: see below."""
    gc.disable()


def pytest_collection_finish() -> None:
    """What libraries and collected tests are made of stays. Looking through it takes half a second a time."""
    gc.freeze()
    gc.enable()
    # So that what libraries say of leaks at the end is true; behind pytest, which looks for them twice.
    atexit.register(gc.unfreeze)


@pytest.fixture
def children() -> Children:
    """The processes this test has started."""
    return children_from_now()
