"""Opens a folder of any other causal language model of `transformers`: its config, layers and memory.

`skeleton.py` has the model without weights, `model.py` what is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import transformers
from transformers import PreTrainedConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES,
)

from ....protocols.errors import ModelLoadError
from ...text.tokenizer import TextTokenizer
from ..base import KvShape
from ..dense.config import check_size, max_context, parse_config, stop_token_ids
from ..dense.side import side_of
from ..embedding import decoder_embedding
from ..info import ModelInfo
from ..quantization_config import FIELDS
from ..source import ModelSource, Opening, tensor_reader
from .attention import AttentionStep
from .caches import kv_shape_of, with_states
from .mixers import state_bytes
from .model import RecurrentTransformersModel, TransformersModel
from .reading import as_numbers, plain_floats, read_model, stored_shapes
from .refusal import refusal, refusing
from .skeleton import decoder_name, layer_step, skeleton_of
from .weight_bytes import planned_bytes
from .without_values import NOT_RUN

_STATE_CONTEXT: Final = 131_072
"""Tokens of context of a model without a limit: neither states nor windows have one."""
_BLOOM_CONTEXT: Final = 2048
"""Tokens that it was trained on."""


def is_causal_lm(architecture: object, model_type: object) -> bool:
    """Whether `transformers` itself has this architecture as a causal language model."""
    known = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(model_type) if isinstance(model_type, str) else None
    return known is not None and architecture in (None, known)


def has_towers(architecture: object, model_type: object) -> bool:
    """Whether `transformers` would build encoders of pictures or sound with it, which are not served here. Of
    some types its "causal language model" is the whole one."""
    known = MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES.get(model_type) if isinstance(model_type, str) else None
    return known is not None and architecture in (None, known)


def open_source(opening: Opening) -> ModelSource:
    """Check config and tokenizer, and on a model without weights what its layers keep of a token."""
    kinds = (TransformersModel, RecurrentTransformersModel)
    return open_with_decoder(opening, TextTokenizer.from_folder(opening.folder), kinds)


def open_with_decoder(
    opening: Opening,
    text: TextTokenizer,
    kinds: tuple[Callable[..., TransformersModel], Callable[..., TransformersModel]],
    purpose: str = "",
    *,
    sees_whole_prompts: bool = False,
) -> ModelSource:
    """Check the decoder of a folder. `kinds` are made of what `TransformersModel` takes: that of models whose
    layers all attend, and that of others. `sees_whole_prompts`: tokens of a prompt attend to all of it."""
    path = opening.folder / "config.json"
    folder = opening.folder
    own = {field: value for field, value in opening.config.items() if field not in FIELDS}
    parsed = parse_config(plain_floats(own), CONFIG_MAPPING[own["model_type"]].from_dict, path)
    if parsed.model_type in NOT_RUN:
        raise ModelLoadError(refusal(folder, NOT_RUN[parsed.model_type]))
    config = parsed.get_text_config()
    num_layers = check_size(config, "num_hidden_layers", path)
    skeleton = skeleton_of(folder, parsed)
    states = state_bytes(skeleton.get_submodule(decoder_name(skeleton)))
    step = layer_step(folder, skeleton, states, num_layers, sees_whole_prompts=sees_whole_prompts)
    sees_all = any(layer.window is None for layer in step.seen.values())
    is_unlimited = not sees_all and getattr(config, "max_position_embeddings", None) is None
    positions = _STATE_CONTEXT if is_unlimited else _max_context(config, path)
    context = min([positions, *_limits(config, step, sees_whole_prompts=sees_whole_prompts)])
    kv_shape = with_states(_kv_shape(folder, config, step, context), tuple(step.seen), states, num_layers)
    kind = kinds[bool(states)]
    info = ModelInfo(
        name=opening.name,
        folder=folder,
        family="transformers",
        library=transformers.__name__,
        purpose=purpose,
        vocab_size=check_size(config, "vocab_size", path),
        max_context=context,
        stop_token_ids=stop_token_ids(folder, config.eos_token_id, text.end_ids),
        embedding=decoder_embedding(folder, int(getattr(config, "hidden_size", 0))),
        is_adaptable=opening.adaptable,
        sees_whole_prompts=sees_whole_prompts,
    )
    tensors = None
    if opening.published is not None:
        codes = replace(opening, adaptable=False)  # the layers made of them are
        with refusing(folder):
            stored = stored_shapes(skeleton)
        numbers = as_numbers(skeleton, stored)
        tensors = tensor_reader(codes, stored, tied=skeleton.all_tied_weights_keys, as_numbers=numbers)
    return ModelSource(
        info=info,
        device=opening.device,
        dtype=opening.dtype,
        kv_shape=kv_shape,
        weight_bytes=planned_bytes(skeleton, opening, tensors),
        side=side_of(text),
        load=lambda: kind(
            info,
            kv_shape,
            read_model(opening, parsed, skeleton, tensors),
            opening.device,
            opening.quantization,
            adaptable=opening.adaptable,
        ),
    )


def _kv_shape(folder: Path, config: PreTrainedConfig, step: AttentionStep, context: int) -> KvShape:
    """What the layers keep of a token, and how long each needs it in such a context."""
    layers = dict(sorted(step.seen.items()))
    kinds = enumerate(getattr(config, "layer_types", None) or ())
    for layer, kind in ((layer, kind) for layer, kind in kinds if layer in layers):
        # Said by masks alone, and masks are not made for us.
        if kind == "sliding_attention" and layers[layer].window is None:
            layers[layer] = replace(layers[layer], window=config.sliding_window)
        elif kind == "chunked_attention":
            layers[layer] = replace(layers[layer], chunk=int(config.attention_chunk_size))
    try:
        return kv_shape_of(tuple(layers.values()), context)
    except ValueError as error:
        raise ModelLoadError(refusal(folder, str(error))) from None


def _max_context(config: PreTrainedConfig, path: Path) -> int:
    """Older configs have other names for it; BLOOM's may have none."""
    for name in ("max_seq_len", "seq_length"):
        if getattr(config, "max_position_embeddings", None) is None and hasattr(config, name):
            return check_size(config, name, path)
    if config.model_type == "bloom":
        return _BLOOM_CONTEXT
    return max_context(config, path)


def _limits(config: PreTrainedConfig, step: AttentionStep, *, sees_whole_prompts: bool) -> Iterator[int]:
    """Context lengths up to which what we do not do makes no difference."""
    window = getattr(config, "sliding_window", None)
    # By a mask, and masks are not made for us; which layers have it is not said.
    if window and not getattr(config, "layer_types", None):
        yield from (int(window) for seen in step.seen.values() if seen.window is None)
    # All of a prompt is seen in layers with a window, too, which would let go of a longer one.
    if sees_whole_prompts:
        yield from (seen.window for seen in step.seen.values() if seen.window is not None)
    # Some attend to chosen blocks only, which are all blocks up to so many.
    num_blocks = getattr(config, "index_topk_blocks", None)
    if num_blocks:
        yield int(num_blocks) * int(config.index_block_size)
