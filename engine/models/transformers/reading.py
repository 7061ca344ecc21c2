"""A checkpoint's tensors in the model that `transformers` has for it, each accounted for.

Plain ones are read by `from_pretrained`. Of those published in fewer bits we read the tensors: codes become
layers of `rounded.py`. What the model is run by is `engine/models/transformers/model.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple, cast

import torch
import transformers
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.core_model_loading import revert_weight_conversion
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_MULTIMODAL_LM_MAPPING,
)
from transformers.utils import logging

from ....kernels.linear.linear import LinearWeight
from ....kernels.linear.quantized_linear import BitsWeight
from ....protocols.errors import ModelLoadError
from ..source import CheckedTensors, Opening
from ..weights import Shape, TensorReader, check_finite, listed
from .experts import ArrangedExperts, is_experts, up_name
from .refusal import message_of
from .rounded import Rounded, linear_names

PLAIN: Final = "eager"
"""Attention."""


class _Parts(NamedTuple):
    """What a checkpoint calls the weights of one expert."""

    up: tuple[str, ...]
    down: str


_EXPERT: Final = re.compile(r"(.+)\.(\d+)\.(\w+)\.weight")
_EXPERT_PARTS: Final = (
    _Parts(("gate_proj", "up_proj"), "down_proj"),
    _Parts(("w1", "w3"), "w2"),
    _Parts(("up_proj",), "down_proj"),
)


def read_model(
    opening: Opening,
    config: PreTrainedConfig,
    skeleton: PreTrainedModel,
    tensors: CheckedTensors | None,
    *,
    attention: str = PLAIN,
    is_ignored: Callable[[str], bool] = lambda _: False,
    **options: bool,
) -> PreTrainedModel:
    """The model with its weights, each accounted for; `tensors` of a checkpoint in fewer bits.

    `is_ignored` names tensors that the checkpoint may have though the model does not use them; `options` are
    those of the model's class.
    """
    numbers, layers = (None, {}) if tensors is None else _read_published(tensors.read(), skeleton)
    try:
        with _without_bars():
            model, report = type(skeleton).from_pretrained(
                opening.folder if numbers is None else None,
                state_dict=numbers,
                config=config,
                dtype=opening.dtype,
                use_safetensors=True,
                local_files_only=True,
                attn_implementation=attention,
                ignore_mismatched_sizes=True,  # they are in the report
                output_loading_info=True,
                **options,
            )
    except Exception as error:  # transformers raises whatever its many readers raise
        raise ModelLoadError(f"{opening.folder}: {message_of(error)}") from error
    misshapen = [
        f"{name} is {list(found)}, expected {list(wanted)}"
        for name, found, wanted in sorted(report["mismatched_keys"])
    ]
    kinds = (
        ("missing", sorted(report["missing_keys"])),
        ("unexpected", sorted(key for key in report["unexpected_keys"] if not is_ignored(key))),
        ("misshapen", misshapen),
    )
    faults = [f"{len(names)} {kind}: {listed(names)}" for kind, names in kinds if names]
    if faults:
        raise ModelLoadError(f"{opening.folder}: tensors do not fit the config; {'; '.join(faults)}")
    for name, make in layers.items():
        model.set_submodule(name, make(model))
    model = cast(PreTrainedModel, model.to(opening.device).eval().requires_grad_(requires_grad=False))
    for name, parameter in model.named_parameters():
        check_finite(parameter, f"{opening.folder}: {name}")
    return model


def model_class(config: PreTrainedConfig) -> Any:  # noqa: ANN401 (a class of transformers)
    """What `transformers` makes of a config: the model with its encoders, if it has any."""
    for kinds in (MODEL_FOR_MULTIMODAL_LM_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING):
        if type(config) in kinds:
            return kinds[type(config)]
    # Of some types no list of `transformers` has the class.
    return getattr(transformers, config.architectures[0])


def stored_shapes(skeleton: PreTrainedModel) -> dict[str, Shape]:
    """The tensors of a checkpoint by the names that they are published under: those of each expert apart."""
    tied = skeleton.all_tied_weights_keys
    own = {name: tensor for name, tensor in skeleton.state_dict().items() if name not in tied}
    return {name: tuple(each.shape) for name, each in revert_weight_conversion(skeleton, own).items()}


def as_numbers(skeleton: PreTrainedModel, stored: Collection[str]) -> set[str]:
    """The tensors of a checkpoint that no product of codes is computed with here."""
    experts = {name for each in experts_of(skeleton, stored) for names in each.names for name in names}
    return set(stored) - linear_names(skeleton) - experts


@dataclass(frozen=True, slots=True)
class StoredExperts:
    """A layer's experts as a checkpoint has them: of each the names of the parts of its first product, which
    are one tensor in the model, and of its last product."""

    module: str
    up: list[tuple[str, ...]]
    down: list[tuple[str, ...]]

    @property
    def names(self) -> list[tuple[str, ...]]:
        return self.up + self.down


def experts_of(skeleton: PreTrainedModel, stored: Collection[str]) -> list[StoredExperts]:
    """Those whose weights are stored one by one."""
    modules = {_layer_of(name): name for name, module in skeleton.named_modules() if is_experts(module)}
    found: dict[str, dict[int, set[str]]] = {}
    for match in filter(None, map(_EXPERT.fullmatch, stored)):
        found.setdefault(match[1], {}).setdefault(int(match[2]), set()).add(match[3])
    made: list[StoredExperts] = []
    for prefix, experts in found.items():
        module, first = modules.get(_layer_of(prefix)), next(iter(experts.values()))
        parts = next((parts for parts in _EXPERT_PARTS if first == {*parts.up, parts.down}), None)
        if module is None or parts is None:
            continue
        names = [f"{prefix}.{number}." for number in sorted(experts)]
        up = [tuple(f"{each}{part}.weight" for part in parts.up) for each in names]
        made.append(StoredExperts(module, up, [(f"{each}{parts.down}.weight",) for each in names]))
    return made


def _layer_of(name: str) -> str:
    """The first number in a name, which is the layer's."""
    return next((part for part in name.split(".") if part.isdecimal()), "")


