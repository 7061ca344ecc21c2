"""Rules of pixels make of pictures, bit for bit, what the processors of `transformers` do that need no
torchvision."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from sensorium.media.vision.pixel_rule import open_rule
from sensorium.media.vision.processor_options import unknown_key
from sensorium.protocols.chat.processor_options import (
    PROCESSOR_KEYS,
    ProcessorKwargs,
    UnknownKey,
    read_processor_options,
)
from sensorium.protocols.engine.messages import EncoderItem
from sensorium.protocols.errors import BadRequestError, ModelLoadError
from support.vision_files import picture, png
from transformers.models.aria.image_processing_pil_aria import AriaImageProcessorPil
from transformers.models.chameleon.image_processing_pil_chameleon import ChameleonImageProcessorPil
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.cohere_compass.image_processing_pil_cohere_compass import (
    CohereCompassImageProcessorPil,
)
from transformers.models.cosmos3_edge.image_processing_pil_cosmos3_edge import Cosmos3EdgeImageProcessorPil
from transformers.models.deepseek_ocr2.image_processing_pil_deepseek_ocr2 import DeepseekOcr2ImageProcessorPil
from transformers.models.deepseek_vl.image_processing_pil_deepseek_vl import DeepseekVLImageProcessorPil
from transformers.models.deepseek_vl_hybrid.image_processing_pil_deepseek_vl_hybrid import (
    DeepseekVLHybridImageProcessorPil,
)
from transformers.models.emu3.image_processing_emu3 import Emu3ImageProcessor
from transformers.models.ernie4_5_vl_moe.image_processing_pil_ernie4_5_vl_moe import (
    Ernie4_5_VLMoeImageProcessorPil,
)
from transformers.models.fuyu.image_processing_pil_fuyu import FuyuImageProcessorPil
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil
from transformers.models.gemma4.image_processing_pil_gemma4 import Gemma4ImageProcessorPil
from transformers.models.glm4v.image_processing_pil_glm4v import Glm4vImageProcessorPil
from transformers.models.glmga.image_processing_pil_glmga import GlmgaImageProcessorPil
from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import GotOcr2ImageProcessorPil
from transformers.models.granite_docling.image_processing_pil_granite_docling import (
    GraniteDoclingImageProcessorPil,
)
from transformers.models.hunyuan_vl.image_processing_pil_hunyuan_vl import HunYuanVLImageProcessorPil
from transformers.models.idefics2.image_processing_pil_idefics2 import Idefics2ImageProcessorPil
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
from transformers.models.janus.image_processing_pil_janus import JanusImageProcessorPil
from transformers.models.llava.image_processing_pil_llava import LlavaImageProcessorPil
from transformers.models.llava_next.image_processing_pil_llava_next import LlavaNextImageProcessorPil
from transformers.models.llava_onevision.image_processing_pil_llava_onevision import (
    LlavaOnevisionImageProcessorPil,
)
from transformers.models.minicpmv4_6.image_processing_pil_minicpmv4_6 import MiniCPMV4_6ImageProcessorPil
from transformers.models.ovis2.image_processing_pil_ovis2 import Ovis2ImageProcessorPil
from transformers.models.paddleocr_vl.image_processing_pil_paddleocr_vl import PaddleOCRVLImageProcessorPil
from transformers.models.pixtral.image_processing_pil_pixtral import PixtralImageProcessorPil
from transformers.models.pp_chart2table.image_processing_pil_pp_chart2table import (
    PPChart2TableImageProcessorPil,
)
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil
from transformers.models.smolvlm.image_processing_pil_smolvlm import SmolVLMImageProcessorPil
from transformers.models.video_llama_3.image_processing_pil_video_llama_3 import VideoLlama3ImageProcessorPil

SIZES = (
    *((40, 60), (60, 40), (33, 33), (20, 90), (31, 30), (300, 200), (16, 16), (100, 9)),
    *((64, 64), (7, 8)),
)
PINPOINTS = [[32, 64], [64, 32], [64, 64], [96, 32], [32, 96]]
SQUARE = {"height": 30, "width": 30}
SMALL = {"patch_size": 4, "size": {"shortest_edge": 256, "longest_edge": 2048}}
Array = npt.NDArray[np.float32]


def in_one_batch(found: Any) -> list[Array]:  # noqa: ANN401 (of transformers)
    return list(np.array(found["pixel_values"]))


def of_one_picture(found: Any) -> list[Array]:  # noqa: ANN401
    return list(np.array(found["pixel_values"][0]))


def as_a_whole(found: Any) -> list[Array]:  # noqa: ANN401
    return [np.array(found["pixel_values"])]


def in_rows(found: Any) -> list[Array]:  # noqa: ANN401
    pixels = np.array(found["pixel_values"])
    return [pixels.reshape(len(pixels), -1)]


def without_padding(found: Any) -> list[Array]:  # noqa: ANN401
    pixels, places = found["pixel_values"], found["image_position_ids"]
    return [np.array(each)[np.array(place)[:, 0] >= 0] for each, place in zip(pixels, places, strict=True)]


def both_in_one(found: Any) -> list[Array]:  # noqa: ANN401
    parts = (np.array(found[f"{name}pixel_values"]).ravel() for name in ("high_res_", ""))
    return [np.concatenate(list(parts))]


def tiles_first(found: Any) -> list[Array]:  # noqa: ANN401
    return [*map(np.array, found.get("pixel_values_local", ())), *map(np.array, found["pixel_values"])]


def side_by_side(found: Any) -> list[Array]:  # noqa: ANN401
    ends = np.cumsum(np.prod(found["target_sizes"], axis=1) * 4)
    return np.split(np.array(found["pixel_values"][0]), ends[:-1], axis=-1)


def without_frame(found: Any) -> list[Array]:  # noqa: ANN401
    """As Fuyu's processor cuts it into patches of 10 pixels a side."""
    (pixels,) = found["images"][0]
    height, width = (
        -(-int(np.ravel(found[f"image_unpadded_{name}"])[0]) // 10) * 10 for name in ("heights", "widths")
    )
    lines = np.array(pixels)[:, :height, :width].reshape(3, height // 10, 10, width // 10, 10)
    return [lines.transpose(1, 3, 2, 4, 0).reshape(-1, 300)]


def channels_first(found: Any) -> list[Array]:  # noqa: ANN401
    pixels = np.array(found["pixel_values"]).reshape(-1, 4, 4, 3)
    return [pixels.transpose(0, 3, 1, 2).reshape(len(pixels), -1)]


Case = tuple[str, Callable[..., Any], dict[str, Any], Callable[[Any], list[Array]]]
CASES: tuple[Case, ...] = (
    (".rules.squares", GotOcr2ImageProcessorPil, {"size": SQUARE}, in_one_batch),
    (".rules.squares", PPChart2TableImageProcessorPil, {"size": SQUARE}, in_one_batch),
    (".rules.framed_square", JanusImageProcessorPil, {"size": SQUARE}, in_one_batch),
    (".rules.still_patches", VideoLlama3ImageProcessorPil, SMALL, as_a_whole),
    (".rules.still_patches", CohereCompassImageProcessorPil, SMALL, as_a_whole),
    (".rules.still_patches", Ernie4_5_VLMoeImageProcessorPil, SMALL, as_a_whole),
    (".rules.still_patches", PaddleOCRVLImageProcessorPil, SMALL, in_rows),
    (".rules.still_patches", Cosmos3EdgeImageProcessorPil, SMALL, channels_first),
    (".rules.still_patches", HunYuanVLImageProcessorPil, SMALL | {"resample": 1}, as_a_whole),
    (".rules.glm_patches", GlmgaImageProcessorPil, SMALL, as_a_whole),
    (".rules.framed_square", DeepseekVLImageProcessorPil, {"size": SQUARE}, in_one_batch),
    (
        ".rules.bounded_sides",
        Idefics2ImageProcessorPil,
        {"size": {"shortest_edge": 32, "longest_edge": 64}},
        of_one_picture,
    ),
    (".rules.covering_tiles", Ovis2ImageProcessorPil, {"size": SQUARE}, as_a_whole),
    (
        ".rules.covering_tiles",
        Ovis2ImageProcessorPil,
        {"size": SQUARE, "crop_to_patches": True, "max_patches": 7},
        as_a_whole,
    ),
    (".rules.squares", CLIPImageProcessorPil, {}, in_one_batch),
    (
        ".rules.squares",
        CLIPImageProcessorPil,
        {"size": {"shortest_edge": 30}, "crop_size": SQUARE},
        in_one_batch,
    ),
    (
        ".rules.squares",
        CLIPImageProcessorPil,
        {"size": {"shortest_edge": 30}, "crop_size": {"height": 41, "width": 41}},
        in_one_batch,
    ),
    (
        ".rules.squares",
        LlavaImageProcessorPil,
        {"do_pad": True, "size": {"shortest_edge": 30}, "crop_size": SQUARE},
        in_one_batch,
    ),
    (".rules.squares", SiglipImageProcessorPil, {"size": {"height": 32, "width": 28}}, in_one_batch),
    (".rules.squares", Gemma3ImageProcessorPil, {"size": SQUARE}, in_one_batch),
    (
        ".rules.pooled_patches",
        Gemma4ImageProcessorPil,
        {"patch_size": 4, "max_soft_tokens": 70},
        without_padding,
    ),
    (".rules.tiles", GotOcr2ImageProcessorPil, {"size": SQUARE, "crop_to_patches": True}, in_one_batch),
    (
        ".rules.tiles",
        GotOcr2ImageProcessorPil,
        {"size": SQUARE, "crop_to_patches": True, "min_patches": 2, "max_patches": 6},
        in_one_batch,
    ),
    (
        ".rules.squares",
        ChameleonImageProcessorPil,
        {"size": {"shortest_edge": 30}, "crop_size": SQUARE},
        in_one_batch,
    ),
    (
        ".rules.documents.framed_crops",
        AriaImageProcessorPil,
        {"max_image_size": 490, "split_image": True, "split_resolutions": [[490, 980], [700, 490]]},
        in_one_batch,
    ),
    (
        ".rules.documents.two_squares",
        DeepseekVLHybridImageProcessorPil,
        {"size": SQUARE, "high_res_size": {"height": 64, "width": 64}, "high_res_image_mean": [0.1] * 3},
        both_in_one,
    ),
    (
        ".rules.documents.bounded_area",
        Emu3ImageProcessor,
        {"min_pixels": 1000, "max_pixels": 5000},
        in_one_batch,
    ),
    (
        ".rules.documents.padded_lines",
        FuyuImageProcessorPil,
        {"size": {"height": 50, "width": 70}, "patch_size": {"height": 10, "width": 10}},
        without_frame,
    ),
    (
        ".rules.documents.views",
        DeepseekOcr2ImageProcessorPil,
        {"size": {"height": 64, "width": 64}, "tile_size": 48, "max_patches": 4},
        tiles_first,
    ),
    (
        ".rules.documents.views",
        DeepseekOcr2ImageProcessorPil,
        {"crop_to_patches": False, "tile_size": 48},
        tiles_first,
    ),
    (
        ".rules.documents.slices",
        MiniCPMV4_6ImageProcessorPil,
        {"scale_resolution": 32, "patch_size": 4},
        side_by_side,
    ),
    (
        ".rules.documents.slices",
        MiniCPMV4_6ImageProcessorPil,
        {"scale_resolution": 48, "patch_size": 4, "downsample_mode": "4x", "max_slice_nums": 7},
        side_by_side,
    ),
    (".rules.documents.page_tiles", GraniteDoclingImageProcessorPil, {"size": SQUARE}, of_one_picture),
    (
        ".rules.documents.page_tiles",
        GraniteDoclingImageProcessorPil,
        {"size": SQUARE, "max_patches": 2, "dense_max_patches": 9, "dense_min_aspect": 1.2}
        | {"dense_max_aspect": 8.0, "dense_max_scale": 0.9},
        of_one_picture,
    ),
    (
        ".rules.anyres",
        LlavaNextImageProcessorPil,
        {
            "size": {"shortest_edge": 32},
            "crop_size": {"height": 32, "width": 32},
            "image_grid_pinpoints": PINPOINTS,
        },
        lambda found: as_a_whole({"pixel_values": found["pixel_values"][0]}),
    ),
    (
        ".rules.anyres",
        LlavaOnevisionImageProcessorPil,
        {"size": {"height": 32, "width": 32}, "image_grid_pinpoints": PINPOINTS},
        lambda found: as_a_whole({"pixel_values": found["pixel_values"][0]}),
    ),
    (
        ".rules.split_squares",
        Idefics3ImageProcessorPil,
        {"size": {"longest_edge": 64}, "max_image_size": {"longest_edge": 16}},
        of_one_picture,
    ),
    (
        ".rules.split_squares",
        SmolVLMImageProcessorPil,
        {"size": {"longest_edge": 70}, "max_image_size": {"longest_edge": 32}},
        of_one_picture,
    ),
    (
        ".rules.split_squares",
        SmolVLMImageProcessorPil,
        {
            "size": {"longest_edge": 70},
            "max_image_size": {"longest_edge": 32},
            "do_image_splitting": False,
        },
        of_one_picture,
    ),
    (
        ".rules.any_shape",
        PixtralImageProcessorPil,
        {"size": {"longest_edge": 64}, "patch_size": {"height": 4, "width": 8}},
        in_one_batch,
    ),
    (
        ".rules.glm_patches",
        Glm4vImageProcessorPil,
        {"patch_size": 4, "size": {"shortest_edge": 512, "longest_edge": 8192}},
        as_a_whole,
    ),
)


def features(item: EncoderItem) -> Array:
    return np.frombuffer(item.features.data, "<f4").reshape(item.features.shape)


@pytest.mark.parametrize(("module", "kind", "options", "read"), CASES)
def test_features_equal_the_reference(
    tmp_path: Path,
    module: str,
    kind: Callable[..., Any],
    options: dict[str, Any],
    read: Callable[[Any], list[Array]],
) -> None:
    processor = kind(**options)
    processor.save_pretrained(tmp_path)
    rule = open_rule(module, tmp_path)
    for height, width in SIZES:
        pixels = picture(height, width)
        items = rule.prepare_picture(pixels).items
        expected = read(processor(pixels, return_tensors="np"))
        for item, array in zip(items, expected, strict=True):
            np.testing.assert_array_equal(features(item), array)
        size = sum(len(item.features.data) for item in items)
        data = png(height, width)
        assert size <= rule.image_bytes(height, width) == rule.measure_image(data)
        assert rule.prepare_image(data).items == items


@pytest.mark.parametrize(("module", "kind", "options", "read"), CASES[7:])
def test_an_operators_bound_is_kept(
    tmp_path: Path, module: str, kind: Callable[..., Any], options: dict[str, Any], read: object
) -> None:
    """What has a size of its own has at least the one picture that there is."""
    kind(**options).save_pretrained(tmp_path)
    rule = open_rule(module, tmp_path)
    for each in (rule.bounded(40 * 40), rule.low_detail()):
        pictures = [picture(*size) for size in SIZES]
        assert all(
            len(each.prepare_picture(one).items) <= len(rule.prepare_picture(one).items) for one in pictures
        )
    assert rule.bounded(None) == rule


@pytest.mark.parametrize(
    ("module", "kind"),
    [
        (".rules.documents.bounded_area", "Emu3ImageProcessor"),
        (".rules.still_patches", "HunYuanVLImageProcessor"),
    ],
)
def test_a_small_picture_is_not_enlarged_beyond_an_operators_bound(
    tmp_path: Path, module: str, kind: str
) -> None:
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({"image_processor_type": kind}))
    rule = open_rule(module, tmp_path)
    for each in (rule.bounded(100_000), rule.low_detail()):
        for size in SIZES:
            (item,) = each.prepare_picture(picture(*size)).items
            assert len(item.features.data) <= 4 * 3 * each.max_item_pixels


@pytest.mark.parametrize(
    ("module", "changes", "message"),
    [
        (
            ".rules.squares",
            {"image_processor_type": "ViTImageProcessor"},
            "image_processor_type must be CLIPImage",
        ),
        (".rules.squares", {"do_pan_and_scan": True}, "do_pan_and_scan must be false"),
        (".rules.squares", {"size": {"longest_edge": 9}}, "size must be an object with height and width"),
        (".rules.squares", {"image_std": [1.0, 0.0, 1.0]}, "image_std must be not zero"),
        (".rules.squares", {"resample": 9}, "resample must be one of Pillow's filters"),
        (".rules.tiles", {"size": {"shortest_edge": 9}}, "size must be an object with height and width"),
        (".rules.tiles", {"max_patches": 10**6}, "max_patches must be min_patches to 256"),
        (
            ".rules.documents.bounded_area",
            {"max_pixels": 9},
            "max_pixels must be an integer of at least min_pixels",
        ),
        (
            ".rules.documents.padded_lines",
            {"patch_size": {"height": 10, "width": 5}},
            "patch_size must be an object",
        ),
        (
            ".rules.documents.views",
            {"background_color": 3},
            "background_color must be three integers of 0 to 255",
        ),
        (".rules.documents.slices", {"downsample_mode": "8x"}, "downsample_mode must be 4x or 16x"),
        (
            ".rules.documents.slices",
            {"small_image_upsize": "adaptive"},
            "small_image_upsize must be always or never",
        ),
        (".rules.documents.framed_crops", {"max_image_size": 700}, "max_image_size must be 490 or 980"),
        (
            ".rules.documents.two_squares",
            {"high_res_size": {"height": 9, "width": 8}},
            "high_res_size must be",
        ),
        (".rules.documents.page_tiles", {"min_patches": 99}, "max_patches must be min_patches to 256"),
        (".rules.anyres", {"image_grid_pinpoints": [[31, 64]]}, "pairs of multiples of 32"),
        (".rules.split_squares", {"max_image_size": {"longest_edge": 0}}, "max_image_size must be an object"),
        (".rules.any_shape", {"size": {"shortest_edge": 3}}, "size must be an object with a longest_edge"),
    ],
)
def test_files_that_make_no_sense_are_refused_by_name(
    tmp_path: Path, module: str, changes: dict[str, Any], message: str
) -> None:
    kind, options = next((kind, options) for name, kind, options, _ in CASES if name == module)
    kind(**options).save_pretrained(tmp_path)
    path = tmp_path / "preprocessor_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(ModelLoadError, match=message) as caught:
        open_rule(module, tmp_path)
    assert str(path) in caught.value.message


def test_what_does_not_apply_is_refused_by_name(tmp_path: Path) -> None:
    CLIPImageProcessorPil().save_pretrained(tmp_path)
    rule = open_rule(".rules.squares", tmp_path)
    assert rule.with_options(read_processor_options(ProcessorKwargs())) is rule
    with pytest.raises(BadRequestError) as caught:
        rule.with_options(read_processor_options(ProcessorKwargs(min_pixels=10)))
    assert caught.value.param == "mm_processor_kwargs.min_pixels"
    assert "it takes no mm_processor_kwargs" in caught.value.message
    unknown = UnknownKey("mm_processor_kwargs.pixels", PROCESSOR_KEYS)
    assert "is not a known field; it takes no" in unknown_key(unknown, rule.option_keys).message
