"""In place of the recurrent layers of a `transformers` model: its weights, our mixers, states in slots.

A layer of `transformers` keeps one state and takes what it is given as one sequence. Ours takes the packed
rows of a step and finds each sequence's state in its slot. `engine/models/mixers/` has the mathematics,
`engine/models/transformers/mixer.py` what all have in common, `engine/models/transformers/model.py` runs
the model around them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import silu, softplus
from transformers.activations import ACT2FN

from ....kernels.recurrence import DeltaRule, delta_rule_in_slots
from ..mixers.gated_delta_rule import gated_delta_rule
from ..mixers.selective_scan import selective_scan
from ..mixers.slots import MixerStates
from ..mixers.state_space_dual import state_space_dual
from .linear_mixers import GatedRecurrence, LightningAttention, RwkvAttention, RwkvFeedForward
from .mixer import Mixer, keep, of_heads

_NORM_EPSILON: Final = 1e-6
"""Of queries and keys of delta nets."""


class GatedConvolution(Mixer):
    """LFM2's: a short convolution between two gates."""

    in_proj: nn.Module
    out_proj: nn.Module

    def __init__(self, original: Any, states: MixerStates) -> None:  # noqa: ANN401
        super().__init__(original, states, original.conv)

    def mix(self, rows: Tensor) -> Tensor:
        """See `Mixer`."""
        before, after, x = self.in_proj(rows).chunk(3, -1)
        return cast(Tensor, self.out_proj(after * self.convolve(before * x)))


class Mamba(Mixer):
    """Mamba 1, with norms of its time step and projections where a family has them."""

    in_proj: nn.Module
    x_proj: nn.Module
    dt_proj: nn.Module
    out_proj: nn.Module
    decay: Tensor
    skip: Tensor

    def __init__(self, original: Any, states: MixerStates) -> None:  # noqa: ANN401
        super().__init__(original, states, original.conv1d)
        self._act = ACT2FN[original.activation]
        self._sizes = (original.time_step_rank, original.ssm_state_size, original.ssm_state_size)
        names = ("dt_layernorm", "b_layernorm", "c_layernorm")
        self._norms = [getattr(original, name, nn.Identity()) for name in names]
        keep(self, decay=-original.A_log.float().exp()[None], skip=original.D.float()[None])
        self._state = self.reserve(*self.decay.shape)

    def mix(self, rows: Tensor) -> Tensor:
        """See `Mixer`."""
        x, gate = self.in_proj(rows).chunk(2, -1)
        x = self.convolve(x, self._act)
        parts = self.x_proj(x).split(self._sizes, -1)
        dt, b, c = (norm(part) for norm, part in zip(self._norms, parts, strict=True))
        output, states = selective_scan(
            x[:, None],
            softplus(self.dt_proj(dt).float())[:, None],
            b[:, None],
            c[:, None],
            self.states.read(self._state),
            decay=self.decay,
            skip=self.skip,
            lengths=self.states.lengths,
        )
        self.states.write(self._state, states)
        return cast(Tensor, self.out_proj((output[:, 0] * silu(gate)).to(rows.dtype)))


class ZambaMamba(Mixer):
    """Mamba 1 in heads, each with projections of its own."""

    in_proj: nn.Module
    out_proj: nn.Module
    x_proj_weight: Tensor
    dt_proj_weight: Tensor
    dt_proj_bias: Tensor
    decay: Tensor
    skip: Tensor

    def __init__(self, original: Any, states: MixerStates) -> None:  # noqa: ANN401
        super().__init__(original, states, original.conv1d)
        self._act = ACT2FN[original.activation]
        self._sizes = (original.time_step_rank, original.ssm_state_size, original.ssm_state_size)
        keep(self, decay=-original.A_log.float().exp(), skip=original.D.float())
        self._state = self.reserve(*self.decay.shape)

    def mix(self, rows: Tensor) -> Tensor:
        """See `Mixer`."""
        x, gate = self.in_proj(rows).unflatten(-1, (-1, 2)).unbind(-1)  # channel by channel
        x = self.convolve(x, self._act).view(len(rows), *self.skip.shape)
        parts = torch.einsum("rhc,hpc->rhp", x, self.x_proj_weight)
        dt, b, c = cast(Any, parts).split(self._sizes, -1)
        dt = torch.einsum("rht,hct->rhc", dt, self.dt_proj_weight)
        output, states = selective_scan(
            x,
            softplus(dt.float() + self.dt_proj_bias.float()),
            b,
            c,
            self.states.read(self._state),
            decay=self.decay,
            skip=self.skip,
            lengths=self.states.lengths,
        )
        self.states.write(self._state, states)
        return cast(Tensor, self.out_proj((output.flatten(1) * silu(gate)).to(rows.dtype)))


