"""What a model's encoder makes of a picture or a WAV of 16 kHz, as a part of a chat message, in JSON:

    python examples/make_embeddings.py FOLDER photo.png > part.json

FOLDER is a Qwen3-VL or Qwen3-ASR checkpoint, and `transformers` runs its encoder; nothing of sensorium is
needed. A server that serves the same checkpoint with `--enable-mm-embeds` takes the part in place of the
`image_url` or `input_audio`, and answers as if it had been sent the file.
"""

import base64
import json
import sys
from pathlib import Path
from typing import Any

import soundfile
import torch
from PIL import Image
from torch import Tensor
from transformers import (
    AutoFeatureExtractor,
    AutoImageProcessor,
    Qwen3ASRForConditionalGeneration,
    Qwen3VLForConditionalGeneration,
)


@torch.inference_mode()
def picture_part(folder: Path, file: Path) -> dict[str, Any]:
    """Rows of a picture: each token's embedding and, behind it, what each level of the deepstack adds."""
    model = Qwen3VLForConditionalGeneration.from_pretrained(folder, dtype=torch.float32)
    inputs = AutoImageProcessor.from_pretrained(folder)(Image.open(file).convert("RGB"), return_tensors="pt")
    encoded = model.model.visual(inputs["pixel_values"], grid_thw=inputs["image_grid_thw"])
    rows = torch.cat([encoded.pooler_output, *encoded.deepstack_features], dim=1)
    return part("image_embeds", rows, image_grid_thw=inputs["image_grid_thw"][0].tolist())


@torch.inference_mode()
def sound_part(folder: Path, file: Path) -> dict[str, Any]:
    """Rows of a recording."""
    samples, rate = soundfile.read(file, dtype="float32")
    if rate != 16_000 or samples.ndim != 1:
        raise ValueError(f"{file} has {rate} Hz and shape {samples.shape}: expected 16000 Hz, one channel")
    model = Qwen3ASRForConditionalGeneration.from_pretrained(folder, dtype=torch.float32)
    inputs = AutoFeatureExtractor.from_pretrained(folder)(
        samples, sampling_rate=rate, return_attention_mask=True, return_tensors="pt"
    )
    mask = inputs.get("input_features_mask", inputs.get("attention_mask"))
    return part("audio_embeds", model.get_audio_features(inputs["input_features"], mask).pooler_output)


def part(kind: str, rows: Tensor, **fields: object) -> dict[str, Any]:
    """Rows as a part; any of float32, bfloat16 and float16 may be sent."""
    raw = rows.contiguous().view(torch.uint8).numpy().tobytes()
    embeds = {
        "data": base64.b64encode(raw).decode(),
        "dtype": str(rows.dtype).removeprefix("torch."),
        "shape": list(rows.shape),
    }
    return {"type": kind, kind: {**embeds, **fields}}


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    make = sound_part if sys.argv[2].endswith(".wav") else picture_part
    print(json.dumps(make(Path(sys.argv[1]), Path(sys.argv[2]))))
