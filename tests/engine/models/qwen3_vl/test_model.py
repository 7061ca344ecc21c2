"""Qwen3-VL's greedy answers equal `transformers`' in float32, whatever is in the prompt and however run."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
import torch
from safetensors.torch import load_file, save_file
from sensorium.engine.models.base import Model
from sensorium.engine.models.dense.model import EmbeddedRows
from sensorium.engine.models.qwen3_vl.positions import RotaryPositions
from sensorium.engine.models.qwen3_vl.text import VisionTokens, read_vision_tokens
from sensorium.engine.models.registry import open_model
from sensorium.engine.models.source import ModelSource
from sensorium.engine.text.tokenizer import TextTokenizer
from sensorium.media.embeds import embeds_item
from sensorium.media.vision.config import VisionConfig, read_vision_config
from sensorium.media.vision.images import image_item
from sensorium.protocols.chat.embeds import Embeds
from sensorium.protocols.engine.messages import EncoderItem, Features, FloatType
from sensorium.protocols.errors import ModelLoadError
from support.exactness import Case, Engine, check_every_way, reference_case
from support.vision_files import picture
from support.vl_folder import VlShape, make_vl_folder
from support.vl_prompts import KINDS, VlPrompt, make_prompt, reference_positions, with_other_pictures
from torch import Tensor
from transformers import Qwen3VLForConditionalGeneration

NUM_CHECKPOINTS = 50


@dataclass(frozen=True)
class Vl:
    """One checkpoint, ours and the reference's, and what prompts for it are made with."""

    source: ModelSource
    model: Model
    reference: Any
    text: TextTokenizer
    tokens: VisionTokens
    config: VisionConfig

    def prompt(self, kind: str, rng: random.Random) -> VlPrompt:
        (known,) = (each for each in KINDS if each == kind)
        return make_prompt(known, rng, self.text, self.tokens, self.config)

    def other(self, prompt: VlPrompt, rng: random.Random) -> VlPrompt:
        return with_other_pictures(prompt, rng, self.text, self.tokens, self.config)

    def case(self, prompt: VlPrompt, stop: tuple[int, ...] = ()) -> Case:
        expanded = prompt.expanded
        return reference_case(
            self.reference,
            expanded.token_ids,
            items=expanded.items,
            spans=expanded.spans,
            stop_token_ids=stop,
            **prompt.inputs(self.tokens),
        )


def load(folder: Path) -> Vl:
    torch.set_num_threads(1)
    reference = Qwen3VLForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()
    source = open_model(folder, device="cpu", dtype="float32")
    text = source.side.text
    assert isinstance(text, TextTokenizer)
    return Vl(source, source.load(), reference, text, read_vision_tokens(folder), read_vision_config(folder))


def random_shape(rng: random.Random) -> VlShape:
    """Small, in all the ways a config can vary."""
    num_kv_heads = rng.choice((1, 2))
    depth = rng.randint(1, 3)
    vision_heads = rng.choice((1, 2))
    head_dim, section = rng.choice(
        (
            (8, (2, 1, 1)),
            (16, (4, 2, 2)),
            (16, (2, 3, 3)),
            (12, (24, 20, 20)),
            (16, (8, 0, 0)),
            (20, (3, 3, 1)),
        )
    )
    patch, merge = rng.choice(((4, 2), (2, 2), (4, 1), (2, 3)))
    cell = (patch * merge) ** 2
    return VlShape(
        hidden_size=rng.choice((24, 32)),
        intermediate_size=rng.choice((32, 40)),
        num_layers=rng.randint(1, 3),
        num_heads=num_kv_heads * rng.choice((1, 2)),
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        section=section,
        tied=rng.random() < 0.5,
        vision_size=4 * vision_heads * rng.choice((1, 3, 4)),
        vision_ffn=rng.choice((16, 20)),
        vision_depth=depth,
        vision_heads=vision_heads,
        patch_size=patch,
        merge_size=merge,
        num_positions=rng.choice((4, 25, 64)),
        deepstack=tuple(sorted(rng.sample(range(depth), rng.randint(0, depth)))),
        image_size=(4 * cell, 30 * cell),
        video_size=(8 * cell, 50 * cell),
        extra={"attention_bias": rng.random() < 0.3},
    )


