"""Whether models run in a process of their own: one of the value objects of `actors/config/server.py`.

What is made of it is in `actors/engines.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from .checks import check, check_word

Where = Literal["on", "off"]


@dataclass(frozen=True, slots=True)
class ProcessConfig:
    """Where models run.

    Attributes
    ----------
    engine_process
        on runs the models in a process of their own, which is started again when it dies or hangs; off runs
        them in the process that serves clients.
    engine_silence_s
        Seconds the models' process may say nothing before it counts as hung and is killed; three times as
        long while it loads.
    """

    engine_process: Where = "on"
    engine_silence_s: float = 20.0

    def __post_init__(self) -> None:
        check_word("engine_process", self.engine_process, get_args(Where))
        check("engine_silence_s", self.engine_silence_s, 1)
