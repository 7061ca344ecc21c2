"""tiny-qwen3-vl: what is trained is what is exported, and `transformers` and our engine answer alike."""

import random
from pathlib import Path

import pytest
import torch
from clip_questions import drawn_clip
from drawing import draw, draw_clip
from scenes import drawn_scene
from sensorium.engine.models.qwen3_vl.text import read_vision_tokens
from sensorium.engine.models.registry import open_model
from sensorium.engine.text.tokenizer import TextTokenizer
from sensorium.media.vision.config import read_vision_config
from sensorium.media.vision.images import image_item
from sensorium.media.vision.video import prepare_frames
from support.exactness import check_every_way, reference_case
from support.text_folder import randomise
from support.vl_prompts import expand
from tiny_qwen3_vl_data import FRAME_S, Batches
from tiny_qwen3_vl_model import CHAT_TEMPLATE, IMAGE_PAD, VIDEO_PAD, TrainedVl, export, model_config
from tokenizers import Tokenizer
from train_tiny_qwen3_vl import built_tokenizer
from trainer import Training
from transformers import AutoTokenizer, Qwen3VLForConditionalGeneration

MAX_BYTES = 12_000_000
LATE = 5_000
"""A step of the last lesson, which has everything."""


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return built_tokenizer(0, num_scenes=400)


@pytest.fixture(scope="module")
def trained(tokenizer: Tokenizer) -> TrainedVl:
    """Untrained; of weights that make its answers varied."""
    model = TrainedVl(model_config(tokenizer))
    randomise(model.vl, 0)
    return model


@pytest.fixture(scope="module")
def folder(trained: TrainedVl, tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("vl") / "model"
    export(trained.vl.state_dict(), tokenizer, path)
    return path


def test_the_export_is_small_and_has_no_head_of_the_training(folder: Path) -> None:
    assert (folder / "model.safetensors").stat().st_size < MAX_BYTES
    _, info = Qwen3VLForConditionalGeneration.from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    assert (folder / "chat_template.jinja").read_text("utf-8") == CHAT_TEMPLATE


@torch.inference_mode()
def test_transformers_and_our_engine_answer_token_for_token_alike(folder: Path) -> None:
    torch.set_num_threads(1)
    source = open_model(folder, device="cpu", dtype="float32")
    reference = Qwen3VLForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()
    text, tokens, config = (
        TextTokenizer.from_folder(folder),
        read_vision_tokens(folder),
        read_vision_config(folder),
    )
    template = AutoTokenizer.from_pretrained(folder)
    rng = random.Random(0)
    picture = image_item(draw(drawn_scene(rng), 480, 640, rng), config.image)
    frames = draw_clip(drawn_clip(rng, 6), 6, 120, 160, rng)
    video = prepare_frames(frames, [index * FRAME_S for index in range(6)], config.video)
    cases = []
    for kinds, images, videos in (
        ("", [], []),
        ("i", [picture], []),
        ("v", [], [video]),
        ("iv", [picture], [video]),
    ):
        parts = [{"type": {"i": "image", "v": "video"}[kind]} for kind in kinds]
        content = [*parts, {"type": "text", "text": "What do you see?"}]
        written = template.apply_chat_template(
            [{"role": "user", "content": content}], tokenize=False, add_generation_prompt=True
        )
        prompt = expand(written, text, tokens, images, videos)
        expanded = prompt.expanded
        case = reference_case(
            reference, expanded.token_ids, items=expanded.items, spans=expanded.spans, **prompt.inputs(tokens)
        )
        assert len(set(case.expected)) > 3, "the answer is too plain to compare anything with"
        cases.append(case)
    assert len({case.expected for case in cases}) == len(cases)
    check_every_way(source.load(), cases, seed=0)


def test_the_tower_driven_by_hand_sees_what_transformers_sees(
    trained: TrainedVl, tokenizer: Tokenizer
) -> None:
    batch = Batches(tokenizer, seed=0, num_rows=6).batch(LATE)
    with torch.no_grad():
        for pictures in batch.pictures:
            hidden, rows = trained._encoded(pictures)
            grids = torch.tensor([[1, *pictures.grid]] * len(pictures.patches))
            expected = trained.vl.model.visual(pictures.patches.flatten(0, 1), grid_thw=grids)
            torch.testing.assert_close(hidden.flatten(0, 1), expected.last_hidden_state, atol=1e-4, rtol=1e-4)
            for got, wanted in zip(rows, (expected.pooler_output, *expected.deepstack_features), strict=True):
                torch.testing.assert_close(got.flatten(0, -2), wanted, atol=1e-4, rtol=1e-4)


def test_positions_are_those_of_transformers(trained: TrainedVl, tokenizer: Tokenizer) -> None:
    batch = Batches(tokenizer, seed=0, num_rows=12).batch(LATE)
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    image, video = vocabulary[IMAGE_PAD], vocabulary[VIDEO_PAD]
    stills, clips = batch.pictures
    kinds = batch.inputs.eq(image).int() + 2 * batch.inputs.eq(video).int()
    num_images = int(batch.inputs.eq(image).sum()) // (stills.patches.shape[1] // 4)
    # A live session shows stills as clips of one picture.
    num_live = len(stills.patches) - num_images
    video_grids = [[1, *stills.grid]] * num_live + [[1, *clips.grid]] * len(clips.patches)
    expected, _ = trained.vl.model.get_rope_index(
        batch.inputs,
        kinds,
        image_grid_thw=torch.tensor([[1, *stills.grid]] * num_images),
        video_grid_thw=torch.tensor(video_grids),
    )
    real = batch.labels.new_tensor(range(batch.inputs.shape[1]))[None] <= _last(batch.labels)[:, None]
    assert torch.equal(batch.positions[:, real], expected[:, real])


def _last(labels: torch.Tensor) -> torch.Tensor:
    """The place of each row's last label."""
    places = torch.arange(labels.shape[1]).expand_as(labels)
    return torch.where(labels != -100, places, -1).amax(1)


def test_a_few_steps_on_one_batch_lower_all_losses(tokenizer: Tokenizer) -> None:
    torch.manual_seed(0)
    model = TrainedVl(model_config(tokenizer))
    batch = Batches(tokenizer, seed=0, num_rows=6).batch(0)
    training = Training(model, lambda _: 1e-3)
    losses = []
    for _ in range(6):
        parts = model(batch)
        training.take(torch.stack(parts).sum())
        losses.append([part.item() for part in parts])
    for first, last in zip(losses[0], losses[-1], strict=True):
        assert last < 0.8 * first