@pytest.mark.parametrize("seed", range(NUM_CHECKPOINTS))
@torch.inference_mode()
def test_greedy_equals_transformers_every_way(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    vl = load(make_vl_folder(tmp_path, seed=seed, shape=random_shape(rng)))
    stop = vl.model.info.stop_token_ids if rng.random() < 0.3 else ()
    kinds = [KINDS[(seed + step) % len(KINDS)] for step in (0, 2)]
    prompts = [vl.prompt(kind, rng) for kind in kinds]
    for prompt in prompts:
        expected = reference_positions(vl.reference, prompt, vl.tokens)
        length = len(prompt.expanded.token_ids)
        assert torch.tensor(RotaryPositions(prompt.expanded.spans).rows(0, length)).equal(expected)
    cases = [vl.case(prompt, stop) for prompt in prompts]
    check_every_way(vl.model, cases, seed=seed, stop_token_ids=stop)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_vl_folder(tmp_path_factory.mktemp("vl") / "model", seed=5, shape=VlShape(tied=False))


@pytest.fixture(scope="module")
def vl(folder: Path) -> Vl:
    return load(folder)


@torch.inference_mode()
def test_other_pictures_behind_the_same_tokens_get_their_own_answer(vl: Vl) -> None:
    """In one engine, one after the other: the second must not find the first's cached blocks."""
    rng = random.Random(1)
    first = vl.prompt("images", rng)
    second = vl.other(first, rng)
    assert first.expanded.token_ids == second.expanded.token_ids
    cases = [vl.case(first), vl.case(second)]
    assert cases[0].expected != cases[1].expected
    engine = Engine(vl.model, num_blocks=200)
    for case in (*cases, *cases):
        request_id = engine.submit(case)
        engine.run()
        case.check(engine.tokens(request_id), "after another picture")


def encoded(vl: Vl, item: EncoderItem, dtype: torch.dtype = torch.float32) -> EncoderItem:
    """What transformers' encoder makes of an item, as clients send it."""
    features = item.features
    values = torch.frombuffer(bytearray(features.data), dtype=torch.float32).view(features.shape)
    seen = vl.reference.model.visual(values, grid_thw=torch.tensor([features.grid]))
    rows = torch.cat([seen.pooler_output, *seen.deepstack_features], dim=1).to(dtype).contiguous()
    name = next(known for known in get_args(FloatType) if known in str(dtype))
    data = rows.view(torch.uint8).numpy().tobytes()
    return embeds_item(data, Embeds(name, (rows.shape[0], rows.shape[1]), features.grid))


def with_encoded(vl: Vl, case: Case) -> Case:
    own = {item.content_hash: encoded(vl, item) for item in case.items}
    spans = [
        msgspec.structs.replace(span, content_hash=own[span.content_hash].content_hash) for span in case.spans
    ]
    return replace(case, items=tuple(own[item.content_hash] for item in case.items), spans=tuple(spans))


@pytest.mark.parametrize("seed", range(6))
@torch.inference_mode()
def test_what_transformers_encoded_is_answered_as_the_pictures_are(tmp_path: Path, seed: int) -> None:
    """Beside pictures in one batch, however run."""
    rng = random.Random(1000 + seed)
    vl = load(make_vl_folder(tmp_path, seed=seed, shape=random_shape(rng)))
    pictures = [vl.case(vl.prompt(kind, rng)) for kind in ("image", "images")]
    cases = [with_encoded(vl, case) for case in pictures]
    for case in cases:
        width = case.items[0].features.shape[1]
        assert width == vl.tokens.width
        outputs = vl.model.encode([item.features for item in case.items])
        assert vl.source.encoder_bytes is not None
        for output, item in zip(outputs, case.items, strict=True):
            assert output.num_bytes == vl.source.encoder_bytes(item.num_tokens)
            assert output.num_rows == item.num_tokens
    check_every_way(vl.model, [cases[0], pictures[1], cases[1]], seed=seed)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@torch.inference_mode()
def test_rows_of_fewer_bits_are_those_numbers(vl: Vl, dtype: torch.dtype) -> None:
    item = image_item(picture(40, 24), vl.config.image)
    (whole,) = vl.model.encode([item.features])
    given = encoded(vl, item, dtype).features
    vl.model.check_features(given)
    raw, (less,) = vl.model.encode([item.features]), vl.model.encode([given])
    assert isinstance(whole, EmbeddedRows)
    assert isinstance(less, EmbeddedRows)
    assert len(raw) == 1
    for one, other in zip((whole.rows, *whole.deepstack), (less.rows, *less.deepstack), strict=True):
        torch.testing.assert_close(one.to(dtype).float(), other, atol=1e-2, rtol=1e-2)


@torch.inference_mode()
def test_embeddings_that_cannot_be_taken_are_refused(vl: Vl) -> None:
    good = encoded(vl, image_item(picture(16, 24), vl.config.image)).features
    vl.model.check_features(good)
    for changed, message in (
        (msgspec.structs.replace(good, shape=(good.shape[0], 32)), r"takes \[rows, 96\]"),
        (msgspec.structs.replace(good, shape=(0, 96), data=b""), r"takes \[rows, 96\]"),
        (msgspec.structs.replace(good, encoded="float16"), "are not float16 values"),
        (msgspec.structs.replace(good, data=good.data[:-4] + b"\0\0\x80\x7f"), "must be finite"),
    ):
        with pytest.raises(ValueError, match=message):
            vl.model.check_features(changed)


@torch.inference_mode()
def test_numbers_beyond_the_models_type_are_refused(folder: Path) -> None:
    """Finite as they were sent, infinite as the model would have them."""
    model = open_model(folder, device="cpu", dtype="bfloat16").load()
    large = torch.full((6, 96), torch.finfo(torch.float32).max)
    features = Features((6, 96), large.numpy().tobytes(), (1, 4, 6), "float32")
    with pytest.raises(ValueError, match="finite numbers, also as bfloat16"):
        model.check_features(features)


@torch.inference_mode()
def test_pictures_matter_in_every_row(vl: Vl) -> None:
    """The random weights are no use if an answer does not depend on the picture."""
    rng = random.Random(2)
    first = vl.prompt("image", rng)
    answers = {vl.case(vl.other(first, rng)).expected for _ in range(4)}
    assert len(answers) == 4


def test_what_a_source_says(folder: Path, vl: Vl) -> None:
    source = vl.source
    assert (source.info.family, source.info.max_context) == ("qwen3_vl", 2048)
    assert source.info.describe() == "chat · text, images, video · 2048 tokens of context"
    assert source.info.stop_token_ids == (vl.text.id_of("<|im_end|>"), vl.text.id_of("<|endoftext|>"))
    tensors = load_file(folder / "model.safetensors")
    assert source.weight_bytes == sum(tensor.nbytes for tensor in tensors.values())
    assert vl.model.rotary_axes == 3
    assert vl.model.kv_shape == source.kv_shape


@torch.inference_mode()
def test_an_encoding_holds_the_bytes_it_was_said_to(vl: Vl) -> None:
    for size in ((16, 16), (40, 24)):
        item = image_item(picture(*size), vl.config.image)
        (output,) = vl.model.encode([item.features])
        assert vl.source.encoder_bytes is not None
        assert output.num_bytes == vl.source.encoder_bytes(item.num_tokens)
        assert output.num_rows == item.num_tokens


def test_features_that_cannot_be_encoded_are_refused(vl: Vl) -> None:
    good = image_item(picture(16, 24), vl.config.image).features
    vl.model.check_features(good)
    assert good.grid == (1, 4, 6)
    for changed, message in (
        (Features((24, 95), good.data, good.grid), r"shape \[24, 95\].* takes \[patches, 96\]"),
        (Features((24,), good.data, good.grid), r"shape \[24\]"),
        (Features(good.shape, good.data, None), "24 patches do not fill a grid of None"),
        (Features(good.shape, good.data, (2, 4, 3)), r"do not fill a grid of \(2, 4, 3\)"),
        (Features(good.shape, good.data, (1, 4, 5)), r"do not fill a grid of \(1, 4, 5\)"),
        (Features(good.shape, good.data, (1, -4, -6)), r"do not fill a grid of \(1, -4, -6\)"),
        (Features(good.shape, good.data, (1, 3, 8)), "3 x 8 patches does not divide by 2"),
        (Features(good.shape, good.data[:-4], good.grid), "9212 bytes are not float32"),
        (Features((0, 96), b"", (1, 0, 0)), r"shape \[0, 96\]"),
    ):
        with pytest.raises(ValueError, match=message):
            vl.model.check_features(changed)


def copy_of(folder: Path, target: Path, change: Callable[[dict[str, Any]], None] | None = None) -> Path:
    """The folder again, with a changed config."""
    target.mkdir()
    for path in folder.iterdir():
        (target / path.name).write_bytes(path.read_bytes())
    config = json.loads((folder / "config.json").read_text())
    if change is not None:
        change(config)
    (target / "config.json").write_text(json.dumps(config))
    return target


def test_shards_and_a_stored_copy_of_a_tied_head(tmp_path: Path) -> None:
    whole = make_vl_folder(tmp_path / "whole", seed=1)
    shards = make_vl_folder(tmp_path / "shards", seed=1, max_shard_size="20KB")
    assert len(list(shards.glob("model-*.safetensors"))) > 2
    stored = copy_of(whole, tmp_path / "stored")
    tensors = load_file(stored / "model.safetensors")
    tensors["lm_head.weight"] = tensors["model.language_model.embed_tokens.weight"].clone()
    save_file(tensors, stored / "model.safetensors")
    hidden = torch.randn(5, 32)
    with torch.inference_mode():
        logits = [
            open_model(each, device="cpu", dtype="float32").load().logits(hidden)
            for each in (whole, shards, stored)
        ]
    assert logits[0].equal(logits[1])
    assert logits[0].equal(logits[2])


@pytest.mark.parametrize(
    ("name", "replacement", "message"),
    [
        ("model.visual.blocks.1.attn.qkv.bias", None, "1 missing: visual.blocks.1.attn.qkv.bias"),
        ("model.visual.surprise", torch.zeros(2), "1 unexpected: visual.surprise"),
        ("model.visual.merger.linear_fc2.weight", torch.zeros(32, 9), r"linear_fc2.weight is \[32, 9\]"),
        ("model.visual.patch_embed.proj.weight", torch.zeros(16, 96), r"proj.weight is \[16, 96\]"),
        ("model.language_model.norm.weight", None, "1 missing: language_model.norm.weight"),
    ],
)
def test_every_tensor_is_accounted_for(
    folder: Path, tmp_path: Path, name: str, replacement: Tensor | None, message: str
) -> None:
    broken = copy_of(folder, tmp_path / "broken")
    tensors = load_file(broken / "model.safetensors")
    tensors.pop(name, None)
    if replacement is not None:
        tensors[name] = replacement
    save_file(tensors, broken / "model.safetensors")
    with pytest.raises(ModelLoadError, match=message):
        open_model(broken, device="cpu", dtype="float32")


@pytest.mark.parametrize(
    ("part", "field", "value", "message"),
    [
        ("vision_config", "out_hidden_size", 31, "out_hidden_size 31 is not text_config.hidden_size 32"),
        ("vision_config", "num_heads", 3, "not a multiple of 4 times num_heads 3"),
        ("vision_config", "hidden_act", "swish", "hidden_act 'swish' is not supported"),
        ("vision_config", "deepstack_visual_indexes", [2, 9], "not rising layer numbers below depth 3"),
        ("vision_config", "depth", 0, "depth is 0"),
        (
            "text_config",
            "rope_parameters",
            {"rope_type": "default", "rope_theta": 1e4, "mrope_section": 3},
            "mrope_section",
        ),
    ],
)
def test_configs_that_make_no_sense(
    folder: Path, tmp_path: Path, part: str, field: str, value: object, message: str
) -> None:
    broken = copy_of(folder, tmp_path / "broken", lambda config: config[part].update({field: value}))
    with pytest.raises(ModelLoadError, match=message):
        open_model(broken, device="cpu", dtype="float32")


def test_a_config_without_vision_tokens(folder: Path, tmp_path: Path) -> None:
    broken = copy_of(folder, tmp_path / "broken", lambda config: config.update(video_token_id=None))
    with pytest.raises(ModelLoadError, match="video_token_id"):
        open_model(broken, device="cpu", dtype="float32")
