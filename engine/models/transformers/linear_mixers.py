"""Recurrent layers that are no Mamba and no delta net: lightning attention, Griffin's recurrence, RWKV 4.

Read `engine/models/transformers/mixers.py` for where they are chosen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from ..mixers.linear_recurrence import linear_recurrence
from ..mixers.sequences import last_rows
from ..mixers.slots import MixerStates
from ..mixers.state_space_dual import state_space_dual
from ..mixers.weighted_average import weighted_average
from .mixer import Mixer, keep


class LightningAttention(Mixer):
    """MiniMax's: attention without softmax, each head with a decay."""

    qkv_proj: nn.Module
    norm: nn.Module
    output_gate: nn.Module
    out_proj: nn.Module
    decay: Tensor
    skip: Tensor

    def __init__(self, original: Any, states: MixerStates) -> None:  # noqa: ANN401
        super().__init__(original, states, None)
        self._act: Callable[[Tensor], Tensor] = original.act_fn
        self._heads, self._size = original.num_attention_heads, original.head_dim
        decay = -original.slope_rate.float().flatten()
        keep(self, decay=decay, skip=torch.zeros_like(decay))
        self._state = self.reserve(self._heads, self._size, self._size)

    def forward(self, hidden_states: Tensor, *_: object, **__: object) -> tuple[Tensor, None]:
        """See `Mixer`."""
        return self.mix(hidden_states[0])[None], None

    def mix(self, rows: Tensor) -> Tensor:
        """See `Mixer`."""
        parts = self._act(self.qkv_proj(rows)).view(len(rows), self._heads, -1)
        queries, keys, values = cast(Any, parts).split(self._size, -1)
        output, states = state_space_dual(
            values,
            torch.ones_like(values[..., 0]),
            keys,
            queries,
            self.states.read(self._state),
            decay=self.decay,
            skip=self.skip,
            lengths=self.states.lengths,
        )
        self.states.write(self._state, states)
        normed = self.norm(output.flatten(1).to(rows.dtype))
        return cast(Tensor, self.out_proj(self.output_gate(rows).sigmoid() * normed))


class GatedRecurrence(Mixer):
    """RecurrentGemma's: a convolution and a recurrence of each channel, beside a gate."""

    linear_x: nn.Module
    linear_y: nn.Module
    linear_out: nn.Module
    rg_lru: Any

    def __init__(self, original: Any, states: MixerStates) -> None:  # noqa: ANN401
        super().__init__(original, states, original.conv_1d)
        self._act: Callable[[Tensor], Tensor] = original.act_fn
        self._state = self.reserve(original.lru_width)

    def forward(
        self, hidden_states: Tensor, position_ids: Tensor, *_: object, **__: object
    ) -> tuple[Tensor, None]:
        """See `Mixer`."""
        self._is_first = position_ids[0][:, None] == 0
        return self.mix(hidden_states[0])[None], None

    def mix(self, rows: Tensor) -> Tensor:
        """See `Mixer`."""
        x = self.convolve(self.linear_x(rows))
        gates = x.view(len(x), self.rg_lru.num_attention_heads, -1).transpose(0, 1)
        inputs = self._gate(gates, self.rg_lru.input_gate_weight, self.rg_lru.input_gate_bias)
        recurrent = self._gate(gates, self.rg_lru.recurrent_gate_weight, self.rg_lru.recurrent_gate_bias)
        decay = -8.0 * recurrent * softplus(self.rg_lru.recurrent_param)
        # The first of a sequence has nothing to be balanced with.
        balance = (1 - (2 * decay).exp()).sqrt().where(~self._is_first, torch.ones_like(decay))
        output, states = linear_recurrence(
            x * inputs * balance.to(x.dtype), decay.exp(), self.states.read(self._state), self.states.lengths
        )
        self.states.write(self._state, states)
        return cast(Tensor, self.linear_out(output.to(rows.dtype) * self._act(self.linear_y(rows))))

    def _gate(self, heads: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return torch.baddbmm(bias[:, None], heads, weight).transpose(0, 1).flatten(1).sigmoid()


class RwkvAttention(Mixer):
    """RWKV 4's: an average of values, weighted by keys and how long ago they were."""

    key: nn.Module
    value: nn.Module
    receptance: nn.Module
    output: nn.Module
    time_mix_key: Tensor
    time_mix_value: Tensor
    time_mix_receptance: Tensor
    time_decay: Tensor
    time_first: Tensor

    def __init__(self, original: Any, states: MixerStates) -> None:  # noqa: ANN401
        super().__init__(original, states, None)
        self._before = self.reserve(original.key.in_features)
        self._state = self.reserve(3, original.attention_hidden_size)

    def forward(self, hidden: Tensor, *_: object, **__: object) -> tuple[Tensor, None]:  # type: ignore[override]
        """See `Mixer`."""
        return self.mix(hidden[0])[None], None

    def mix(self, rows: Tensor) -> Tensor:
        """See `Mixer`."""
        before, last = last_rows(rows, self.states.read(self._before), self.states.lengths)
        self.states.write(self._before, last)
        key = self.key(torch.lerp(before, rows, self.time_mix_key[0]))
        value = self.value(torch.lerp(before, rows, self.time_mix_value[0]))
        receptance = self.receptance(torch.lerp(before, rows, self.time_mix_receptance[0])).sigmoid()
        average, states = weighted_average(
            key,
            value,
            self.states.read(self._state),
            decay=-self.time_decay.float().exp(),
            bonus=self.time_first.float(),
            lengths=self.states.lengths,
        )
        self.states.write(self._state, states)
        return cast(Tensor, self.output(receptance * average.to(rows.dtype)))


class RwkvFeedForward(Mixer):
    """RWKV 4's, which looks at the row before, too."""

    key: nn.Module
    value: nn.Module
    receptance: nn.Module
    time_mix_key: Tensor
    time_mix_receptance: Tensor

    def __init__(self, original: Any, states: MixerStates) -> None:  # noqa: ANN401
        super().__init__(original, states, None)
        self._before = self.reserve(original.key.in_features)

    def forward(self, hidden: Tensor, *_: object, **__: object) -> tuple[Tensor, None]:  # type: ignore[override]
        """See `Mixer`."""
        return self.mix(hidden[0])[None], None

    def mix(self, rows: Tensor) -> Tensor:
        """See `Mixer`."""
        before, last = last_rows(rows, self.states.read(self._before), self.states.lengths)
        self.states.write(self._before, last)
        key = self.key(torch.lerp(before, rows, self.time_mix_key[0])).relu().square()
        receptance = self.receptance(torch.lerp(before, rows, self.time_mix_receptance[0])).sigmoid()
        return cast(Tensor, receptance * self.value(key))
