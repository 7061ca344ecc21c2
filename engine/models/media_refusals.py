"""Models of `transformers` that take pictures or sound and are not served here: why, and what is."""

from __future__ import annotations

from typing import Final

_ENCODER_DECODER: Final = (
    "it is an encoder-decoder, and answers no conversations; models whose pictures are rows of the prompt "
    "are served, as Qwen3-VL and Gemma 3 are"
)
_CAPTIONS: Final = "it writes captions of one picture and answers no conversations; LLaVA or SmolVLM do"
_QUERIES: Final = (
    "its queries of one picture are put in front of OPT or T5, which answer no conversations; LLaVA and "
    "Idefics 3 do"
)
_CROSS_ATTENTION: Final = (
    "its decoder attends to pictures in layers of cross-attention, whose keys and values are not cached here"
)
_TIMM: Final = "its tower is one of the library timm, which is not used here; {} is served"
REASONS: Final = {
    "BlipForConditionalGeneration": _CAPTIONS,
    "Blip2ForConditionalGeneration": _QUERIES,
    "DiffusionGemmaForBlockDiffusion": (
        "it writes blocks of text by diffusion, not token by token; Gemma 3 and 4 are served"
    ),
    "EvollaForProteinText2Text": "it reads proteins, not pictures",
    "FastVlmForConditionalGeneration": _TIMM.format("LLaVA"),
    "Florence2ForConditionalGeneration": _ENCODER_DECODER,
    "GitForCausalLM": _CAPTIONS,
    "IdeficsForVisionText2Text": f"{_CROSS_ATTENTION}; Idefics 2 and 3 are served",
    "InstructBlipForConditionalGeneration": _QUERIES,
    "InstructBlipVideoForConditionalGeneration": _QUERIES,
    "Kosmos2ForConditionalGeneration": _CAPTIONS,
    "Kosmos2_5ForConditionalGeneration": _CAPTIONS,
    "MistralLarge4ForConditionalGeneration": (
        "its layers choose positions by an indexer that depends on them, and share keys and values; "
        "Mistral 3 is served"
    ),
    "MllamaForConditionalGeneration": f"{_CROSS_ATTENTION}; Qwen3-VL and Gemma 3 are served",
    "PI0ForConditionalGeneration": "it writes a robot's actions, not text",
    "PPFormulaNetForConditionalGeneration": _ENCODER_DECODER,
    "PerceptionLMForConditionalGeneration": _TIMM.format("InternVL"),
    "Pix2StructForConditionalGeneration": _ENCODER_DECODER,
    "T5Gemma2ForConditionalGeneration": _ENCODER_DECODER,
    "UdopForConditionalGeneration": _ENCODER_DECODER,
    "UnlimitedOcrForConditionalGeneration": (
        "a token of its answer sees all of the prompt and the last ones of the answer, which no cache here "
        "keeps; DeepSeek-OCR 2 is served"
    ),
    "VisionEncoderDecoderModel": _ENCODER_DECODER,
}
"""By architecture."""
