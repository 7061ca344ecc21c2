"""Adapters: random changes of a checkpoint of low rank, and that checkpoint with them in its weights."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from sensorium.kernels.linear.row_adapters import RowChange
from torch import Tensor

RANK = 2


@dataclass(frozen=True)
class LowRankAdapter:
    """Changes by the names that a family gives to its tensors; `shapes` are of all two-dimensional ones."""

    shapes: dict[str, tuple[int, ...]]
    changes: dict[str, tuple[Tensor, Tensor]]

    def change_of(self, names: Sequence[str]) -> RowChange | None:
        """See `Adapter`; of joined weights those that it does not change add zeros."""
        if not any(name in self.changes for name in names):
            return None

        def change(x: Tensor) -> Tensor:
            parts = []
            for name in names:
                if name in self.changes:
                    down, up = (each.to(x.dtype) for each in self.changes[name])
                    parts.append(x @ down.t() @ up.t())
                else:
                    parts.append(x.new_zeros(x.shape[0], self.shapes[name][0]))
            return torch.cat(parts, 1)

        return change


def make_adapter(
    folder: Path, targets: Sequence[str], *, seed: int, drop: str = "", size: float = 0.4
) -> LowRankAdapter:
    """Of the tensors whose names contain one of `targets`; a family leaves the prefix `drop` out of names."""
    generator = torch.Generator().manual_seed(seed)
    tensors = load_file(folder / "model.safetensors")
    shapes = {name.removeprefix(drop): tuple(each.shape) for name, each in tensors.items() if each.ndim == 2}
    changes = {}
    for name, (out, inputs) in shapes.items():
        if any(target in name for target in targets):
            down = torch.randn(RANK, inputs, generator=generator) / inputs**0.5
            changes[name] = (down, size * torch.randn(out, RANK, generator=generator))
    assert changes, f"no tensor is one of {targets}"
    return LowRankAdapter(shapes, changes)


def merged_folder(folder: Path, to: Path, adapter: LowRankAdapter, *, drop: str = "") -> Path:
    """A copy of the checkpoint whose own weights have the changes."""
    shutil.copytree(folder, to)
    tensors = load_file(folder / "model.safetensors")
    for name in tensors:
        if name.removeprefix(drop) in adapter.changes:
            down, up = adapter.changes[name.removeprefix(drop)]
            tensors[name] = tensors[name] + up @ down
    save_file(tensors, to / "model.safetensors", metadata={"format": "pt"})
    return to
