"""The embedded tiny-qwen3-vl: right about the pictures of the demo, and equal to `transformers` in float32.

From the files on: what `examples/data/pictures.json` asks of each, by our media code, prompts and engine.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from sensorium.engine.models.qwen3_vl.text import read_vision_tokens
from sensorium.engine.models.registry import open_model
from sensorium.engine.text.tokenizer import TextTokenizer
from sensorium.media.vision.config import read_vision_config
from sensorium.media.vision.images import prepare_image
from sensorium.media.vision.video import prepare_video
from support.exactness import check_every_way, reference_case
from support.vl_prompts import expand
from transformers import AutoTokenizer, Qwen3VLForConditionalGeneration

DATA = Path(__file__).parents[4] / "examples" / "data"
QUESTIONS: dict[str, list[dict[str, str]]] = json.loads((DATA / "pictures.json").read_text("utf-8"))


@pytest.mark.parametrize("name", sorted(QUESTIONS))
@torch.inference_mode()
def test_it_says_what_is_there_as_transformers_says_it(name: str) -> None:
    torch.set_num_threads(1)
    source = open_model("tiny-qwen3-vl", device="cpu", dtype="float32")
    folder = source.folder
    reference = Qwen3VLForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()
    text, tokens = TextTokenizer.from_folder(folder), read_vision_tokens(folder)
    config, template = read_vision_config(folder), AutoTokenizer.from_pretrained(folder)
    data, kind = (DATA / name).read_bytes(), "image" if name.endswith(".png") else "video"
    images = prepare_image(data, config.image).items if kind == "image" else ()
    videos = [prepare_video(data, config.video)] if kind == "video" else []
    cases, end = [], template.eos_token_id
    for each in QUESTIONS[name]:
        content = [{"type": kind}, {"type": "text", "text": each["question"]}]
        written = template.apply_chat_template(
            [{"role": "user", "content": content}], tokenize=False, add_generation_prompt=True
        )
        prompt = expand(written, text, tokens, images, videos)
        expanded = prompt.expanded
        case = reference_case(
            reference,
            expanded.token_ids,
            items=expanded.items,
            spans=expanded.spans,
            stop_token_ids=(end,),
            num_tokens=40,
            **prompt.inputs(tokens),
        )
        assert template.decode(case.expected) == each["answer"]
        cases.append(case)
    check_every_way(source.load(), cases, seed=0, stop_token_ids=(end,))
