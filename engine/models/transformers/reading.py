"""A checkpoint's tensors in the model that `transformers` has for it, each accounted for.

Plain ones are read by `from_pretrained`. Of those published in fewer bits we read the tensors: codes become
layers of `rounded.py`. What the model is run by is `engine/models/transformers/model.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, cast

import torch
import transformers
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_MULTIMODAL_LM_MAPPING,
)
from transformers.utils import logging

from ....kernels.linear.quantized_linear import BitsWeight
from ....protocols.errors import ModelLoadError
from ..source import CheckedTensors, Opening
from ..weights import TensorReader, check_finite, listed
from .rounded import Rounded, linear_names

_PLAIN: Final = "eager"
"""Attention."""


def read_model(
    opening: Opening,
    config: PreTrainedConfig,
    skeleton: PreTrainedModel,
    tensors: CheckedTensors | None,
    *,
    attention: str = _PLAIN,
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
    for name, layer in layers.items():
        model.set_submodule(name, layer)
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


def _read_published(
    tensors: TensorReader, skeleton: PreTrainedModel
) -> tuple[dict[str, Tensor], dict[str, Rounded]]:
    """Numbers by their names, and layers of codes, in place of whose own parameters stands one zero each of
    their shape, without the memory. Raises ModelLoadError."""
    layers: dict[str, Rounded] = {}
    for name in filter(tensors.are_codes, sorted(linear_names(skeleton))):
        layer = name.removesuffix(".weight")
        bias = tensors.take(f"{layer}.bias") if f"{layer}.bias" in tensors else None
        codes = tensors.take_linear(name, bias=bias)
        assert isinstance(codes, BitsWeight), "one weight of codes"
        layers[layer] = Rounded(codes)
    zero = torch.zeros((), dtype=tensors.dtype)
    numbers = {
        name: tensors.take(name) if name in tensors else zero.expand(parameter.shape)
        for name, parameter in skeleton.named_parameters()
    }
    copies = [name for name in skeleton.all_tied_weights_keys if name in tensors]
    numbers |= {name: tensors.take(name) for name in copies}
    tensors.finish()
    return numbers, layers


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


def message_of(error: Exception) -> str:
    """Its kind and first line: torch goes on with addresses of its own code."""
    return f"{type(error).__name__}: {''.join(str(error).splitlines()[:1])}"
