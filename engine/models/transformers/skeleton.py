"""A `transformers` model without weights: its parts, and what each of its layers keeps of a token.

What does not fit our cache is refused here, before weights are read. `source.py` is next.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, cast

import torch
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel

from ....protocols.errors import ModelLoadError
from ..mixers.slots import MixerStates
from .attention import AttentionStep, attend_through_ours, layers_of_step, running
from .experts import give_no_values
from .latents import keep_latents
from .mixers import mixers_of
from .reading import PLAIN, model_class
from .refusal import refusal, refusing
from .sparse import keep_index_keys
from .without_values import nothing_found

_TEXT_PARTS: Final = ("language_model", "text_model")
"""What a model with encoders calls its decoder."""
_ENCODERS_INSIDE: Final = ("embed_tokens_extend",)
"""What a decoder calls its encoders, where they lie inside it: they are run by their own code."""
_MIX_NOTHING: Final = ("mlp", "moe")
"""Types of layers that treat rows one by one."""


def skeleton_of(folder: Path, config: PreTrainedConfig) -> PreTrainedModel:
    """The model without weights, in our attention."""
    with refusing(folder), torch.device("meta"):
        # bfloat16, because that is all some layers (mixtures of experts) are defined for there
        model = model_class(config)._from_config(config, attn_implementation=PLAIN, dtype=torch.bfloat16)
        decoder = cast(PreTrainedModel, model.get_submodule(decoder_name(model)))
        attend_through_ours(model, decoder)
    keep_latents(decoder)
    keep_index_keys(decoder, layers_of_step)
    give_no_values(decoder)
    return cast(PreTrainedModel, model.eval())


def base_name(model: PreTrainedModel) -> str:
    """Of what gives the hidden states inside a language model. Llama 4's classes name others: the language
    model one that only the whole has, and the whole one that only the language model in it has."""
    for name in (model.base_model_prefix, "model"):
        if hasattr(model, name):
            return name
    return "language_model.model"


def decoder_name(model: PreTrainedModel) -> str:
    """Of the decoder: the base, or the part of it that is one where others are encoders."""
    base = base_name(model)
    for part in _TEXT_PARTS:
        if hasattr(model.get_submodule(base), part):
            return f"{base}.{part}"
    return base


def encoders_inside(decoder: nn.Module) -> str | None:
    """The name of a decoder's part that holds its encoders; None: it has none."""
    return next((name for name in _ENCODERS_INSIDE if hasattr(decoder, name)), None)


def layer_step(
    folder: Path,
    skeleton: PreTrainedModel,
    states: Mapping[int, int],
    num_layers: int,
    *,
    sees_whole_prompts: bool = False,
) -> AttentionStep:
    """Run a few tokens without values, to see what each layer's attention is given. `states` are those of
    layers that keep some."""
    if skeleton.config.is_encoder_decoder:
        raise ModelLoadError(refusal(folder, "it has an encoder"))
    token_ids = torch.zeros((1, 5), dtype=torch.int64, device="meta")
    positions = torch.arange(5, device="meta")[None]
    seeing = AttentionStep(sees_whole_prompts=sees_whole_prompts)
    with refusing(folder), running(seeing) as step, torch.inference_mode(), nothing_found():
        decoder = skeleton.get_submodule(decoder_name(skeleton))
        decoder(input_ids=token_ids, position_ids=positions, use_cache=False)
    _check_rows(folder, skeleton.get_submodule(decoder_name(skeleton)))
    kinds = getattr(skeleton.config, "layer_types", None) or [None] * num_layers
    mixing = {layer for layer, kind in enumerate(kinds) if kind not in _MIX_NOTHING}
    num_unknown = len(mixing - step.seen.keys() - states.keys())
    if num_unknown:
        raise ModelLoadError(
            refusal(
                folder,
                f"{num_unknown} of its {num_layers} layers neither attend through it nor keep a state of a "
                "kind that is known here",
            )
        )
    return step


def _check_rows(folder: Path, decoder: nn.Module) -> None:
    """Refuse convolutions over neighbouring rows but those in recurrent layers, which are ours."""
    inside = encoders_inside(decoder)
    ours = (*mixers_of(decoder, MixerStates()), *([] if inside is None else [f"{inside}."]))
    others = [
        name
        for name, module in decoder.named_modules()
        if isinstance(module, nn.Conv1d) and module.kernel_size[0] > 1 and not name.startswith(ours)
    ]
    if others:
        raise ModelLoadError(
            refusal(folder, f"{len(others)} of its modules convolve neighbouring tokens ({others[0]})")
        )
