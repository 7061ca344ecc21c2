"""Windows of Parakeet CTC at its published shape, with random weights: how many times faster than speech.

    python examples/benchmarks/bench_ctc.py [--dtype bfloat16] [--quantization int8]
        [--windows 1 2] [--steps 3] [--threads 2] [--layers 24]

A step has one or more whole windows of 30 s, each of which brings 26 s that the one before it had not.
Printed are seconds of clock and of processors for a step, and for the features of a window, computed
before it; how many seconds of speech are transcribed in a second of each; and the floor: the multiplications
of a step, and how fast the model's largest product alone goes with the rows of a window. On a machine that is
shared, take `--threads 1` and what is said of a processor: threads that wait for each other count as working.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple, cast

import numpy as np
import torch
from bench_transducer import BLANK, RandomTensors
from sensorium.actors.speech.families.parakeet import OVERLAP_ROWS
from sensorium.engine.models.base import ChunkBatch, ChunkInput
from sensorium.engine.models.nemotron_asr.chunks import FRAMES_PER_ROW
from sensorium.engine.models.nemotron_asr.conformer import ConformerConfig
from sensorium.engine.models.parakeet.info import WINDOW_FRAMES, ParakeetInfo
from sensorium.engine.models.parakeet.model import ParakeetCtcModel
from sensorium.engine.models.weights import Shape, num_bytes
from sensorium.kernels.linear.linear import arrange_linear, linear
from sensorium.kernels.linear.weight_codes import GRIDS, Quantization
from sensorium.media.audio.nemo_features import NemoFeatureConfig, log_mel, normalised
from sensorium.protocols.engine.messages import Transduce
from torch import Tensor

ROWS: Final = WINDOW_FRAMES // FRAMES_PER_ROW
NEW_S: Final = 0.08 * (ROWS - OVERLAP_ROWS)
"""Seconds of speech that a window has and the one before it had not."""


class Seconds(NamedTuple):
    """Of one piece of work."""

    clock: float
    processors: float


class CtcTensors(RandomTensors):
    """Blank is biased, so that tokens are as rare as in speech."""

    def take(self, name: str) -> Tensor:
        """See `RandomTensors.take`."""
        values = super().take(name)
        if name == "ctc_head.bias":
            values[BLANK] = 3.0
        return values


def published(num_layers: int) -> ConformerConfig:
    """The numbers of the checkpoint of 0.6 billion parameters."""
    return ConformerConfig(
        num_mel_bins=80,
        num_layers=num_layers,
        num_heads=8,
        hidden_size=1024,
        ffn_size=4096,
        kernel_size=9,
        channels=256,
        has_attention_bias=True,
        has_conv_bias=True,
        input_scale=32.0,
        is_causal=False,
    )


def make_model(
    config: ConformerConfig, dtype: torch.dtype, quantization: Quantization
) -> tuple[ParakeetCtcModel, float]:
    """The model, and the operations in billions of its products for a window; attention's included."""
    shapes: dict[str, Shape] = dict(config.tensor_shapes())
    shapes |= {"ctc_head.weight": (BLANK + 1, config.hidden_size, 1), "ctc_head.bias": (BLANK + 1,)}
    flat = {name: shape[:2] if shape[2:] == (1,) else shape for name, shape in shapes.items()}
    info = ParakeetInfo(
        name="random",
        folder=Path(),
        family="random",
        vocab_size=BLANK + 1,
        max_context=1,
        input_frames_per_row=FRAMES_PER_ROW,
        num_mel_bins=config.num_mel_bins,
    )
    tensors = CtcTensors(shapes, dtype, quantization)
    model = ParakeetCtcModel(info, config, BLANK, num_bytes(flat, dtype, quantization), tensors)
    products = sum(
        torch.Size(shape).numel()
        for name, shape in flat.items()
        if len(shape) == 2 and "relative" not in name and "bias" not in name and "subsampling" not in name
    )
    # Scores, scores by distance (twice as many), and the weighted sum, of every layer.
    attention = config.num_layers * 4 * ROWS * config.hidden_size
    subsampling = _subsampling_products(config)
    return model, 2 * (ROWS * (products + attention) + subsampling) / 1e9


