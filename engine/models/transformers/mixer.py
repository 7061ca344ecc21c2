"""What all recurrent layers of `transformers` models have in common here: weights, room for states, rows.

Read `engine/models/transformers/mixers.py` for the layers themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from ..mixers.short_convolution import short_convolution
from ..mixers.slots import MixerStates, Place


class Mixer(nn.Module):
    """Stands for one recurrent layer, whose weights it keeps under their names."""

    def __init__(self, original: Any, states: MixerStates, convolution: nn.Conv1d | None) -> None:  # noqa: ANN401
        super().__init__()
        for name, child in original.named_children():
            self.add_module(name, child)
        for name, parameter in original.named_parameters(recurse=False):
            self.register_parameter(name, parameter)
        for name, buffer in original.named_buffers(recurse=False):
            self.register_buffer(name, buffer, persistent=False)
        self.states = states
        self.layer = 0
        """Its number in the model."""
        self.places: list[Place] = []
        if convolution is None:
            return
        self._weight = convolution.weight.detach().squeeze(1)
        self._bias = None if convolution.bias is None else convolution.bias.detach()
        channels, width = self._weight.shape
        self._tail = self.reserve(channels, width - 1)

    def reserve(self, *shape: int) -> Place:
        """Room for one state of this layer."""
        self.places.append(self.states.reserve(*shape))
        return self.places[-1]

    def forward(self, hidden_states: Tensor, *_: Any, **__: Any) -> Any:  # noqa: ANN401
        """[1, rows, hidden] of a step's sequences, one after the other, as the layer's own code has it."""
        return self.mix(hidden_states[0])[None]

    def mix(self, rows: Tensor) -> Tensor:
        """[rows, hidden] → [rows, hidden]."""
        raise NotImplementedError

    def convolve(self, rows: Tensor, activation: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """[rows, channels], each sequence's behind what it had before."""
        tails = self.states.read(self._tail)
        output, tails = short_convolution(rows, tails, self._weight, self._bias, self.states.lengths)
        self.states.write(self._tail, tails)
        return (output if activation is None else activation(output)).to(rows.dtype)


def keep(module: nn.Module, **tensors: Tensor) -> None:
    """As buffers: what is computed of weights once."""
    for name, tensor in tensors.items():
        module.register_buffer(name, tensor.detach(), persistent=False)


def of_heads(rows: Tensor, size: int) -> Tensor:
    """[rows, heads · size] → [rows, heads, size]."""
    return rows.view(len(rows), -1, size)
