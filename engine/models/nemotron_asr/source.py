"""Opening a Nemotron ASR checkpoint: its configs, its tokenizer and the names of its tensors are checked.

`NemotronAsrStreamingForRNNT` is a model of one language, `Nemotron3_5AsrForRNNT` the same with a prompt for
the language. `model.py` arranges the tensors.
"""

from __future__ import annotations

from collections.abc import Mapping

from transformers import Nemotron3_5AsrConfig, NemotronAsrStreamingConfig

from ....protocols.errors import ModelLoadError
from ...text.tokenizer import TextTokenizer
from ..dense.config import check_size, parse_config
from ..info import generation_config, token_ids
from ..source import ModelSource, Opening, tensor_reader
from ..weights import Shape, num_bytes
from .chunks import FRAMES_PER_ROW
from .conformer import conformer_config
from .info import NemotronAsrInfo, read_conditions, read_lookaheads
from .model import NO_CACHE, LanguagePrompt, NemotronAsrConfig, NemotronAsrModel
from .side import side_of
from .text import TransducerText
from .transducer import transducer_config


def open_source(opening: Opening) -> ModelSource:
    """Check the folder of a model of either architecture."""
    folder, path = opening.folder, opening.folder / "config.json"
    has_prompt = "num_prompts" in opening.config or opening.config.get("model_type") == "nemotron3_5_asr"
    kind = Nemotron3_5AsrConfig if has_prompt else NemotronAsrStreamingConfig
    parsed = parse_config(opening.config, kind.from_dict, path)
    starts = token_ids(generation_config(folder), "decoder_start_token_id", folder)
    config = NemotronAsrConfig(
        encoder=conformer_config(parsed.encoder_config, path, is_causal=True),
        left_context=check_size(parsed.encoder_config, "sliding_window", path, minimum=2) - 1,
        transducer=transducer_config(parsed, starts[0] if starts else None, path),
        prompt=LanguagePrompt(
            num_prompts=check_size(parsed, "num_prompts", path),
            hidden_size=check_size(parsed, "prompt_intermediate_size", path),
        )
        if has_prompt
        else None,
    )
    default_condition = parsed.default_prompt_id if has_prompt else 0
    if config.prompt is not None and not 0 <= default_condition < config.prompt.num_prompts:
        raise ModelLoadError(
            f"{path}: default_prompt_id is {default_condition}; allowed: 0 to {config.prompt.num_prompts - 1}"
        )
    info = NemotronAsrInfo(
        name=opening.name,
        folder=folder,
        family="nemotron_asr",
        vocab_size=config.transducer.vocab_size,
        max_context=1,  # no prompt is taken
        input_frames_per_row=FRAMES_PER_ROW,
        num_mel_bins=config.encoder.num_mel_bins,
        lookaheads=read_lookaheads(folder),
        conditions=read_conditions(folder, config.prompt.num_prompts) if config.prompt is not None else {},
        default_condition=default_condition,
        state_bytes=config.state_elements() * opening.dtype.itemsize,
    )
    shapes = config.tensor_shapes()
    tensors = tensor_reader(opening, shapes)
    weight_bytes = product_bytes(opening, shapes) - tensors.saved_bytes
    return ModelSource(
        info=info,
        device=opening.device,
        dtype=opening.dtype,
        kv_shape=NO_CACHE,
        weight_bytes=weight_bytes,
        side=side_of(TransducerText(TextTokenizer.from_folder(folder))),
        load=lambda: NemotronAsrModel(info, config, weight_bytes, tensors.read()),
    )


def product_bytes(opening: Opening, shapes: Mapping[str, Shape]) -> int:
    """Bytes of the weights once loaded: convolutions of one tap are products, too."""
    flat = {name: shape[:2] if shape[2:] == (1,) else shape for name, shape in shapes.items()}
    return num_bytes(flat, opening.dtype, opening.quantization)
