"""Steps of a streaming transducer of Nemotron's published shape, with random weights, by live sessions.

    python examples/benchmarks/bench_transducer.py [--dtype bfloat16] [--quantization int8]
        [--sessions 1 8 16] [--lookahead 6] [--steps 5] [--threads 2] [--layers 24]

Every step has one chunk of each session (560 ms at the default look-ahead), all past their window of
attention. Printed are the milliseconds of a step, how many sessions such steps would keep up with, and the
floor: the bytes that a step reads once, and the products' operations. Blank is biased, so that rows end.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Final, cast

import torch
from sensorium.engine.models.base import ChunkBatch, ChunkInput
from sensorium.engine.models.nemotron_asr.chunks import FRAMES_PER_ROW, chunk_frames, chunk_rows
from sensorium.engine.models.nemotron_asr.conformer import ConformerConfig
from sensorium.engine.models.nemotron_asr.info import NemotronAsrInfo
from sensorium.engine.models.nemotron_asr.model import NemotronAsrConfig, NemotronAsrModel
from sensorium.engine.models.nemotron_asr.transducer import TransducerConfig
from sensorium.engine.models.weights import Shape, TensorReader, num_bytes
from sensorium.kernels.linear.weight_codes import Quantization
from sensorium.protocols.engine.messages import Transduce
from torch import Tensor

BLANK: Final = 1024


class RandomTensors(TensorReader):
    """Tensors of the shapes, random when they are taken."""

    def __init__(self, shapes: dict[str, Shape], dtype: torch.dtype, quantization: Quantization) -> None:
        super().__init__(Path(), {}, torch.device("cpu"), dtype, quantization)
        self._shapes = dict(shapes)
        self._generator = torch.Generator().manual_seed(0)

    def __contains__(self, name: object) -> bool:
        """Whether it was not taken yet."""
        return name in self._shapes

    def take(self, name: str) -> Tensor:
        """One of them: rows of products keep their size, scales of norms are 1."""
        shape = self._shapes.pop(name)
        if len(shape) == 1:
            values = torch.ones(shape) if "norm" in name and name.endswith("weight") else torch.zeros(shape)
            if name == "joint.head.bias":
                values[BLANK] = 3.0
            return values.to(self.dtype)
        inputs = torch.Size(shape[1:]).numel()
        return (torch.rand(shape, generator=self._generator) - 0.5).mul_(3.4 / inputs**0.5).to(self.dtype)


def published(num_layers: int) -> NemotronAsrConfig:
    """The numbers of the checkpoint of 0.6 billion parameters."""
    encoder = ConformerConfig(
        num_mel_bins=128,
        num_layers=num_layers,
        num_heads=8,
        hidden_size=1024,
        ffn_size=4096,
        kernel_size=9,
        channels=256,
        has_attention_bias=False,
        has_conv_bias=False,
        input_scale=1.0,
        is_causal=True,
    )
    transducer = TransducerConfig(
        vocab_size=BLANK + 1, blank=BLANK, start=BLANK, num_layers=2, hidden_size=640, most_symbols=10
    )
    return NemotronAsrConfig(encoder=encoder, left_context=70, transducer=transducer, prompt=None)


def make_model(
    config: NemotronAsrConfig, dtype: torch.dtype, quantization: Quantization
) -> tuple[NemotronAsrModel, float]:
    """The model, and millions of multiplications of its products for a row of the encoder."""
    shapes = config.tensor_shapes()
    flat = {name: shape[:2] if shape[2:] == (1,) else shape for name, shape in shapes.items()}
    weight_bytes = num_bytes(flat, dtype, quantization)
    info = NemotronAsrInfo(
        name="random",
        folder=Path(),
        family="random",
        vocab_size=config.transducer.vocab_size,
        max_context=1,
        input_frames_per_row=FRAMES_PER_ROW,
        num_mel_bins=config.encoder.num_mel_bins,
        lookaheads=(6, 13, 1, 0),
        conditions={},
        default_condition=0,
        state_bytes=config.state_elements() * dtype.itemsize,
    )
    model = NemotronAsrModel(info, config, weight_bytes, RandomTensors(shapes, dtype, quantization))
    layers = {name: shape for name, shape in flat.items() if name.startswith("encoder.layers.")}
    products = [
        torch.Size(shape).numel()
        for name, shape in layers.items()
        if len(shape) == 2 and "relative" not in name and "bias" not in name
    ]
    return model, sum(products) / 1e6


def run_steps(model: NemotronAsrModel, num_sessions: int, lookahead: int, num_steps: int) -> list[float]:
    """Seconds of each step, behind those that fill the windows."""
    model.make_states(num_sessions)
    slots, task, seconds = torch.arange(num_sessions), Transduce(lookahead), []
    generator = torch.Generator().manual_seed(1)
    num_rows = 0
    num_filling = -(-70 // chunk_rows(lookahead)) + 1
    # The windows are filled by one long step, as input that is fed again is.
    sizes = [num_filling, *(1,) * (num_steps + 1)]
    for turn, size in enumerate(sizes):
        frames = chunk_frames(lookahead, is_first=turn == 0)
        frames += (size - 1) * chunk_frames(lookahead, is_first=False)
        given = torch.randn(model.info.num_mel_bins, frames, generator=generator)
        chunk = ChunkInput(given, frames, turn == 0, False, task, num_rows)
        batch = ChunkBatch((chunk,) * num_sessions, slots)
        start = time.perf_counter()
        listened = model.listen(batch)
        model.commit(batch, listened, model.emit(listened, batch))
        seconds.append(time.perf_counter() - start)
        num_rows += listened.num_rows[0]
    return seconds[2:]


def main() -> None:
    """Print a line for each number of sessions."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--quantization", choices=("none", "int8", "int4"), default="none")
    parser.add_argument("--sessions", type=int, nargs="+", default=[1, 8, 16])
    parser.add_argument("--lookahead", type=int, choices=(0, 1, 6, 13), default=6)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--layers", type=int, default=24)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    config = published(options.layers)
    dtype: torch.dtype = getattr(torch, options.dtype)
    with torch.inference_mode():
        model, millions = make_model(config, dtype, cast(Quantization, options.quantization))
        rows = chunk_rows(options.lookahead)
        chunk_ms = 80 * rows
        print(
            f"{options.layers} layers, {options.dtype}, quantization {options.quantization}, "
            f"{options.threads} threads: {model.weight_bytes / 1e9:.2f} GB of weights, "
            f"{model.info.state_bytes / 1e6:.1f} MB a session, {2 * millions * rows / 1e3:.1f} GFLOP a chunk "
            f"of {chunk_ms} ms"
        )
        for num in options.sessions:
            seconds = run_steps(model, num, options.lookahead, options.steps)
            middle = 1000 * statistics.median(seconds)
            gflop = 2 * millions * rows * num / 1e3
            print(
                f"{num:3d} sessions: {middle:7.1f} ms a step (fastest {1000 * min(seconds):.1f}), "
                f"{middle / num:6.1f} ms a chunk, {gflop / min(seconds):5.0f} GFLOP/s, "
                f"{model.weight_bytes / 1e9 / min(seconds):5.1f} GB/s of weights; "
                f"{num * chunk_ms / middle:.1f} sessions would keep up",
                flush=True,
            )


if __name__ == "__main__":
    main()
