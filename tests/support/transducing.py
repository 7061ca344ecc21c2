"""Audio through a runner's fed requests, and what `transformers` makes of the same frames."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

import numpy as np
import numpy.typing as npt
import torch
from sensorium.engine.execution.runner import Runner
from sensorium.engine.models.nemotron_asr.chunks import chunk_frames
from sensorium.engine.planning.plan import Copy, Plan, SequenceId, TransduceStep
from sensorium.protocols.engine.messages import Features, InputChunk, RequestId, Transduce, Transduced

FloatArray = npt.NDArray[np.float32]
Placed = list[tuple[int, int]]
"""Tokens and the rows at which they were given."""
_MOST_STEPS = 100_000


def noise(seconds: float, seed: int = 0) -> FloatArray:
    """Noise whose loudness and colour change, so that rows differ."""
    generator = np.random.default_rng(seed)
    num = int(16_000 * seconds)
    white = generator.standard_normal(num + 8)
    colour = np.convolve(white, generator.standard_normal(9), "valid")
    steps = generator.random(num // 4000 + 2)
    loudness = np.interp(np.linspace(0, len(steps) - 1, num), np.arange(len(steps)), steps)
    return (colour * loudness * 0.1).astype(np.float32)


def cut(
    frames: FloatArray, lookahead: int, *, ends: bool = True, at_once: Sequence[int] = (1,)
) -> list[InputChunk]:
    """Frames [mel bins, n] as a request's chunks: `at_once` of the model's own each, in turn; the rest is the
    last chunk, padded to a whole one with what must not be seen, if the input `ends`."""
    chunks: list[InputChunk] = []
    first = 0
    for turn in count():
        sizes = [
            chunk_frames(lookahead, is_first=first == 0 and index == 0)
            for index in range(at_once[turn % len(at_once)])
        ]
        size, left = sum(sizes), frames.shape[1] - first
        if left < size or (ends and left == size):
            break
        chunks.append(_chunk(frames[:, first : first + size]))
        first += size
    if not ends:
        return chunks
    rest = frames[:, first:]
    padding = np.full((len(frames), max(0, sizes[0] - rest.shape[1])), 7.0, np.float32)
    return [*chunks, _chunk(np.concatenate((rest, padding), 1), rest.shape[1], is_last=True)]


def _chunk(frames: FloatArray, num_valid: int | None = None, *, is_last: bool = False) -> InputChunk:
    data = np.ascontiguousarray(frames, np.float32).tobytes()
    num_valid = frames.shape[1] if num_valid is None else num_valid
    return InputChunk(Features(frames.shape, data), num_valid, is_last)


@dataclass
class FedStream:
    """A fed request: its chunks to come, and what was answered."""

    task: Transduce
    chunks: list[InputChunk]
    slot: int
    num_fed: int = 0
    tokens: Placed = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    num_rows: int = 0

    def fork(self, slot: int, chunks: list[InputChunk]) -> FedStream:
        """One that goes on from here with other chunks, in another slot."""
        return FedStream(
            self.task, [*self.chunks[: self.num_fed], *chunks], slot, self.num_fed, list(self.tokens)
        )


class Feeder:
    """Feeds streams to a runner."""

    def __init__(self, runner: Runner) -> None:
        self.runner = runner

    def step(self, streams: Sequence[FedStream], copies: Sequence[tuple[int, int]] = ()) -> None:
        """The next chunk of each in one step, behind copies of slots (from, to)."""
        steps = tuple(
            TransduceStep(
                SequenceId(index),
                RequestId(str(index)),
                stream.task,
                stream.slot,
                stream.chunks[stream.num_fed],
                is_first=stream.num_fed == 0,
            )
            for index, stream in enumerate(streams)
        )
        made = tuple(Copy(source=source, target=target) for source, target in copies)
        for stream, outcome in zip(
            streams, self.runner.execute(Plan(0, copies=made, transduces=steps)).transduced, strict=True
        ):
            assert isinstance(outcome, Transduced), outcome
            stream.num_fed += 1
            stream.tokens += zip(outcome.token_ids, outcome.frames, strict=True)
            stream.logprobs += outcome.logprobs
            stream.ends += outcome.ends
            stream.num_rows = outcome.num_frames

    def feed(self, *streams: FedStream) -> None:
        """All chunks of all streams, a step for each chunk, those that have some left together."""
        while left := [stream for stream in streams if stream.num_fed < len(stream.chunks)]:
            self.step(left)


def reference_streamed(
    model: torch.nn.Module, frames: FloatArray, lookahead: int, options: Mapping[str, torch.Tensor]
) -> Placed:
    """What `generate` of `transformers` gives of the whole chunks as they come."""

    def chunks() -> Iterator[torch.Tensor]:
        for chunk in cut(frames, lookahead, ends=False):
            values = torch.frombuffer(bytearray(chunk.features.data), dtype=torch.float32)
            yield values.view(chunk.features.shape).t()[None].clone()

    output = model.generate(  # type: ignore[operator]
        input_features=chunks(), num_lookahead_tokens=lookahead, max_length=_MOST_STEPS, **options
    )
    return _placed(output, model)


def reference_whole(
    model: torch.nn.Module, frames: FloatArray, lookahead: int, options: Mapping[str, torch.Tensor]
) -> Placed:
    """What `generate` of `transformers` gives of all frames at once, with their mask."""
    values = torch.from_numpy(frames).t()[None].contiguous()
    output = model.generate(  # type: ignore[operator]
        input_features=values,
        attention_mask=torch.ones(values.shape[:2], dtype=torch.bool),
        num_lookahead_tokens=lookahead,
        max_length=_MOST_STEPS,
        **options,
    )
    return _placed(output, model)


def _placed(output: object, model: torch.nn.Module) -> Placed:
    tokens = output.sequences[0, 1:].tolist()  # type: ignore[attr-defined]
    durations = output.durations[0, 1:]  # type: ignore[attr-defined]
    rows = (durations.cumsum(0) - durations).tolist()
    blank = model.config.blank_token_id  # type: ignore[union-attr]
    return [(token, row) for token, row in zip(tokens, rows, strict=True) if token != blank]
