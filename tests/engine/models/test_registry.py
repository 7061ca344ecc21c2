"""A model's name leads to the family that knows it, or to an error that says what is wrong with what."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from sensorium.engine.models import embedded, media_families
from sensorium.engine.models.dense.model import DenseModel
from sensorium.engine.models.info import sampling_defaults
from sensorium.engine.models.media_refusals import REASONS
from sensorium.engine.models.registry import open_model
from sensorium.engine.models.whisper.info import WhisperInfo
from sensorium.engine.text.tokenizer import TextTokenizer
from sensorium.protocols.errors import ModelLoadError
from sensorium.protocols.shared.sampling import SamplingDefaults
from support.text_folder import END, END_OF_MESSAGE, QwenShape, byte_level_tokenizer, make_qwen3_folder
from support.whisper_folder import make_whisper_folder
from transformers.models.auto.modeling_auto import MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES

Tensors = dict[str, torch.Tensor]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_qwen3_folder(tmp_path / "model")


def edit_json(path: Path, **changes: object) -> None:
    """Change fields; None takes one away."""
    fields = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({name: value for name, value in fields.items() if value is not None}))


def edit_tensors(folder: Path, edit: Callable[[Tensors], object]) -> None:
    tensors = load_file(folder / "model.safetensors")
    edit(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def refusal(folder: Path | str, **options: Any) -> str:  # noqa: ANN401 (of `open_model`)
    """Everything but tensors' values is checked before `load`."""
    with pytest.raises(ModelLoadError) as caught:
        open_model(folder, **{"device": "cpu", "dtype": "float32"} | options)
    return str(caught.value)


def test_what_is_known_before_the_weights_are_read(folder: Path) -> None:
    source = open_model(folder, device="cpu", dtype="bfloat16")
    info, tokenizer = source.info, byte_level_tokenizer()
    assert (info.name, info.folder, source.folder, info.family) == (str(folder), folder, folder, "qwen3")
    assert (info.vocab_size, info.max_context) == (tokenizer.get_vocab_size() + 3, 512)
    assert info.stop_token_ids == (tokenizer.token_to_id(END_OF_MESSAGE), tokenizer.token_to_id(END))
    assert (source.device, source.dtype) == (torch.device("cpu"), torch.bfloat16)
    assert (source.kv_shape.num_layers, source.kv_shape.num_kv_heads, source.kv_shape.head_dim) == (2, 2, 8)
    assert source.kv_shape.num_bytes(source.dtype) == 2 * 2 * 2 * 8 * 2
    stored = sum(2 * tensor.numel() for tensor in load_file(folder / "model.safetensors").values())
    assert source.weight_bytes == stored + 2 * 32 * info.vocab_size  # a tied head is a packed copy on CPUs
    assert isinstance(source.side.text, TextTokenizer)
    assert isinstance(source.load(), DenseModel)


def test_an_embedded_name_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_qwen3_folder(tmp_path / "mini")
    monkeypatch.setattr(embedded, "CHECKPOINTS", tmp_path)
    source = open_model("mini", device="cpu", dtype="float32")
    assert (source.info.name, source.folder) == ("mini", tmp_path / "mini")


def test_the_model_type_decides_where_no_architecture_is_named(folder: Path, tmp_path: Path) -> None:
    edit_json(folder / "config.json", architectures=None)
    assert open_model(folder, device="cpu").info.family == "qwen3"
    whisper = make_whisper_folder(tmp_path / "whisper")
    edit_json(whisper / "config.json", architectures=[])
    assert isinstance(open_model(whisper, device="cpu").info, WhisperInfo)


