"""A family that is none of ours: a convolution over log-mel frames and CTC, the best label of each frame.

A CTC model has no decoder: what is said is known when a window is encoded, labels without repeats and blanks.
A step therefore only reads it out: the row at position p gives label p of the window it attends to, and the
end behind the last. The cache of keys and values stays empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from sensorium.engine.models.base import EncoderOutput, KvShape, StepBatch
from sensorium.engine.models.source import ModelSource, Opening, tensor_reader
from sensorium.engine.models.weights import Shape, TensorReader, num_bytes
from sensorium.protocols.engine.messages import Align, Features
from support.ctc.text import BLANK, END, VOCAB_SIZE, CtcInfo, open_side
from torch import Tensor

STRIDE = 4


@dataclass(frozen=True)
class Labels:
    """What a window says: labels int64 [n], and the frame each begins at."""

    labels: Tensor
    frames: Tensor
    num_rows: int = 0

    @property
    def num_bytes(self) -> int:
        """Bytes held."""
        return self.labels.nbytes + self.frames.nbytes


class CtcModel:
    """See `Model`."""

    rotary_axes = 1
    kv_shape = KvShape(1, 1, 1)

    def __init__(self, info: CtcInfo, tensors: TensorReader) -> None:
        self.info = info
        self.device, self.dtype = tensors.device, tensors.dtype
        self._kernel = tensors.take("encoder.weight")
        self._head = tensors.take("head.weight")
        self.weight_bytes = self._head.nbytes
        tensors.finish()

    def check_features(self, features: Features) -> None:
        """See `Model`."""
        if features.shape != self.info.attended_shape:
            raise ValueError(f"features of shape {features.shape} are not {self.info.attended_shape}")

    def encode(self, items: Sequence[Features]) -> list[EncoderOutput]:
        """See `Model`."""
        return [self._labels(item) for item in items]

    def _labels(self, item: Features) -> Labels:
        frames = torch.frombuffer(bytearray(item.data), dtype=torch.float32).view(1, *item.shape)
        hidden = torch.conv1d(frames.to(self.dtype), self._kernel, stride=STRIDE, padding=1)[0].t().tanh()
        best = (hidden @ self._head.t()).argmax(-1)
        is_kept = (best != torch.cat([torch.tensor([BLANK]), best[:-1]])) & (best != BLANK)
        return Labels(best[is_kept], is_kept.nonzero()[:, 0])

    def forward(self, batch: StepBatch, cache: Tensor) -> Tensor:
        """The label of each row: one number instead of a hidden state."""
        rows: list[Tensor] = []
        first = 0
        for each in batch.cross_attending:
            assert isinstance(each.output, Labels)
            labels = torch.cat([each.output.labels, torch.tensor([END])])
            places = batch.positions[first : first + each.num_rows].clamp(max=len(labels) - 1)
            rows.append(labels[places])
            first += each.num_rows
        return torch.cat(rows)[:, None].to(self.dtype)

    def logits(self, hidden: Tensor) -> Tensor:
        """See `Model`: nearly all the probability is that of the label."""
        return 20.0 * torch.nn.functional.one_hot(hidden[:, 0].long(), VOCAB_SIZE).float()

    def align(self, task: Align, _: Sequence[int], output: EncoderOutput) -> tuple[int, ...]:
        """See `AligningModel`: no search, the frames are known."""
        assert isinstance(output, Labels)
        frames = output.frames[: task.text_end - task.text_start].tolist()
        return (*(min(frame, task.num_frames) for frame in frames), task.num_frames)


def open_source(opening: Opening) -> ModelSource:
    """Check config, names and shapes."""
    config = opening.config
    num_mel_bins, num_frames, size = config["num_mel_bins"], config["num_frames"], config["hidden_size"]
    expected: dict[str, Shape] = {
        "encoder.weight": (size, num_mel_bins, STRIDE),
        "head.weight": (END, size),
    }
    num_labels = num_frames // STRIDE
    info = CtcInfo(
        name=opening.name,
        folder=opening.folder,
        family="random_ctc",
        vocab_size=VOCAB_SIZE,
        max_context=num_labels + 2,
        stop_token_ids=(END,),
        attended_shape=(num_mel_bins, num_frames),
        attended_tokens=num_labels,
    )

    reader = tensor_reader(opening, expected)
    return ModelSource(
        info=info,
        device=opening.device,
        dtype=opening.dtype,
        kv_shape=CtcModel.kv_shape,
        weight_bytes=num_bytes(expected, opening.dtype),
        side=open_side(info),
        load=lambda: CtcModel(info, reader.read()),
        encoder_bytes=lambda item: 16 * num_labels,
    )
