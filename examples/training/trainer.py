"""What the training scripts share: the optimiser, a running mean of the weights, and their state on disk.

Knows a module and a number of steps; neither audio nor what the losses mean. `train_tiny_whisper.py` and
`train_tiny_qwen3_asr.py` use it.
"""

import math
import os
from pathlib import Path
from typing import Any

import torch
from torch import nn

PEAK_LEARNING_RATE = 1.5e-3
WARMUP_SHARE = 0.06
WEIGHT_DECAY = 0.01
EMA_DECAY = 0.999


def learning_rate(step: int, num_steps: int) -> float:
    """Linear warm-up, then a cosine down to a hundredth of the peak."""
    warmup = max(1, int(WARMUP_SHARE * num_steps))
    if step < warmup:
        return PEAK_LEARNING_RATE * (step + 1) / warmup
    progress = (step - warmup) / max(1, num_steps - warmup)
    return PEAK_LEARNING_RATE * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * progress)))


class Training:
    """A module being trained for `num_steps`; `step` are done."""

    def __init__(self, model: nn.Module, num_steps: int, path: Path) -> None:
        self.step = 0
        self._model = model
        self._num_steps = num_steps
        self._path = path
        self._parameters: list[torch.Tensor] = [p for p in model.parameters() if p.requires_grad]
        self._optimizer = torch.optim.AdamW(
            self._parameters, lr=0.0, betas=(0.9, 0.98), weight_decay=WEIGHT_DECAY, foreach=True
        )
        self._mean = [p.detach().clone() for p in self._parameters]

    def take(self, loss: torch.Tensor) -> None:
        """One step down the gradient of `loss`."""
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate(self.step, self._num_steps)
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(self._parameters, 1.0)
        self._optimizer.step()
        self._optimizer.zero_grad()
        # A short memory at first, or the mean would hold on to the random start.
        decay = min(EMA_DECAY, (1 + self.step) / (10 + self.step))
        with torch.no_grad():
            torch._foreach_lerp_(self._mean, self._parameters, 1 - decay)
        self.step += 1

    def mean_weights(self) -> dict[str, torch.Tensor]:
        """The running mean of every trained parameter, by its name in the module."""
        named = (name for name, parameter in self._model.named_parameters() if parameter.requires_grad)
        return dict(zip(named, self._mean, strict=True))

    def save(self) -> None:
        """Write the state, at once or not at all."""
        temporary = self._path.with_suffix(".tmp")
        state = {
            "model": self._model.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "mean": self._mean,
            "step": self.step,
        }
        torch.save(state, temporary)
        os.replace(temporary, self._path)

    def restore(self) -> None:
        """Continue from the last saved state."""
        state: dict[str, Any] = torch.load(self._path, weights_only=True)
        self._model.load_state_dict(state["model"])
        self._optimizer.load_state_dict(state["optimizer"])
        self._mean = state["mean"]
        self.step = state["step"]
        print(f"resuming at step {self.step}", flush=True)
