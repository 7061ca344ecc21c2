"""The families of models that see or hear, by what a config calls them: a line and a file for each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple


class MediaEntry(NamedTuple):
    """What a config calls a family, and its file."""

    architecture: str
    model_type: str
    """For a config that names no architecture."""
    module: str
    """Its file in `engine/models/multimodal/families/`."""
    part: str | None = None
    """The field of a config that has the config of the model which reads, sees and hears, where models that
    speak lie beside it."""
    part_architecture: str | None = None
    """Of that model."""


_QWEN2_5_THINKER: Final = ("thinker_config", "Qwen2_5OmniThinkerForConditionalGeneration")
_QWEN3_THINKER: Final = ("thinker_config", "Qwen3OmniMoeThinkerForConditionalGeneration")
ENTRIES: Final[tuple[MediaEntry, ...]] = (
    MediaEntry("AriaForConditionalGeneration", "aria", ".squares.aria"),
    MediaEntry("AudioFlamingo3ForConditionalGeneration", "audioflamingo3", ".audioflamingo3"),
    MediaEntry("AyaVisionForConditionalGeneration", "aya_vision", ".aya_vision"),
    MediaEntry("ChameleonForConditionalGeneration", "chameleon", ".squares.chameleon"),
    MediaEntry("Cohere2VisionForConditionalGeneration", "cohere2_vision", ".squares.cohere2_vision"),
    MediaEntry("CohereCompassForConditionalGeneration", "cohere_compass", ".patches.cohere_compass"),
    MediaEntry("Cosmos3EdgeForConditionalGeneration", "cosmos3_edge", ".patches.cosmos3_edge"),
    MediaEntry("Cosmos3OmniForConditionalGeneration", "cosmos3_omni", ".qwen3_vl_moe"),
    MediaEntry("Dots3NoteForConditionalGeneration", "dots3_note", ".patches.dots3_note"),
    MediaEntry("Ernie4_5_VLMoeForConditionalGeneration", "ernie4_5_vl_moe", ".patches.ernie4_5_vl_moe"),
    MediaEntry("Exaone4_5_ForConditionalGeneration", "exaone4_5", ".patches.in_line"),
    MediaEntry("DeepseekOcr2ForConditionalGeneration", "deepseek_ocr2", ".squares.deepseek_ocr2"),
    MediaEntry("Emu3ForConditionalGeneration", "emu3", ".squares.emu3"),
    MediaEntry("FuyuForCausalLM", "fuyu", ".patches.fuyu"),
    MediaEntry("DeepseekVLForConditionalGeneration", "deepseek_vl", ".squares.deepseek_vl"),
    MediaEntry(
        "DeepseekVLHybridForConditionalGeneration", "deepseek_vl_hybrid", ".squares.deepseek_vl_hybrid"
    ),
    MediaEntry("Gemma3ForConditionalGeneration", "gemma3", ".gemma3"),
    MediaEntry("Gemma3nForConditionalGeneration", "gemma3n", ".pads.gemma3n"),
    MediaEntry("Gemma4ForConditionalGeneration", "gemma4", ".pads.gemma4"),
    MediaEntry("Glm46VForConditionalGeneration", "glm46v", ".patches.glm46v"),
    MediaEntry("Glm4vForConditionalGeneration", "glm4v", ".glm4v"),
    MediaEntry("Glm4vMoeForConditionalGeneration", "glm4v_moe", ".patches.glm46v"),
    MediaEntry("GlmOcrForConditionalGeneration", "glm_ocr", ".glm4v"),
    MediaEntry("GlmAsrForConditionalGeneration", "glmasr", ".glmasr"),
    MediaEntry("GotOcr2ForConditionalGeneration", "got_ocr2", ".squares.got_ocr2"),
    MediaEntry("Granite4VisionForConditionalGeneration", "granite4_vision", ".squares.granite4_vision"),
    MediaEntry("GraniteDoclingForConditionalGeneration", "granite_docling", ".squares.granite_docling"),
    MediaEntry("HunYuanVLForConditionalGeneration", "hunyuan_vl", ".patches.hunyuan_vl"),
    MediaEntry("HyperCLOVAXVisionV2ForConditionalGeneration", "hyperclovax_vision_v2", ".patches.in_line"),
    MediaEntry("GraniteSpeechForConditionalGeneration", "granite_speech", ".clips.granite_speech"),
    MediaEntry("GraniteSpeechPlusForConditionalGeneration", "granite_speech_plus", ".clips.granite_speech"),
    MediaEntry("Idefics2ForConditionalGeneration", "idefics2", ".squares.idefics2"),
    MediaEntry("Idefics3ForConditionalGeneration", "idefics3", ".idefics3"),
    MediaEntry("InternVLForConditionalGeneration", "internvl", ".internvl"),
    MediaEntry("JanusForConditionalGeneration", "janus", ".squares.janus"),
    MediaEntry("Kimi_K25ForConditionalGeneration", "kimi_k25", ".patches.kimi_k25"),
    MediaEntry("Lfm2VlForConditionalGeneration", "lfm2_vl", ".patches.lfm2_vl"),
    MediaEntry("Lfm3VlForConditionalGeneration", "lfm3_vl", ".patches.in_line"),
    MediaEntry("LightOnOcrForConditionalGeneration", "lighton_ocr", ".squares.lighton_ocr"),
    MediaEntry("Llama4ForConditionalGeneration", "llama4", ".squares.llama4"),
    MediaEntry("LlavaForConditionalGeneration", "llava", ".llava"),
    MediaEntry("LlavaNextForConditionalGeneration", "llava_next", ".llava_next"),
    MediaEntry("LlavaNextVideoForConditionalGeneration", "llava_next_video", ".llava_next"),
    MediaEntry("LlavaOnevisionForConditionalGeneration", "llava_onevision", ".llava_onevision"),
    MediaEntry("MiniCPMOcrForConditionalGeneration", "minicpm_ocr", ".patches.minicpmv"),
    MediaEntry("MiniCPMV4_6ForConditionalGeneration", "minicpmv4_6", ".patches.minicpmv"),
    MediaEntry("MiniMaxM3SparseForConditionalGeneration", "minimax_m3_vl", ".patches.minimax_m3_vl"),
    MediaEntry("Mistral3ForConditionalGeneration", "mistral3", ".mistral3"),
    MediaEntry("Ovis2ForConditionalGeneration", "ovis2", ".squares.ovis2"),
    MediaEntry("PaliGemmaForConditionalGeneration", "paligemma", ".pads.paligemma"),
    MediaEntry("PaddleOCRVLForConditionalGeneration", "paddleocr_vl", ".patches.paddleocr_vl"),
    MediaEntry("Phi4MultimodalForCausalLM", "phi4_multimodal", ".clips.phi4_multimodal"),
    MediaEntry("QianfanOCRForConditionalGeneration", "qianfan_ocr", ".squares.qianfan_ocr"),
    MediaEntry("Qwen2_5_VLForConditionalGeneration", "qwen2_5_vl", ".merged_patches"),
    MediaEntry("Qwen2AudioForConditionalGeneration", "qwen2_audio", ".qwen2_audio"),
    MediaEntry("Qwen2_5OmniForConditionalGeneration", "qwen2_5_omni", ".qwen2_5_omni", *_QWEN2_5_THINKER),
    MediaEntry("Qwen2_5OmniModel", "qwen2_5_omni", ".qwen2_5_omni", *_QWEN2_5_THINKER),
    MediaEntry("Qwen2_5OmniThinkerForConditionalGeneration", "qwen2_5_omni_thinker", ".qwen2_5_omni"),
    MediaEntry("Qwen3OmniMoeForConditionalGeneration", "qwen3_omni_moe", ".qwen3_omni_moe", *_QWEN3_THINKER),
    MediaEntry("Qwen3OmniMoeThinkerForConditionalGeneration", "qwen3_omni_moe_thinker", ".qwen3_omni_moe"),
    MediaEntry("Qwen2VLForConditionalGeneration", "qwen2_vl", ".merged_patches"),
    MediaEntry("Qwen3_5ForConditionalGeneration", "qwen3_5", ".qwen3_5"),
    MediaEntry("Qwen3_5MoeForConditionalGeneration", "qwen3_5_moe", ".qwen3_5"),
    MediaEntry("Qwen3VLMoeForConditionalGeneration", "qwen3_vl_moe", ".qwen3_vl_moe"),
    MediaEntry("SmolVLMForConditionalGeneration", "smolvlm", ".idefics3"),
    MediaEntry("VideoLlama3ForConditionalGeneration", "video_llama_3", ".patches.video_llama_3"),
    MediaEntry("VideoLlavaForConditionalGeneration", "video_llava", ".llava"),
    MediaEntry("VipLlavaForConditionalGeneration", "vipllava", ".llava"),
    MediaEntry("VoxtralForConditionalGeneration", "voxtral", ".voxtral"),
)


def entry_of(config: Mapping[str, Any]) -> MediaEntry | None:
    """The family of a config; None: none of these."""
    named, model_type = config.get("architectures"), config.get("model_type")
    architecture = named[0] if isinstance(named, list) and named else None
    for entry in ENTRIES:
        if architecture == entry.architecture or (architecture is None and model_type == entry.model_type):
            return entry
    return None


def own_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """That of the model which reads, sees and hears: the config itself, or its part. Raises ValueError naming
    the field."""
    entry = entry_of(config)
    if entry is None or entry.part is None:
        return dict(config)
    part = config.get(entry.part)
    if not isinstance(part, dict):
        raise ValueError(f"{entry.part} is {part!r}; allowed: an object")
    return part | {"architectures": [entry.part_architecture]}