class Mamba2(Mixer):
    """Mamba 2."""

    in_proj: nn.Module
    norm: nn.Module
    out_proj: nn.Module
    decay: Tensor
    skip: Tensor
    dt_bias: Tensor

    def __init__(self, original: Any, states: MixerStates) -> None:  # noqa: ANN401
        super().__init__(original, states, original.conv1d)
        self._act = ACT2FN[original.activation]
        self._limits = tuple(map(float, original.time_step_limit))
        inner, heads = original.intermediate_size, original.num_heads
        self._head_dim, self._size = original.head_dim, original.ssm_state_size
        self._projected: list[int] = [inner, original.conv_dim, heads]
        self._convolved: list[int] = [inner, original.n_groups * self._size, original.n_groups * self._size]
        keep(self, decay=-original.A_log.float().exp(), skip=original.D.float())
        self._state = self.reserve(heads, self._head_dim, self._size)

    def project(self, rows: Tensor) -> Tensor:
        """Gate, what is convolved, and time steps."""
        return cast(Tensor, self.in_proj(rows))

    def gated(self, output: Tensor, gate: Tensor) -> Tensor:
        """The scan's output [rows, inner] behind its gate."""
        return cast(Tensor, self.norm(output, gate))

    def mix(self, rows: Tensor) -> Tensor:
        """See `Mixer`."""
        gate, x, dt = torch.split(self.project(rows), self._projected, -1)
        x, b, c = torch.split(self.convolve(x, self._act), self._convolved, -1)
        output, states = state_space_dual(
            of_heads(x, self._head_dim),
            softplus(dt.float() + self.dt_bias.float()).clamp(*self._limits),
            of_heads(b, self._size),
            of_heads(c, self._size),
            self.states.read(self._state),
            decay=self.decay,
            skip=self.skip,
            lengths=self.states.lengths,
        )
        self.states.write(self._state, states)
        return cast(Tensor, self.out_proj(self.gated(output.flatten(1), gate).to(rows.dtype)))


class FalconH1Mamba(Mamba2):
    """With fixed factors, and a norm behind the gate only if the config says so."""

    mup_vector: Tensor

    def __init__(self, original: Any, states: MixerStates) -> None:  # noqa: ANN401
        super().__init__(original, states)
        self._factor: float = original.ssm_in_multiplier
        self._is_normed: bool = original.mamba_rms_norm

    def project(self, rows: Tensor) -> Tensor:
        """See `Mamba2`."""
        return super().project(rows * self._factor) * self.mup_vector[0]

    def gated(self, output: Tensor, gate: Tensor) -> Tensor:
        """See `Mamba2`."""
        return super().gated(output, gate) if self._is_normed else output * silu(gate)