def _read_published(
    tensors: TensorReader, skeleton: PreTrainedModel
) -> tuple[dict[str, Tensor], dict[str, Callable[[PreTrainedModel], nn.Module]]]:
    """Numbers by their names, and what makes layers of codes: in place of each of their own parameters stands
    one zero of its shape, without the memory. Raises ModelLoadError."""
    layers: dict[str, Callable[[PreTrainedModel], nn.Module]] = {}
    stored = stored_shapes(skeleton)
    zero = torch.zeros((), dtype=tensors.dtype)
    numbers: dict[str, Tensor] = {}
    for name in filter(tensors.are_codes, sorted(linear_names(skeleton))):
        layer = name.removesuffix(".weight")
        bias = tensors.take(f"{layer}.bias") if f"{layer}.bias" in tensors else None
        codes = tensors.take_linear(name, bias=bias)
        assert isinstance(codes, BitsWeight), "one weight of codes"
        layers[layer] = partial(_rounded, codes)
        numbers[name] = zero.expand(stored[name])
        if bias is not None:
            numbers[f"{layer}.bias"] = zero.expand(bias.shape)
    for experts in experts_of(skeleton, stored):
        module = skeleton.get_submodule(experts.module)
        products = {up_name(module): experts.up, "down_proj": experts.down}
        shapes = {name: module.get_parameter(name).shape for name in products}
        if all(tensors.are_codes(name) for names in experts.names for name in names):
            up, down = ([tensors.take_linear(*each) for each in part] for part in products.values())
            layers[experts.module] = partial(_coded_experts, experts.module, up, down)
            numbers |= {f"{experts.module}.{name}": zero.expand(shape) for name, shape in shapes.items()}
            continue
        for name, parts in products.items():
            merged = torch.zeros(shapes[name], dtype=tensors.dtype, device=tensors.device)
            for number, each in enumerate(parts):
                merged[number] = tensors.take_all(*each)
            numbers[f"{experts.module}.{name}"] = merged
    numbers |= {name: tensors.take(name) for name in stored if name in tensors}
    copies = [name for name in skeleton.all_tied_weights_keys if name in tensors]
    numbers |= {name: tensors.take(name) for name in copies}
    tensors.finish()
    return numbers, layers


def _rounded(codes: BitsWeight, _: PreTrainedModel) -> Rounded:
    return Rounded(codes)


def _coded_experts(
    name: str, up: list[LinearWeight], down: list[LinearWeight], model: PreTrainedModel
) -> ArrangedExperts:
    return ArrangedExperts(model.get_submodule(name), up, down)


@contextmanager
def _without_bars() -> Iterator[None]:
    """Progress on standard error is not a line of a log, and what does not fit is an error of ours."""
    shown, verbosity = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if shown:
            logging.enable_progress_bar()


def plain_floats(config: dict[str, Any]) -> dict[str, Any]:
    """A config with floats in place of what `transformers` writes for those that JSON has no word for:
    `{"__float__": "Infinity"}`."""

    def plain(value: Any) -> Any:  # noqa: ANN401 (of JSON)
        match value:
            case {"__float__": "Infinity" | "-Infinity" | "NaN" as name, **others} if not others:
                return float(name)
            case dict():
                return {key: plain(each) for key, each in value.items()}
            case list():
                return [plain(each) for each in value]
            case _:
                return value

    return {key: plain(value) for key, value in config.items()}
