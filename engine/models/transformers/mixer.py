"""What all recurrent layers of `transformers` models have in common here: weights, room for states, rows.

Read `engine/models/transformers/mixers.py` for the layers themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from torch import Tensor, nn
from transformers.activations import ACT2FN

from ....kernels.recurrence import convolve_in_slots
from ..mixers.short_convolution import short_convolution
from ..mixers.slots import MixerStates, Place

_SILU: Final = (nn.SiLU, type(ACT2FN["silu"]))


class Mixer(nn.Module):
    """Stands for one recurrent layer, whose weights it keeps under their names."""

    taps: Tensor
    """Of its convolution, float32 [width, channels]."""
    offset: Tensor | None
    """Of its convolution, float32 [channels]."""

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
        taps = convolution.weight.detach().squeeze(1).t().float().contiguous()
        keep(self, taps=taps, offset=None if convolution.bias is None else convolution.bias.float())
        width, channels = taps.shape
        self._tail = self.reserve(width - 1, channels)

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
        states = self.states.in_slots(self._tail)
        if states is not None:
            activated = isinstance(activation, _SILU)
            output = convolve_in_slots(rows, states, self.taps, self.offset, activated=activated)
            activation = None if activated else activation
        else:
            tails = self.states.read(self._tail)
            output, tails = short_convolution(rows, tails, self.taps, self.offset, self.states.lengths)
            self.states.write(self._tail, tails)
        return (output if activation is None else activation(output)).to(rows.dtype)


def keep(module: nn.Module, **tensors: Tensor | None) -> None:
    """As buffers: what is computed of weights once."""
    for name, tensor in tensors.items():
        module.register_buffer(name, None if tensor is None else tensor.detach(), persistent=False)


def of_heads(rows: Tensor, size: int) -> Tensor:
    """[rows, heads · size] → [rows, heads, size]."""
    return rows.view(len(rows), -1, size)
