"""How many sequences of a long context a model's key-value memory holds, as its layers keep tokens and if all
layers kept all.

    python examples/benchmarks/context_capacity.py FOLDER [--context 32768] [--memory 2GiB] [--chunk 512]

Reads the folder's config and no weights. The real scheduler plans, with a stub in the runner's place: more
requests than fit, with prompts that share nothing, each fed in chunks, answered up to the context. Prints
for both layouts how many contexts of tokens decode at once, and the bytes that one alone holds at its end.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

from sensorium.engine.models.memory import MemorySize, show
from sensorium.engine.models.registry import open_model
from sensorium.engine.planning.kv.groups import CacheLayout
from sensorium.engine.planning.limits import SchedulerConfig
from sensorium.engine.planning.plan import Plan, StepResult
from sensorium.engine.planning.scheduler import Scheduler
from sensorium.protocols.engine.messages import Request, RequestId, Sample, SamplingParams, TokensSampled

BLOCK_SIZE = 16
_ID = RequestId("stub")


def stub(plan: Plan) -> StepResult:
    """One token for every sequence that samples."""
    sampled = tuple(TokensSampled(_ID, (7,) if step.answers else ()) for step in plan.sequences)
    return StepResult(plan.step, sampled)


class Capacity:
    """What a memory of so many bytes holds of requests of one length, under a layout."""

    def __init__(self, layout: CacheLayout, *, num_bytes: int, context: int, chunk: int) -> None:
        self._block_bytes = layout.token_bytes * BLOCK_SIZE
        self._context, self._chunk = context, chunk
        self.scheduler = Scheduler(
            SchedulerConfig(
                num_blocks=num_bytes // self._block_bytes,
                block_size=BLOCK_SIZE,
                groups=layout.groups,
                max_context=context,
                max_running=4096,
                max_tokens_per_step=chunk,
            )
        )

    def run(self, num_requests: int) -> tuple[int, int]:
        """The most tokens of decoding sequences in one step, and the bytes that all held at the last such
        step."""
        # Answers are so long that the first ends only when the last could have been fed its prompt.
        num_tokens = min(num_requests * (self._context // self._chunk + 1), self._context // 2)
        num_prompt = self._context - num_tokens
        for number in range(num_requests):
            prompt = tuple((number * 7919 + at) % 30_000 for at in range(num_prompt))
            sampling = SamplingParams(max_tokens=num_tokens)
            self.scheduler.submit(Request(RequestId(str(number)), prompt, Sample(sampling)), None)
        most_tokens = num_bytes = 0
        while plan := self.scheduler.schedule():
            held = sum(step.start + 1 for step in plan.sequences if step.start >= num_prompt)
            if held >= max(most_tokens, 1):
                most_tokens = held
                statistics = self.scheduler.statistics()
                num_blocks = statistics.num_total_blocks - statistics.num_free_blocks
                num_bytes = num_blocks * self._block_bytes
            self.scheduler.update(stub(plan))
        self.scheduler.check()
        return most_tokens, num_bytes


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder")
    parser.add_argument("--context", type=int, default=32_768)
    parser.add_argument("--memory", default="2GiB")
    parser.add_argument("--chunk", type=int, default=512)
    parser.add_argument("--dtype", default="bfloat16")
    options = parser.parse_args()
    source = open_model(options.folder, device="cpu", dtype=options.dtype)
    num_bytes = int(MemorySize.parse(options.memory).amount)
    context = min(options.context, source.info.max_context)
    uniform = replace(source.kv_shape, specs=(), heads=()).layout(source.dtype)
    print(f"{context} tokens of context in {options.memory}, chunks of {options.chunk} tokens")
    found: list[tuple[int, int]] = []
    for name, layout in (("as the layers keep tokens", source.layout), ("if all kept all", uniform)):
        sizes = {"num_bytes": num_bytes, "context": context, "chunk": options.chunk}
        _, alone = Capacity(layout, **sizes).run(1)
        together, _ = Capacity(layout, **sizes).run(4 * num_bytes // alone // 3 + 2)
        found.append((together, alone))
        print(f"{name:26} {together / context:6.1f} contexts decode at once; one alone holds {show(alone)}")
    (one, held), (other, held_all) = found
    print(f"{one / other:.2f} × the tokens; {held / held_all:.3f} of the bytes")


if __name__ == "__main__":
    main()
