"""Any text encoder of `transformers`, run by its own code on padded batches of whole prompts; no cache.

An encoder is what `AutoModel` makes of a text config: a base model (`BertModel`, `Qwen3Model`) or the body of
a masked language model. Padding is masked; that the model heeds the mask is checked before it is used. How
its hidden states become a vector is `engine/models/embedding.py`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from typing import Any, Final, NoReturn, cast

import torch
import transformers
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    MODEL_MAPPING,
    MODEL_MAPPING_NAMES,
)

from ....kernels.linear.weight_codes import Quantization
from ....protocols.engine.messages import Features, Pooling
from ....protocols.errors import ModelLoadError
from ...text.tokenizer import TextTokenizer
from ..base import EncoderOutput, KvShape, StepBatch
from ..dense.config import check_size, max_context, parse_config
from ..dense.side import side_of
from ..embedding import read_embedding
from ..info import ModelInfo
from ..quantization_config import FIELDS
from ..source import ModelSource, Opening, tensor_reader
from ..transformers.reading import read_model
from ..transformers.refusal import message_of
from ..transformers.rounded import linear_names, round_linears
from ..transformers.source import has_towers
from ..weights import num_bytes, stored_types

_NO_CACHE: Final = KvShape(0, 1, 1)
_UNUSED: Final = re.compile(
    r"(.*\.)?(pooler|cls|lm_head|vocab_\w+|mlm\w*|classifier|head|decoder|predictions|dense_pooler)\..*"
    r"|lm_head\..*|.*\.?position_ids"
)
"""Tensors of heads, and positions that early versions of `transformers` wrote."""
_CHECK_LENGTHS: Final = (7, 3, 12)
_TOLERANCE: Final = {torch.float32: 1e-3, torch.bfloat16: 0.08, torch.float16: 0.02}
"""Largest difference of hidden states, in a batch and alone, as a part of the largest one."""


class EncoderModel:
    """A text encoder of `transformers` behind our interface."""

    rotary_axes = 1
    kv_shape = _NO_CACHE

    def __init__(
        self,
        info: ModelInfo,
        model: PreTrainedModel,
        device: torch.device,
        quantization: Quantization = "none",
    ) -> None:
        """Raises ModelLoadError if the model gives other hidden states in a batch than one by one."""
        self.info, self.device, self.dtype = info, device, model.dtype
        self._model = model
        self._pad = int(getattr(model.config, "pad_token_id", None) or 0)
        self._check()
        round_linears(model, quantization)
        self.weight_bytes = sum(each.nbytes for each in model.parameters())

    def hidden_states(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        """See `BidirectionalModel`."""
        lengths = [len(each) for each in prompts]
        width = max(lengths)
        padded = torch.tensor([[*each, *([self._pad] * (width - len(each)))] for each in prompts])
        mask = None
        if min(lengths) < width:
            mask = (torch.arange(width) < torch.tensor(lengths)[:, None]).long().to(self.device)
        output = self._model(input_ids=padded.to(self.device), attention_mask=mask, **self._options)
        return cast(Tensor, output.last_hidden_state)

    @property
    def _options(self) -> dict[str, bool]:
        """A base model of a decoder would make a cache."""
        return {"use_cache": False} if getattr(self._model.config, "use_cache", None) else {}

    def _check(self) -> None:
        generator = torch.Generator().manual_seed(0)
        prompts = [
            torch.randint(self._pad + 1, self.info.vocab_size, (length,), generator=generator).tolist()
            for length in _CHECK_LENGTHS
            if length <= self.info.max_context
        ]
        try:
            with torch.inference_mode():
                together = self.hidden_states(prompts)
                alone = [self.hidden_states([each])[0] for each in prompts]
        except Exception as error:  # whatever a model's own code raises
            raise ModelLoadError(_refusal(self.info, message_of(error))) from error
        for rows, expected in zip(together, alone, strict=True):
            difference = (rows[: len(expected)] - expected).abs().max() / expected.abs().max().clamp_min(1.0)
            if not float(difference) <= _TOLERANCE[self.dtype]:
                reason = (
                    f"hidden states differ by {float(difference):.2g} of the largest beside longer prompts"
                )
                raise ModelLoadError(_refusal(self.info, reason))

    def check_features(self, features: Features) -> None:
        """See `engine/models/base.py`."""
        raise ValueError(f"{self.info.name} takes text only")

    def encode(self, items: Sequence[Features]) -> list[EncoderOutput]:
        """See `engine/models/base.py`; there is nothing to encode."""
        raise ValueError(f"{self.info.name} takes text only")

    def forward(self, batch: StepBatch, cache: Tensor) -> NoReturn:
        """Prompts are run whole: `hidden_states`."""
        raise AssertionError("a bidirectional model has no sequences")

    def logits(self, hidden: Tensor) -> NoReturn:
        """It generates no text."""
        raise AssertionError("a bidirectional model has no logits")


def is_text_encoder(architecture: object, model_type: object) -> bool:
    """Whether `transformers` has this architecture as a base model or a masked language model of texts."""
    if not isinstance(model_type, str):
        return False
    masked = MODEL_FOR_MASKED_LM_MAPPING_NAMES.get(model_type)
    if masked is None and model_type not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        return False
    known = (MODEL_MAPPING_NAMES.get(model_type), masked)
    return (architecture is None or architecture in known) and not has_towers(architecture, model_type)


def open_source(opening: Opening) -> ModelSource:
    """Check config, tokenizer, the files of the weights, and how vectors are made."""
    folder, path = opening.folder, opening.folder / "config.json"
    own = {field: value for field, value in opening.config.items() if field not in FIELDS}
    config = parse_config(own, CONFIG_MAPPING[own["model_type"]].from_dict, path)
    if config.is_encoder_decoder:
        raise ModelLoadError(f"{path}: it has an encoder and a decoder; allowed: models of one of them")
    text = TextTokenizer.from_folder(folder)
    skeleton, options = _skeleton(opening, config)
    default: Pooling = "last" if _is_causal(config) else "mean"
    info = ModelInfo(
        name=opening.name,
        folder=folder,
        family="encoders",
        library=transformers.__name__,
        purpose=f"text embeddings by {config.model_type}",
        vocab_size=check_size(config, "vocab_size", path),
        max_context=_max_context(config, skeleton, opening),
        embedding=read_embedding(folder, check_size(config, "hidden_size", path), default=default),
        is_bidirectional=True,
    )
    stored_types(folder)
    shapes = {name: tuple(parameter.shape) for name, parameter in skeleton.named_parameters()}
    rounded = linear_names(skeleton)
    tensors = None if opening.published is None else tensor_reader(opening, shapes)
    attention = "sdpa" if skeleton._supports_sdpa else "eager"
    return ModelSource(
        info=info,
        device=opening.device,
        dtype=opening.dtype,
        kv_shape=_NO_CACHE,
        weight_bytes=sum(
            num_bytes({name: shape}, opening.dtype, opening.quantization if name in rounded else "none")
            for name, shape in shapes.items()
        )
        - (0 if tensors is None else tensors.saved_bytes),
        side=side_of(text, generates=False),
        load=lambda: EncoderModel(
            info,
            read_model(
                opening,
                config,
                skeleton,
                tensors,
                attention=attention,
                is_ignored=lambda name: _UNUSED.fullmatch(name) is not None,
                **options,
            ),
            opening.device,
            opening.quantization,
        ),
    )


def _skeleton(opening: Opening, config: PreTrainedConfig) -> tuple[PreTrainedModel, dict[str, bool]]:
    """The model without weights and without BERT's pooler, which is for classifiers."""
    kind: Any = MODEL_MAPPING[type(config)]
    if isinstance(kind, tuple):
        kind = kind[0]
    options = {}
    if "add_pooling_layer" in inspect.signature(kind.__init__).parameters:
        options["add_pooling_layer"] = False
    try:
        with torch.device("meta"):
            return cast(PreTrainedModel, kind._from_config(config, **options).eval()), options
    except Exception as error:  # whatever a model's own code raises
        raise ModelLoadError(f"{opening.folder}: this model cannot be made: {message_of(error)}") from error


def _is_causal(config: PreTrainedConfig) -> bool:
    both_ways = getattr(config, "use_bidirectional_attention", False)
    return config.model_type not in MODEL_FOR_MASKED_LM_MAPPING_NAMES and not both_ways


def _max_context(config: PreTrainedConfig, skeleton: PreTrainedModel, opening: Opening) -> int:
    """Positions that the model can tell apart. RoBERTa's count from behind the id of its padding."""
    for name, module in skeleton.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, nn.Embedding):
            begin = 0 if module.padding_idx is None else module.padding_idx + 1
            return module.num_embeddings - begin
    return max_context(config, opening.folder / "config.json")


def _refusal(info: ModelInfo, reason: str) -> str:
    return f"{info.folder}: this model cannot be run as an encoder of texts: {reason}"
