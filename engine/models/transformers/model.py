"""Any other causal language model of `transformers`, run by its own code over our paged cache.

All rows of a step are one packed sequence to the model; its attention layers call `_paged` (registered
with transformers' attention interface), which knows where each row's keys and values lie, and its recurrent
layers are ours (`engine/models/transformers/mixers.py`). Everything else of such a model treats rows one by
one; a model that does not is found out by comparing the packed forward with the plain one before it is used.
Slower than `engine/models/dense/model.py`, as right.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

import torch
import transformers
from torch import Tensor, nn
from torch.nn.functional import pad
from transformers import AttentionInterface, PreTrainedConfig, PreTrainedModel
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES,
)

from ....kernels.attention.kv_cache import write_kv, write_latents
from ....kernels.attention.latent_attention import latent_attention
from ....kernels.attention.paged_attention import (
    PagedSequence,
    paged_attention,
    paged_batch,
    with_tables,
)
from ....kernels.attention.selected_attention import SelectedRows, selected_attention
from ....kernels.attention.whole_spans import WholeSpan, attend_to_spans
from ....kernels.linear.weight_codes import Quantization
from ....protocols.engine.messages import Features
from ....protocols.errors import ModelLoadError
from ...text.tokenizer import TextTokenizer
from ..base import EncoderOutput, KvShape, RowContext, StepBatch
from ..dense.config import check_size, max_context, parse_config, stop_token_ids
from ..dense.side import side_of
from ..embedding import decoder_embedding
from ..info import ModelInfo
from ..mixers.slots import MixerStates
from ..quantization_config import FIELDS
from ..source import ModelSource, Opening, tensor_reader
from ..weights import Shape, check_files, num_bytes
from .caches import CachedLayers, SeenLayer, kv_shape_of, with_states
from .experts import ArrangedExperts, arrange_experts, give_no_values, saved_bytes
from .latents import joined, keep_latents, up_projection_of
from .mixers import mixers_of, replace_mixers, state_bytes
from .norms import fuse_norms
from .older_attention import call_ours
from .reading import (
    PLAIN,
    as_numbers,
    message_of,
    model_class,
    plain_floats,
    read_model,
    stored_shapes,
)
from .rounded import (
    adapt_linears,
    copied_bytes,
    linear_names,
    read_bytes,
    round_linears,
    rounded_in,
    tile_linears,
)
from .sparse import index_size_of, keep_index_keys
from .without_values import NOT_RUN, nothing_found

_ATTENTION: Final = "sensorium_paged"
_CHECK_LENGTHS: Final = (7, 3, 12)
_TOLERANCE: Final = {torch.float32: 1e-3, torch.bfloat16: 0.08, torch.float16: 0.02}
"""Largest difference of logits, packed and plain, as a part of the largest logit."""
_STATE_CONTEXT: Final = 131_072
"""Tokens of context of a model without a limit: neither states nor windows have one."""
_BLOOM_CONTEXT: Final = 2048
"""Tokens that it was trained on."""
_NEED_MASKS: Final = ("MptForCausalLM",)  # fail without masks that nobody reads
_TEXT_PARTS: Final = ("language_model", "text_model")
"""What a model with encoders calls its decoder."""
_MIX_NOTHING: Final = ("mlp", "moe")
"""Types of layers that treat rows one by one."""
_COARSE_TOLERANCE: Final = 0.2
"""The same behind layers of codes, or of states in 16 bits: the least difference rounds inputs another way.
Neighbours that are mixed up make it 1."""


@dataclass(slots=True)
class _Step:
    """What `_paged` needs of the step being run by this thread, and what it saw of each layer."""

    layers: CachedLayers | None = None
    """None: only to see what each layer's attention is given."""
    spans: Sequence[WholeSpan] = ()
    """Rows that see ahead."""
    seen: dict[int, SeenLayer] = field(default_factory=dict)


_thread = threading.local()


@contextmanager
def _running(step: _Step) -> Iterator[_Step]:
    _thread.step = step
    try:
        yield step
    finally:
        _thread.step = None


def _layers_of_step() -> CachedLayers | None:
    step: _Step = _thread.step
    return step.layers


