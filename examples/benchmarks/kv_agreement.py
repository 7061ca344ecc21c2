"""How far answers over keys and values of 8 bits are from those over the model's own.

    python examples/benchmarks/kv_agreement.py [--dtype float32] [--count 16] text FOLDER --file TEXT
    python examples/benchmarks/kv_agreement.py [--count 60] speech FOLDER RECORDINGS

Text: pieces of a file are prompts; each is answered greedily over the model's own keys and values, and the
other cache is fed the same tokens, one at a time: how many times the likeliest token is the same, and how
far logits are, as a part of their spread. Speech: `RECORDINGS` is a folder of NAME.wav and NAME.txt, or one
with a `manifest.json` of paths and texts; word errors with either cache, the decoder's own and
cross-attention's, and how many transcripts are equal.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import torch
from sensorium import LocalEngine
from sensorium.actors.config.server import KvDtype
from sensorium.client.bench.statistics import WordErrors, word_errors
from sensorium.engine.models.base import Model, StepBatch
from sensorium.engine.models.registry import open_model
from sensorium.kernels.attention.kv_quantization import CODED
from sensorium.kernels.attention.paged_attention import PagedSequence, paged_batch
from tokenizers import Tokenizer
from torch import Tensor

BLOCK_SIZE = 16


class Fed:
    """One sequence over a cache of its own."""

    def __init__(self, model: Model, dtype: torch.dtype, num_tokens: int) -> None:
        self._model, self._length = model, 0
        self._blocks = range(-(-num_tokens // BLOCK_SIZE))
        self._cache = torch.zeros(
            model.kv_shape.cache_shape(len(self._blocks), BLOCK_SIZE, dtype), dtype=dtype
        )

    def logits(self, token_ids: list[int]) -> Tensor:
        """Behind these further tokens."""
        start, num = self._length, len(token_ids)
        self._length += num
        paged = paged_batch([PagedSequence(self._blocks, start, num)], BLOCK_SIZE, self._model.device)
        batch = StepBatch(torch.tensor(token_ids), torch.arange(start, start + num), paged)
        return self._model.logits(self._model.forward(batch, self._cache)[-1:])[0]


@torch.inference_mode()
def compare_text(arguments: argparse.Namespace) -> None:
    """Print agreement over all pieces."""
    model = open_model(arguments.folder, device="cpu", dtype=arguments.dtype).load()
    tokenizer = Tokenizer.from_file(str(arguments.folder / "tokenizer.json"))
    text = tokenizer.encode(arguments.file.read_text("utf-8"), add_special_tokens=False).ids
    same, total, errors, whole = 0, 0, [], 0
    for piece in range(arguments.count):
        prompt = text[piece * arguments.prompt :][: arguments.prompt]
        sizes = arguments.prompt + arguments.answer
        own, coded = (Fed(model, dtype, sizes) for dtype in (model.dtype, CODED))
        fed, equal = prompt, 0
        for _ in range(arguments.answer):
            want, got = own.logits(fed), coded.logits(fed)
            errors.append(float((got - want).square().mean().sqrt() / want.std()))
            equal += int(want.argmax() == got.argmax())
            fed = [int(want.argmax())]
        same, total, whole = same + equal, total + arguments.answer, whole + (equal == arguments.answer)
    print(f"{arguments.dtype}, {arguments.count} prompts of {arguments.prompt} tokens:")
    print(f"{same} of {total} tokens equal ({same / total:.2%}), {whole} answers wholly")
    print(f"logits differ by {np.mean(errors):.2%} of their spread, at most {max(errors):.2%}")


def recordings(folder: Path, count: int) -> list[tuple[Path, str]]:
    """English ones and their texts, the same each time."""
    listed = folder / "manifest.json"
    if not listed.exists():
        found = sorted(folder.glob("*.wav"))
        return [(each, each.with_suffix(".txt").read_text("utf-8")) for each in found[:count]]
    rows = [each for each in json.loads(listed.read_text("utf-8")) if each["language"] == "en"]
    rows = [each for each in rows if len(each["text"].split()) >= 4]
    chosen = np.random.default_rng(0).permutation(len(rows))[:count]
    return [(folder / rows[index]["path"], rows[index]["text"]) for index in chosen]


def compare_speech(arguments: argparse.Namespace) -> None:
    """Print word errors with each cache."""
    spoken = recordings(arguments.recordings, arguments.count)
    recognized: dict[KvDtype, list[str]] = {}
    kinds: tuple[KvDtype, ...] = ("auto", "int8")
    for kind in kinds:
        with LocalEngine(arguments.folder, dtype=arguments.dtype, kv_dtype=kind) as engine:
            recognized[kind] = [engine.transcribe(path, language="en").text for path, _ in spoken]
        errors = sum(
            (word_errors(text, got) for (_, text), got in zip(spoken, recognized[kind], strict=True)),
            WordErrors(),
        )
        print(f"{arguments.dtype}, {kind}: {errors.errors} of {errors.words} words wrong ({errors.rate:.2%})")
    equal = sum(a == b for a, b in zip(*recognized.values(), strict=True))
    print(f"{equal} of {len(spoken)} transcripts are the same")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float32"])
    parser.add_argument("--count", type=int, default=16)
    parts = parser.add_subparsers(required=True)
    text = parts.add_parser("text")
    text.add_argument("folder", type=Path)
    text.add_argument("--file", type=Path, required=True)
    text.add_argument("--prompt", type=int, default=256)
    text.add_argument("--answer", type=int, default=64)
    text.set_defaults(run=compare_text)
    speech = parts.add_parser("speech")
    speech.add_argument("folder")
    speech.add_argument("recordings", type=Path)
    speech.set_defaults(run=compare_speech)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