class DeltaNet(Mixer):
    """A gated delta net; families differ in how they project."""

    A_log: Tensor
    dt_bias: Tensor
    rates: Tensor
    steps: Tensor
    scale: Tensor
    norm_name, output_name = "norm", "out_proj"
    most_beta = 1.0

    def __init__(self, original: Any, states: MixerStates) -> None:  # noqa: ANN401
        super().__init__(original, states, original.conv1d)
        self._act = ACT2FN[original.activation]
        self._key_size, self._value_size = original.head_k_dim, original.head_v_dim
        self._key_heads = original.num_k_heads
        self._convolved: list[int] = [original.key_dim, original.key_dim, original.value_dim]
        self._state = self.reserve(original.num_v_heads, self._key_size, self._value_size)
        norm: Any = original.get_submodule(self.norm_name)
        self._eps = float(norm.variance_epsilon)
        keep(self, rates=-self.A_log.float().exp(), steps=self.dt_bias.float(), scale=norm.weight.float())

    def project(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Queries, keys and values side by side, gate, and what `beta` and decay are made of."""
        raise NotImplementedError

    def mix(self, rows: Tensor) -> Tensor:
        """See `Mixer`."""
        mixed, gate, b, a = self.project(rows)
        output = self.get_submodule(self.output_name)
        return cast(Tensor, output(self.between(mixed, gate, b, a)))

    def between(self, mixed: Tensor, gate: Tensor, b: Tensor, a: Tensor) -> Tensor:
        """What `project` gives → [rows, heads · value size], to be projected to the layer's output."""
        convolved = self.convolve(mixed, self._act)
        in_slots = self.states.in_slots(self._state)
        if in_slots is not None:
            rule = DeltaRule(
                *(self._key_heads, self._key_size, self._value_size, self.rates, self.steps),
                *(self.most_beta, self.scale, self._eps),
            )
            return delta_rule_in_slots(convolved, b, a, gate, in_slots, rule).to(mixed.dtype)
        queries, keys, values = torch.split(convolved, self._convolved, -1)
        queries, keys = (_normed(of_heads(each, self._key_size).float()) for each in (queries, keys))
        output, states = gated_delta_rule(
            queries * self._key_size**-0.5,
            keys,
            of_heads(values, self._value_size),
            self.rates * softplus(a.float() + self.steps),
            b.float().sigmoid() * self.most_beta,
            self.states.read(self._state),
            lengths=self.states.lengths,
        )
        self.states.write(self._state, states)
        norm = self.get_submodule(self.norm_name)
        gated = norm(output.flatten(0, 1), gate.reshape(-1, self._value_size))
        return cast(Tensor, gated.view(len(mixed), -1).to(mixed.dtype))


class Qwen3NextDeltaNet(DeltaNet):
    """With the projections of each key head side by side."""

    in_proj_qkvz: nn.Module
    in_proj_ba: nn.Module

    def project(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """See `DeltaNet`."""
        values = self._convolved[2] // self._key_heads
        sizes = (self._key_size, self._key_size, values, values)
        parts = self.in_proj_qkvz(rows).unflatten(-1, (self._key_heads, -1)).split(sizes, -1)
        b, a = self.in_proj_ba(rows).unflatten(-1, (self._key_heads, -1)).chunk(2, -1)
        queries, keys, values, gate = (part.flatten(1) for part in parts)
        return torch.cat((queries, keys, values), -1), gate, b.flatten(1), a.flatten(1)


class Qwen35DeltaNet(DeltaNet):
    """With one projection for queries, keys and values."""

    in_proj_qkv: nn.Module
    in_proj_z: nn.Module
    in_proj_b: nn.Module
    in_proj_a: nn.Module

    def project(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """See `DeltaNet`."""
        return self.in_proj_qkv(rows), self.in_proj_z(rows), self.in_proj_b(rows), self.in_proj_a(rows)


class OlmoDeltaNet(DeltaNet):
    """With a projection for each, and a `beta` of up to 2 if the config says so."""

    q_proj: nn.Module
    k_proj: nn.Module
    v_proj: nn.Module
    g_proj: nn.Module
    b_proj: nn.Module
    a_proj: nn.Module
    norm_name, output_name = "o_norm", "o_proj"

    def __init__(self, original: Any, states: MixerStates) -> None:  # noqa: ANN401
        super().__init__(original, states)
        self.most_beta = 2.0 if original.allow_neg_eigval else 1.0

    def project(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """See `DeltaNet`."""
        mixed = torch.cat((self.q_proj(rows), self.k_proj(rows), self.v_proj(rows)), -1)
        return mixed, self.g_proj(rows), self.b_proj(rows), self.a_proj(rows)


_KINDS: Final[Mapping[str, Callable[[nn.Module, MixerStates], Mixer]]] = {
    "Lfm2ShortConv": GatedConvolution,
    "Lfm2MoeShortConv": GatedConvolution,
    "Lfm3ShortConv": GatedConvolution,
    "MambaMixer": Mamba,
    "FalconMambaMixer": Mamba,
    "JambaMambaMixer": Mamba,
    "ZambaMambaMixer": ZambaMamba,
    "Mamba2Mixer": Mamba2,
    "BambaMixer": Mamba2,
    "GraniteMoeHybridMambaLayer": Mamba2,
    "NemotronHMamba2Mixer": Mamba2,
    "Zamba2MambaMixer": Mamba2,
    "FalconH1Mixer": FalconH1Mamba,
    "Qwen3NextGatedDeltaNet": Qwen3NextDeltaNet,
    "Qwen3_5GatedDeltaNet": Qwen35DeltaNet,
    "Qwen3_5MoeGatedDeltaNet": Qwen35DeltaNet,
    "OlmoHybridGatedDeltaNet": OlmoDeltaNet,
    "MiniMaxLightningAttention": LightningAttention,
    "RecurrentGemmaRecurrentBlock": GatedRecurrence,
    "RwkvSelfAttention": RwkvAttention,
    "RwkvFeedForward": RwkvFeedForward,
}
"""By the name of the class in `transformers`."""


def mixers_of(decoder: nn.Module, states: MixerStates) -> dict[str, Mixer]:
    """Ours for each recurrent layer of a decoder, by its module's name; room in `states` is reserved."""
    found: dict[str, Mixer] = {}
    for name, module in decoder.named_modules():
        kind = _KINDS.get(type(module).__name__)
        if kind is not None:
            found[name] = kind(module, states)
            found[name].layer = int(next(part for part in name.split(".") if part.isdigit()))
    return found


def state_bytes(decoder: nn.Module) -> dict[int, int]:
    """What each recurrent layer keeps of a sequence; the decoder needs no weights, and stays as it is."""
    sizes: dict[int, int] = {}
    for mixer in mixers_of(decoder, MixerStates()).values():
        sizes[mixer.layer] = sizes.get(mixer.layer, 0) + sum(place.num_bytes for place in mixer.places)
    return sizes


def replace_mixers(decoder: nn.Module) -> MixerStates:
    """Put ours in place of a decoder's own."""
    states = MixerStates()
    for name, mixer in mixers_of(decoder, states).items():
        decoder.set_submodule(name, mixer)
    return states


def _normed(rows: Tensor) -> Tensor:
    """To length 1."""
    return rows * torch.rsqrt(rows.square().sum(-1, keepdim=True) + _NORM_EPSILON)