def _paged(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    indices: tuple[SelectedRows, ...] | None = None,
    **kwargs: object,
) -> tuple[Tensor, None]:
    """transformers' attention interface: query [1, heads, rows, dim] → [1, rows, heads, dim]."""
    step: _Step = _thread.step
    layer = cast(int, module.layer_idx)
    up = up_projection_of(module)
    if step.layers is None:
        _check_attention(module, attention_mask, kwargs)
        index_size = index_size_of(module)
        step.seen[layer] = SeenLayer(
            key, value, sliding_window, is_latent=up is not None, index_size=index_size
        )
        size = value.shape[3] if up is None else up.sizes.value
        return query.new_empty(1, query.shape[2], query.shape[1], size), None
    cache, paged = step.layers.of(layer)
    if up is not None:
        assert softcap is None, "no family bends scores of latents"
        write_latents(cache, paged.write_slots, joined(key, value))
        rows, by_head = query[0].transpose(0, 1), up.by_head
        options: dict[str, Any] = {"scale": scaling, "sinks": s_aux, **step.layers.seen(layer)}
        attend = latent_attention if indices is None else partial(selected_attention, selected=indices)
        return attend(rows, cache, paged, by_head, up.sizes, **options)[None], None
    value_size = value.shape[3]
    if key.shape[3] != value_size:  # the smaller ones are as large as the others, with zeros
        scaling = key.shape[3] ** -0.5 if scaling is None else scaling
        size = max(key.shape[3], value_size)
        query, key, value = (pad(each, (0, size - each.shape[3])) for each in (query, key, value))
    if step.layers.writes(layer):
        write_kv(cache, paged.write_slots, key[0].transpose(0, 1), value[0].transpose(0, 1))
    rows = query[0].transpose(0, 1).contiguous()
    seen = step.layers.seen(layer)
    mixed = paged_attention(rows, cache, paged, scale=scaling, softcap=softcap, sinks=s_aux, **seen)
    if step.spans:
        attend_to_spans(mixed, rows, cache, paged, step.spans, scale=scaling, softcap=softcap, **seen)
    return mixed[None, ..., :value_size], None


def _check_attention(module: nn.Module, mask: Tensor | None, options: Mapping[str, object]) -> None:
    """Raise ValueError naming what a layer does that our attention does not. Masks that `transformers` makes
    are not made for it, so that one is the model's own."""
    if not getattr(module, "is_causal", True):
        raise ValueError("its attention looks both ways: it is an encoder")
    if mask is not None and mask.numel() > 1:  # one number stands for none where a layer takes a part of it
        raise ValueError("its attention has masks of its own")
    biases = [name for name, value in options.items() if "bias" in name and value is not None]
    if biases:
        raise ValueError(f"its attention adds a {biases[0]} to scores")


AttentionInterface.register(_ATTENTION, _paged)


class _Hidden(tuple[Tensor]):
    """What a decoder gives: hidden states, and nothing of all else that it may be asked for."""

    @property
    def last_hidden_state(self) -> Tensor:
        return self[0]

    def __getattr__(self, _: str) -> None:
        return None


class _Given(nn.Module):
    """Stands for the decoder inside a language model: gives hidden states it was given. All else that is
    asked of it is the decoder's."""

    hidden: Tensor

    def __init__(self, decoder: nn.Module) -> None:
        super().__init__()
        self._real = (decoder,)  # in a tuple, so that its weights are not counted twice

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 (as of a module)
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self._real[0], name)

    @property
    def decoder(self) -> _Given:
        """OPT asks for the decoder inside its decoder."""
        return self

    def forward(self, *args: object, **kwargs: object) -> _Hidden:
        return _Hidden((self.hidden,))