def _subsampling_products(config: ConformerConfig) -> int:
    """Multiplications of the subsampling of a window: nine taps a channel, then channels by channels."""
    total, frames = 0, WINDOW_FRAMES
    for layer, bins in enumerate(config.mel_bins()):
        frames = -(-frames // 2)
        each = 9 + (config.channels if layer else 0)
        total += frames * bins * config.channels * each
    return total + ROWS * config.channels * config.mel_bins()[-1] * config.hidden_size


def timed(work: Callable[[], object], num: int) -> list[Seconds]:
    """Of each of so many times, after one that is not counted."""
    found = []
    for _ in range(num + 1):
        clock, processors = time.perf_counter(), time.process_time()
        work()
        found.append(Seconds(time.perf_counter() - clock, time.process_time() - processors))
    return found[1:]


def middle(found: list[Seconds]) -> Seconds:
    """The median of each."""
    return Seconds(*(statistics.median(values) for values in zip(*found, strict=True)))


def fastest(found: list[Seconds]) -> Seconds:
    """The least of each."""
    return Seconds(*(min(values) for values in zip(*found, strict=True)))


def run_window(model: ParakeetCtcModel, num_windows: int) -> Callable[[], None]:
    """A step of so many windows."""
    generator = torch.Generator().manual_seed(1)
    given = torch.randn(model.info.num_mel_bins, WINDOW_FRAMES, generator=generator)
    chunk = ChunkInput(given, WINDOW_FRAMES, True, True, Transduce(logprobs=True), 0)
    batch = ChunkBatch((chunk,) * num_windows, torch.arange(num_windows))

    def step() -> None:
        model.emit(model.listen(batch), batch)

    return step


def largest_product(
    config: ConformerConfig, dtype: torch.dtype, quantization: Quantization
) -> tuple[Callable[[], object], float]:
    """The rows of a window times a matrix of a feed-forward, twenty times, and the billions of operations."""
    weight = torch.randn(config.ffn_size, config.hidden_size).to(dtype)
    grid = None if quantization == "none" else GRIDS[quantization]
    arranged = arrange_linear(weight, None, grid)
    rows = torch.randn(ROWS, config.hidden_size).to(dtype)
    return lambda: [linear(rows, arranged) for _ in range(20)], 2 * 20 * ROWS * weight.numel() / 1e9


def main() -> None:
    """Print a line for the features, for the floor, and for each number of windows."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--quantization", choices=("none", "int8", "int4"), default="none")
    parser.add_argument("--windows", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--layers", type=int, default=24)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    config = published(options.layers)
    dtype: torch.dtype = getattr(torch, options.dtype)
    quantization = cast(Quantization, options.quantization)
    audio = np.random.default_rng(0).standard_normal(WINDOW_FRAMES * 160).astype(np.float32) * 0.1
    features = fastest(timed(lambda: normalised(log_mel(audio, NemoFeatureConfig(80))), options.steps))
    with torch.inference_mode():
        product, product_gflop = largest_product(config, dtype, quantization)
        alone = fastest(timed(product, options.steps))
        model, gflop = make_model(config, dtype, quantization)
        print(
            f"{options.layers} layers, {options.dtype}, quantization {quantization}, "
            f"{options.threads} threads: "
            f"{model.weight_bytes / 1e9:.2f} GB of weights, {gflop:.0f} GFLOP a window of {0.08 * ROWS:g} s; "
            f"features of it {features.clock:.3f} s (processors {features.processors:.3f})\n"
            f"the largest product alone: {product_gflop / alone.clock:.0f} GFLOP/s "
            f"({product_gflop / alone.processors:.0f} a processor): all at that rate would be "
            f"{NEW_S * product_gflop / alone.clock / gflop:.1f} x real time "
            f"({NEW_S * product_gflop / alone.processors / gflop:.1f} a processor)",
            flush=True,
        )
        for num in options.windows:
            found = timed(run_window(model, num), options.steps)
            step, best = middle(found), fastest(found)
            both = Seconds(best.clock + num * features.clock, best.processors + num * features.processors)
            gflops = gflop * num
            speech = NEW_S * num
            print(
                f"{num:3d} windows: {step.clock:6.2f} s a step (fastest {best.clock:.2f}), of processors "
                f"{step.processors:.2f} (least {best.processors:.2f}), {gflops / best.clock:.0f} GFLOP/s "
                f"({gflops / best.processors:.0f} a processor); features in front of it: "
                f"{speech / both.clock:.1f} x real time ({speech / both.processors:.1f} a processor)",
                flush=True,
            )


if __name__ == "__main__":
    main()