def test_models_that_see_otherwise_are_refused_with_the_reason(folder: Path) -> None:
    edit_json(folder / "config.json", architectures=["MllamaForConditionalGeneration"], model_type="mllama")
    message = refusal(folder)
    what = (
        "architecture 'MllamaForConditionalGeneration' is not supported: its decoder attends to pictures in"
    )
    assert message.startswith(f"{folder / 'config.json'}: {what}")
    assert message.endswith("; Qwen3-VL and Gemma 3 are served")
    known = set(MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES.values())
    assert REASONS.keys() <= known - {entry.architecture for entry in media_families.ENTRIES}


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"architectures": ["Qwen3ForSequenceClassification"]}, "architecture 'Qwen3ForSequenceClass"),
        ({"architectures": ["SomebodysOwn"], "model_type": "own"}, "architecture 'SomebodysOwn'"),
        ({"architectures": None, "model_type": "own"}, "model_type 'own'"),
        ({"architectures": None, "model_type": None}, "model_type None"),
        ({"architectures": 3, "model_type": ["llama"]}, "model_type ['llama']"),
    ],
)
def test_other_architectures_are_refused_with_what_is_supported(
    folder: Path, changes: dict[str, Any], what: str
) -> None:
    edit_json(folder / "config.json", **changes)
    message = refusal(folder)
    assert message.startswith(f"{folder / 'config.json'}: {what}")
    assert message.endswith(
        "is not supported; supported are WhisperForConditionalGeneration, LlamaForCausalLM, "
        "MinistralForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM, SmolLM3ForCausalLM, "
        "NemotronAsrStreamingForRNNT, Nemotron3_5AsrForRNNT, ParakeetForCTC, "
        "Qwen3ASRForConditionalGeneration, Qwen3VLForConditionalGeneration, "
        f"{len({entry.model_type for entry in media_families.ENTRIES})} types of transformers with images or "
        "audio (docs/media_models.md), and its causal language models (docs/models.md) and text encoders "
        "(no code of a checkpoint is run)"
    )


@pytest.mark.parametrize(
    ("architecture", "model_type"),
    [
        ("Gemma4UnifiedForConditionalGeneration", "gemma4_unified"),
        (None, "mllama"),
    ],
)
def test_a_folder_with_a_tower_is_no_text_model(
    folder: Path, architecture: str | None, model_type: str
) -> None:
    edit_json(
        folder / "config.json",
        architectures=None if architecture is None else [architecture],
        model_type=model_type,
    )
    message = refusal(folder)
    assert message.startswith(f"{folder / 'config.json'}: ")
    assert (architecture or model_type) in message
    assert "takes pictures or sound, too, and is not served yet" in message


def test_a_folder_of_something_else_is_told_what_a_model_is(folder: Path) -> None:
    (folder / "config.json").rename(folder / "adapter_config.json")
    assert refusal(folder).startswith(f"{folder / 'config.json'}: missing; a model is a folder of")


def test_a_folder_of_faster_whisper_is_called_by_its_name(folder: Path) -> None:
    (folder / "model.bin").touch()
    edit_json(folder / "config.json", architectures=None, model_type=None)
    assert refusal(folder).startswith(f"{folder}: a folder of CTranslate2")


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"num_attention_heads": 5}, "num_attention_heads 5 is not a multiple of num_key_value_heads 2"),
        ({"num_key_value_heads": 0}, "num_key_value_heads is 0, not a whole number from 1"),
        ({"num_hidden_layers": -1}, "num_hidden_layers"),
        ({"hidden_size": 2**40}, "hidden_size is 1099511627776, not a whole number from 1 to 16777216"),
        ({"head_dim": 7}, "head_dim"),
        ({"head_dim": 0}, "head_dim is 0"),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu' is not silu"),
        ({"vocab_size": "many"}, "vocab_size"),
        ({"max_position_embeddings": 0}, "max_position_embeddings is 0"),
        ({"layer_types": ["full_attention"]}, "layer_types"),
        ({"layer_types": ["full_attention", "linear_attention"]}, "layer_types"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "sliding_window is None"),
        ({"rope_parameters": {"rope_type": "spiral", "rope_theta": 1e4}}, "rope_type 'spiral'"),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}}, "factor"),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 0.0}}, "rope_theta"),
        ({"rope_parameters": {"rope_type": "longrope", "rope_theta": 1e4, "factor": 2.0}}, "longrope"),
        ({"rms_norm_eps": -1.0}, "rms_norm_eps is -1.0"),
    ],
)
def test_numbers_that_make_no_sense_are_named(folder: Path, changes: dict[str, Any], named: str) -> None:
    edit_json(folder / "config.json", **changes)
    message = refusal(folder)
    assert message.startswith(f"{folder / 'config.json'}: ")
    assert named in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("lost", "reason"),
    [
        ("config.json", "config.json: missing"),
        ("model.safetensors", "no model.safetensors nor model.safetensors.index.json"),
        ("tokenizer.json", "no tokenizer (tokenizer.json, "),
    ],
)
def test_missing_files_are_named(folder: Path, lost: str, reason: str) -> None:
    (folder / lost).unlink()
    assert reason in refusal(folder)