class TransformersModel:
    """A `transformers` language model behind our interface."""

    rotary_axes = 1

    def __init__(
        self,
        info: ModelInfo,
        kv_shape: KvShape,
        model: PreTrainedModel,
        device: torch.device,
        quantization: Quantization = "none",
        *,
        adaptable: bool = False,
    ) -> None:
        """Raises ModelLoadError if the model does not give packed what it gives one by one."""
        self.info, self.kv_shape, self.device, self.dtype = info, kv_shape, device, model.dtype
        self._num_groups = len(kv_shape.layout(model.dtype).groups)
        with _refusing(info.folder):
            plain = _plain_logits(model, info, device)
        prefix = _decoder_name(model)
        decoder = model.get_submodule(prefix)
        assert isinstance(decoder, PreTrainedModel), "as all inner models are"
        _attend_through_ours(model, decoder)
        self._decoder: nn.Module = decoder
        # What the language model does behind its decoder (projections, caps, scales) is run on hidden
        # states of our choice.
        self._base: nn.Module = getattr(model, _base_name(model))
        self._given = _Given(self._base)
        setattr(model, _base_name(model), self._given)
        self._model = model
        self._states = replace_mixers(self._decoder)
        keep_latents(self._decoder)
        keep_index_keys(self._decoder, _layers_of_step)
        if device.type == "cpu" and quantization == "none":
            arrange_experts(self._decoder, quantization)
        with torch.inference_mode():
            fuse_norms(self._decoder)
        tile_linears(model, self._base.parameters())
        if quantization == "none":
            tile_linears(self._decoder)
        self._check(plain)
        if device.type == "cpu" and quantization != "none":
            arrange_experts(self._decoder, quantization)
        round_linears(self._decoder, quantization)
        if adaptable:
            adapt_linears(self._decoder, prefix)
        self.weight_bytes = read_bytes((self._decoder, model)) + sum(each.nbytes for each in self._experts())

    def _check(self, plain: list[Tensor]) -> None:
        with _refusing(self.info.folder), torch.inference_mode():
            packed = self._packed_logits()
        is_rough = bool(self._states) and self.dtype is not torch.float32
        is_coarse = is_rough or rounded_in(self._decoder) or any(each.is_coded for each in self._experts())
        tolerance = _COARSE_TOLERANCE if is_coarse else _TOLERANCE[self.dtype]
        for expected, got in zip(plain, packed, strict=True):
            rows = (expected - got).abs().amax(-1) / expected.abs().max().clamp_min(1.0)
            # A state carries a rounded number on to all later rows, which may make single ones differ by any.
            difference = float(rows.median() if is_rough else rows.max())
            if not difference <= tolerance:
                raise ModelLoadError(
                    _refusal(
                        self.info.folder,
                        f"logits differ by {difference:.2g} of the largest when sequences share a step",
                    )
                )

    def _experts(self) -> list[ArrangedExperts]:
        return [each for each in self._decoder.modules() if isinstance(each, ArrangedExperts)]

    def _packed_logits(self) -> list[Tensor]:
        """The check's sequences in one step up to their middles, in another to their ends."""
        prompts = _check_prompts(self.info)
        shape = self.kv_shape.cache_shape(2 * len(prompts) * self._num_groups, 8, self.dtype)
        cache = torch.zeros(shape, dtype=self.dtype, device=self.device)
        self._states.allocate(len(prompts), self.device)
        slots = torch.arange(len(prompts), device=self.device) if self._states else None
        rows: list[list[Tensor]] = [[] for _ in prompts]
        for half in range(2):
            spans = [((len(p) // 2) * half, len(p) if half else len(p) // 2) for p in prompts]
            firsts = range(0, shape[1], 2 * len(prompts))
            sequences = [
                [
                    PagedSequence((first + 2 * i + 1, first + 2 * i), start, end - start)
                    for i, (start, end) in enumerate(spans)
                ]
                for first in firsts
            ]
            paged = paged_batch(sequences[0], 8, self.device)
            batch = StepBatch(
                torch.cat([p[start:end] for p, (start, end) in zip(prompts, spans, strict=True)]).to(
                    self.device
                ),
                torch.cat([torch.arange(start, end) for start, end in spans]).to(self.device),
                paged,
                more_paged=tuple(with_tables(paged, each) for each in sequences[1:]),
                rows=RowContext(slots),
            )
            logits = self.logits(self.forward(batch, cache))
            for i, each in enumerate(torch.split(logits, [end - start for start, end in spans])):
                rows[i].append(each)
        return [torch.cat(each) for each in rows]

    def check_features(self, features: Features) -> None:
        """See `engine/models/base.py`."""
        raise ValueError(f"{self.info.name} takes text only")

    def encode(self, items: Sequence[Features]) -> list[EncoderOutput]:
        """See `engine/models/base.py`; there is nothing to encode."""
        raise ValueError(f"{self.info.name} takes text only")

    def forward(self, batch: StepBatch, cache: Tensor) -> Tensor:
        """See `engine/models/base.py`."""
        slots = batch.rows.state_slots
        states = nullcontext() if slots is None else self._states.step(slots, batch.paged.num_queries)
        layers = CachedLayers(self.kv_shape, batch.groups, cache)
        with _running(_Step(layers, self._spans(batch))), states:
            output = self._decoder(**self._inputs(batch), use_cache=False)
        return cast(Tensor, output.last_hidden_state[0])

    def _spans(self, batch: StepBatch) -> Sequence[WholeSpan]:
        """Rows of a step that see ahead."""
        return ()

    def _inputs(self, batch: StepBatch) -> dict[str, Any]:
        """What the decoder is called with for the rows of a step."""
        return {"input_ids": batch.token_ids[None], "position_ids": batch.positions[None]}

    def logits(self, hidden: Tensor) -> Tensor:
        """See `engine/models/base.py`."""
        self._given.hidden = hidden[None]
        output = self._model(inputs_embeds=hidden[None], use_cache=False)
        return cast(Tensor, output.logits[0].float())


class RecurrentTransformersModel(TransformersModel):
    """One of whose layers some keep states."""

    def make_states(self, num_slots: int) -> Sequence[Tensor]:
        """See `RecurrentModel` in `engine/models/base.py`."""
        return (self._states.allocate(num_slots, self.device),)


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
) -> ModelSource:
    """Check the decoder of a folder. `kinds` are made of what `TransformersModel` takes: that of models whose
    layers all attend, and that of others."""
    path = opening.folder / "config.json"
    folder = opening.folder
    own = {field: value for field, value in opening.config.items() if field not in FIELDS}
    parsed = parse_config(plain_floats(own), CONFIG_MAPPING[own["model_type"]].from_dict, path)
    if parsed.model_type in NOT_RUN:
        raise ModelLoadError(_refusal(folder, NOT_RUN[parsed.model_type]))
    config = parsed.get_text_config()
    num_layers = check_size(config, "num_hidden_layers", path)
    skeleton = _skeleton(folder, parsed)
    states = state_bytes(skeleton.get_submodule(_decoder_name(skeleton)))
    step = _layer_step(folder, skeleton, states, num_layers)
    sees_all = any(layer.window is None for layer in step.seen.values())
    is_unlimited = not sees_all and getattr(config, "max_position_embeddings", None) is None
    positions = _STATE_CONTEXT if is_unlimited else _max_context(config, path)
    context = min([positions, *_limits(config, step)])
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
    )
    check_files(folder)
    shapes: dict[str, Shape] = {name: tuple(each.shape) for name, each in skeleton.named_parameters()}
    prefix = _decoder_name(skeleton)
    rounded = {f"{prefix}.{name}" for name in linear_names(skeleton.get_submodule(prefix))}
    tensors = None
    if opening.published is not None:
        codes = replace(opening, adaptable=False)  # the layers made of them are
        with _refusing(folder):
            stored = stored_shapes(skeleton)
        numbers = as_numbers(skeleton, stored)
        tensors = tensor_reader(codes, stored, tied=skeleton.all_tied_weights_keys, as_numbers=numbers)
    return ModelSource(
        info=info,
        device=opening.device,
        dtype=opening.dtype,
        kv_shape=kv_shape,
        weight_bytes=sum(
            num_bytes({name: shape}, opening.dtype, opening.quantization if name in rounded else "none")
            for name, shape in shapes.items()
        )
        + copied_bytes(skeleton, opening)
        - (0 if tensors is None else tensors.saved_bytes)
        - (saved_bytes(skeleton, opening.dtype, opening.quantization) if opening.device.type == "cpu" else 0),
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


def _skeleton(folder: Path, config: PreTrainedConfig) -> PreTrainedModel:
    """The model without weights, in our attention."""
    with _refusing(folder), torch.device("meta"):
        # bfloat16, because that is all some layers (mixtures of experts) are defined for there
        model = model_class(config)._from_config(config, attn_implementation=PLAIN, dtype=torch.bfloat16)
        decoder = cast(PreTrainedModel, model.get_submodule(_decoder_name(model)))
        _attend_through_ours(model, decoder)
    keep_latents(decoder)
    keep_index_keys(decoder, _layers_of_step)
    give_no_values(decoder)
    return cast(PreTrainedModel, model.eval())


def _attend_through_ours(model: PreTrainedModel, decoder: PreTrainedModel) -> None:
    call_ours(decoder, _paged)
    if type(model).__name__ not in _NEED_MASKS:
        decoder.set_attn_implementation(_ATTENTION)
        decoder.config._attn_implementation = _ATTENTION  # older ones keep theirs, for which masks are made


def _base_name(model: PreTrainedModel) -> str:
    """Of what gives the hidden states inside a language model; Llama 4's class names one that only the whole
    model has."""
    prefix = model.base_model_prefix
    return prefix if hasattr(model, prefix) else "model"


def _decoder_name(model: PreTrainedModel) -> str:
    """Of the decoder: the base, or the part of it that is one where others are encoders."""
    base = _base_name(model)
    for part in _TEXT_PARTS:
        if hasattr(getattr(model, base), part):
            return f"{base}.{part}"
    return base


def _layer_step(folder: Path, skeleton: PreTrainedModel, states: Mapping[int, int], num_layers: int) -> _Step:
    """Run a few tokens without values, to see what each layer's attention is given. `states` are those of
    layers that keep some."""
    if skeleton.config.is_encoder_decoder:
        raise ModelLoadError(_refusal(folder, "it has an encoder"))
    token_ids = torch.zeros((1, 5), dtype=torch.int64, device="meta")
    positions = torch.arange(5, device="meta")[None]
    with _refusing(folder), _running(_Step()) as step, torch.inference_mode(), nothing_found():
        decoder = skeleton.get_submodule(_decoder_name(skeleton))
        decoder(input_ids=token_ids, position_ids=positions, use_cache=False)
    _check_rows(folder, skeleton.get_submodule(_decoder_name(skeleton)))
    kinds = getattr(skeleton.config, "layer_types", None) or [None] * num_layers
    mixing = {layer for layer, kind in enumerate(kinds) if kind not in _MIX_NOTHING}
    num_unknown = len(mixing - step.seen.keys() - states.keys())
    if num_unknown:
        raise ModelLoadError(
            _refusal(
                folder,
                f"{num_unknown} of its {num_layers} layers neither attend through it nor keep a state of a "
                "kind that is known here",
            )
        )
    return step


def _check_rows(folder: Path, decoder: nn.Module) -> None:
    """Refuse convolutions over neighbouring rows but those in recurrent layers, which are ours."""
    ours = (*mixers_of(decoder, MixerStates()),)
    others = [
        name
        for name, module in decoder.named_modules()
        if isinstance(module, nn.Conv1d) and module.kernel_size[0] > 1 and not name.startswith(ours)
    ]
    if others:
        raise ModelLoadError(
            _refusal(folder, f"{len(others)} of its modules convolve neighbouring tokens ({others[0]})")
        )


def _kv_shape(folder: Path, config: PreTrainedConfig, step: _Step, context: int) -> KvShape:
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
        raise ModelLoadError(_refusal(folder, str(error))) from None


def _max_context(config: PreTrainedConfig, path: Path) -> int:
    """Older configs have other names for it; BLOOM's may have none."""
    for name in ("max_seq_len", "seq_length"):
        if getattr(config, "max_position_embeddings", None) is None and hasattr(config, name):
            return check_size(config, name, path)
    if config.model_type == "bloom":
        return _BLOOM_CONTEXT
    return max_context(config, path)


def _limits(config: PreTrainedConfig, step: _Step) -> Iterator[int]:
    """Context lengths up to which what we do not do makes no difference."""
    window = getattr(config, "sliding_window", None)
    # By a mask, and masks are not made for us; which layers have it is not said.
    if window and not getattr(config, "layer_types", None):
        yield from (int(window) for seen in step.seen.values() if seen.window is None)
    # Some attend to chosen blocks only, which are all blocks up to so many.
    num_blocks = getattr(config, "index_topk_blocks", None)
    if num_blocks:
        yield int(num_blocks) * int(config.index_block_size)


def _check_prompts(info: ModelInfo) -> list[Tensor]:
    """Tokens from all over the vocabulary, the same each time."""
    generator = torch.Generator().manual_seed(0)
    return [torch.randint(info.vocab_size, (length,), generator=generator) for length in _CHECK_LENGTHS]


def _plain_logits(model: PreTrainedModel, info: ModelInfo, device: torch.device) -> list[Tensor]:
    with torch.inference_mode():
        return [
            model(input_ids=prompt[None].to(device), use_cache=False).logits[0].float()
            for prompt in _check_prompts(info)
        ]


@contextmanager
def _refusing(folder: Path) -> Iterator[None]:
    """Whatever a model's own code raises means that it cannot be run so."""
    try:
        yield
    except Exception as error:  # several libraries'
        raise ModelLoadError(_refusal(folder, message_of(error))) from error


def _refusal(folder: Path, reason: str) -> str:
    return (
        f"{folder}: this model cannot be run through transformers' attention interface: {reason}; "
        "docs/models.md lists those that can"
    )
