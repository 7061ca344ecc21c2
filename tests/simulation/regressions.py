"""Runs that once broke an invariant, as small as they got: `python tests/simulation/run.py --shrink`."""

from __future__ import annotations

from typing import Final

from simulation.faults import Fault
from simulation.scenario import Client, Scenario
from simulation.server import ASR, WHISPER

REGRESSIONS: Final = (
    # A file's samples stayed mapped when its model's engine crashed: the errors held the frames in cycles.
    Scenario(
        seed=11,
        clients=(Client("c5", "live", 0.0, 6, ASR), Client("c11", "file", 0.7727, 6, ASR)),
        faults=(Fault("device out of memory", 1.6289, ASR),),
        plans_in_flight=2,
        num_blocks=72,
    ),
    # A decode process that hung when it was asked what keeps it in held up the answer to its file for ever.
    Scenario(
        seed=684,
        clients=(Client("c3", "file stream", 0.9533, 1, ASR),),
        faults=(Fault("worker hangs", 1.0061),),
        plans_in_flight=2,
        num_blocks=72,
    ),
    # A file's samples stayed mapped when no thread was there for them: causes of the error held its frames.
    Scenario(
        seed=938,
        clients=(Client("c11", "file", 0.9971, 0, WHISPER),),
        faults=(Fault("threads refused", 1.5619, lasts_s=5.5896),),
        plans_in_flight=2,
        num_blocks=160,
    ),
)