@pytest.mark.parametrize("name", ["config.json", "generation_config.json", "tokenizer_config.json"])
def test_broken_json_is_named(folder: Path, name: str) -> None:
    (folder / name).write_text("{")
    assert f"{name}: not readable JSON" in refusal(folder)
    (folder / name).write_text("[]")
    assert refusal(folder) == f"{folder / name}: not a JSON object"


def test_a_broken_tokenizer_is_named(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{}")
    assert "tokenizer.json: not a readable tokenizer" in refusal(folder)


def test_ids_that_would_take_all_memory_are_refused(folder: Path) -> None:
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokenizer["model"]["vocab"]["x"] = 2**30
    edit_json(folder / "tokenizer.json", **tokenizer)
    assert f"token 'x' has the id {2**30}; allowed: below {2**24}" in refusal(folder)


def test_tokens_that_share_an_id_are_a_broken_tokenizer(folder: Path) -> None:
    """The library reads it, and cannot write it again."""
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokenizer["model"]["vocab"]["al"] = 0
    edit_json(folder / "tokenizer.json", **tokenizer)
    assert refusal(folder).startswith(f"{folder}: not a usable tokenizer (Token")


def test_added_tokens_that_make_no_sense_are_a_broken_tokenizer(folder: Path) -> None:
    edit_json(folder / "tokenizer_config.json", added_tokens_decoder={"first": {"content": "x"}})
    assert f"{folder}: not a usable tokenizer (" in refusal(folder)


@pytest.mark.parametrize("value", ["end", [7, "8"], [[7]], 1.5, True, {}])
def test_stop_tokens_that_are_no_ids_are_named(folder: Path, value: object) -> None:
    edit_json(folder / "generation_config.json", eos_token_id=value)
    path = folder / "generation_config.json"
    assert refusal(folder) == f"{path}: eos_token_id is {value!r}, not a token id or a list of them"


def test_tensors_that_do_not_fit_are_named_before_one_is_read(folder: Path) -> None:
    def spoil(tensors: Tensors) -> None:
        del tensors["model.layers.1.self_attn.q_norm.weight"]
        tensors["model.layers.0.mlp.down_proj.weight"] = torch.zeros(32, 47)
        tensors["model.layers.0.self_attn.q_proj.bias"] = torch.zeros(32)

    edit_tensors(folder, spoil)
    assert refusal(folder) == (
        f"{folder}: tensors do not fit the config; "
        "1 missing: layers.1.self_attn.q_norm.weight; 1 unexpected: layers.0.self_attn.q_proj.bias; "
        "1 misshapen: layers.0.mlp.down_proj.weight is [32, 47], expected [32, 48]"
    )


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    folder = make_qwen3_folder(tmp_path, max_shard_size="20KB")
    shards = sorted(folder.glob("model-*.safetensors"))
    assert len(shards) > 2
    assert open_model(folder, device="cpu", dtype="float32").load()
    shards[1].unlink()
    assert refusal(folder) == f"{folder}: missing {shards[1].name}, named by model.safetensors.index.json"


def test_a_head_of_its_own_must_be_there(tmp_path: Path) -> None:
    folder = make_qwen3_folder(tmp_path, shape=QwenShape(tied=False))
    edit_tensors(folder, lambda tensors: tensors.pop("lm_head.weight"))
    assert "1 missing: lm_head.weight" in refusal(folder)


def test_an_answer_ends_at_what_the_configs_say_and_at_the_end_of_the_tokenizer(folder: Path) -> None:
    """Fine-tunes have their base model's `eos_token_id`, and end by a token that only the tokenizer names."""

    def stops() -> tuple[int, ...]:
        return open_model(folder, device="cpu", dtype="float32").info.stop_token_ids

    end = byte_level_tokenizer().token_to_id(END_OF_MESSAGE)
    edit_json(folder / "generation_config.json", eos_token_id=[7, end])
    assert stops() == (7, end)
    edit_json(folder / "generation_config.json", eos_token_id=7)
    assert stops() == (7, end)
    edit_json(folder / "generation_config.json", eos_token_id=None)
    edit_json(folder / "config.json", eos_token_id=[8, 9])
    assert stops() == (8, 9, end)
    edit_json(folder / "config.json", eos_token_id=None)
    assert stops() == (end,)
    edit_json(folder / "tokenizer_config.json", eos_token=None)
    assert stops() == ()


def test_sampling_is_what_the_generation_config_says(folder: Path) -> None:
    path = folder / "generation_config.json"
    assert sampling_defaults(folder) == SamplingDefaults()
    edit_json(path, temperature=0.6, top_p=0.8, top_k=20, min_p=0, repetition_penalty=1.05)
    assert sampling_defaults(folder, is_greedy=True) == SamplingDefaults(
        temperature=0.0, repetition_penalty=1.05
    ), "without do_sample, as transformers does it"
    defaults = SamplingDefaults(temperature=0.6, top_p=0.8, top_k=20, min_p=0, repetition_penalty=1.05)
    assert sampling_defaults(folder) == defaults
    edit_json(path, do_sample=False)
    assert sampling_defaults(folder) == SamplingDefaults(temperature=0.0, repetition_penalty=1.05)
    edit_json(path, do_sample=True, temperature=None)
    assert sampling_defaults(folder).temperature == 1.0
    assert sampling_defaults(folder, is_greedy=True).temperature == 1.0
    edit_json(path, top_p=1.5)
    with pytest.raises(
        ModelLoadError, match=r"generation_config.json: top_p is 1.5; allowed: a number, above 0 up to 1"
    ):
        sampling_defaults(folder)
    path.unlink()
    assert sampling_defaults(folder) == SamplingDefaults()
    assert sampling_defaults(folder, is_greedy=True) == SamplingDefaults(temperature=0.0)


def test_a_config_of_absurd_depth_is_refused_in_one_line(folder: Path) -> None:
    (folder / "config.json").write_text('{"a":' * 100_000 + "1" + "}" * 100_000)
    assert refusal(folder) == f"{folder / 'config.json'}: not readable JSON (nested too deeply)"


@pytest.mark.parametrize("number", [10_000, 10**9, 10**15])
def test_a_config_of_absurdly_many_layers_is_refused_at_once(folder: Path, number: int) -> None:
    edit_json(folder / "config.json", num_hidden_layers=number, layer_types=None)
    assert refusal(folder) == f"{folder / 'config.json'}: num_hidden_layers is {number}; allowed: up to 1000"
    edit_json(folder / "config.json", architectures=["LlamaForCausalLM"], model_type="llama")
    assert refusal(folder) == f"{folder / 'config.json'}: num_hidden_layers is {number}; allowed: up to 1000"


@pytest.mark.parametrize(
    ("architecture", "field"),
    [
        ("WhisperForConditionalGeneration", "encoder_layers"),
        ("MptForCausalLM", "n_layers"),
        ("XGLMForCausalLM", "num_layers"),
    ],
)
def test_layers_are_counted_by_whatever_name_they_have(tmp_path: Path, architecture: str, field: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"architectures": [architecture], field: 10**7}))
    assert refusal(tmp_path) == f"{tmp_path / 'config.json'}: {field} is {10**7}; allowed: up to 1000"


@pytest.mark.parametrize("theta", [0, 0.0, -1e4, float("nan"), float("inf")])
@pytest.mark.parametrize("kind", [("Qwen3ForCausalLM", "qwen3"), ("LlamaForCausalLM", "llama")])
def test_a_rotary_base_that_is_none_is_refused(folder: Path, kind: tuple[str, str], theta: float) -> None:
    """By its old name, at the top, and by its new one."""
    changes = {"architectures": [kind[0]], "model_type": kind[1]}
    for place in ({"rope_theta": theta}, {"rope_parameters": {"rope_type": "default", "rope_theta": theta}}):
        edit_json(folder / "config.json", **changes, **place)
        reason = f"rope_theta is {theta}; allowed: above 0, and finite"
        assert refusal(folder) == f"{folder / 'config.json'}: {reason}"


def test_yarn_stretches_the_context(folder: Path) -> None:
    rope = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 512}
    edit_json(folder / "config.json", rope_parameters=rope)
    assert open_model(folder, device="cpu").info.max_context == 2048


def test_devices_and_types_are_checked_first() -> None:
    assert "device 'tpu' is not auto, cpu or cuda" in refusal("no-such-model", device="tpu")
    assert "dtype 'int8'" in refusal("no-such-model", dtype="int8")
