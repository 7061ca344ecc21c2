#!/usr/bin/env python3
"""Which causal language models of `transformers` run: `examples/model_table.py [--types A B] [--again]`.

For each of its types a small random folder is written and opened. A type *runs* if all its answers equal
`generate`'s over the whole prompt: alone, in batches, in chunks, preempted, from the prefix cache, with
drafts and in sessions (`tests/support/exactness.py`). Each type has a process of its own and a time limit;
what is known is kept in `build/model_types.json`, so that an interrupted run goes on. Writes
`docs/models.md`.
"""

from __future__ import annotations

import random
import sys
import tempfile
import traceback
from collections import Counter
from pathlib import Path
from typing import Final

import torch
from type_table import Result, make_table

ROOT: Final = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))
from sensorium.engine.models.registry import open_model  # noqa: E402
from sensorium.protocols.errors import ModelLoadError  # noqa: E402
from support.causal_types import NOT_TEXT_DECODERS, VOCAB_SIZE, tiny_config  # noqa: E402
from support.exactness import check_every_way, reference_case  # noqa: E402
from support.text_folder import make_text_folder  # noqa: E402
from transformers import AutoModelForCausalLM  # noqa: E402
from transformers import __version__ as version  # noqa: E402
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES  # noqa: E402

KNOWN: Final = ROOT / "build" / "model_types.json"
TABLE: Final = ROOT / "docs" / "models.md"
_REFUSED: Final = "this model cannot be run through transformers' attention interface: "


@torch.inference_mode()
def check(model_type: str) -> Result:
    """What becomes of a small folder of a type."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "model"
        try:
            make_text_folder(folder, tiny_config(model_type), seed=0)
        except Exception as error:  # whatever a config or a model's own code raises
            return {"state": "fails", "words": f"no folder: {_line(error)}", "trace": traceback.format_exc()}
        stage = "opening"
        try:
            source = open_model(folder, device="cpu", dtype="float32")
            path = "transformers" if source.info.family == "transformers" else "native"
            stage = "loading"
            model = source.load()
            stage = "checking"
            reference = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
            rng = random.Random(0)
            prompts = [[rng.randrange(VOCAB_SIZE) for _ in range(length)] for length in (21, 45)]
            cases = [reference_case(reference, prompt) for prompt in prompts]
            check_every_way(model, cases, seed=0)
        except ModelLoadError as error:
            words = str(error).replace(str(folder), "FOLDER")
            return {"state": "refused", "words": words, "stage": stage, "trace": traceback.format_exc()}
        except Exception as error:  # as above
            return {"state": "fails", "words": f"{stage}: {_line(error)}", "trace": traceback.format_exc()}
    return {"state": "runs", "path": path}


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def main() -> None:
    """Check what is not known yet, and write the table."""
    every = [name for name in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES if name not in NOT_TEXT_DECODERS]
    make_table(__doc__, check, every, KNOWN, write_table)


def write_table(results: dict[str, Result]) -> None:
    """`docs/models.md`, of all that is known."""
    counts = Counter(each["state"] for each in results.values())
    native = sum(each.get("path") == "native" for each in results.values())
    lines = [
        f"# The {len(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)} causal language models of transformers {version}",
        "",
        (
            f"{counts['runs']} of the {len(results)} types that are text decoders run: {native} through the "
            f"engine's own code, {counts['runs'] - native} through that of `transformers`, with the engine's "
            "attention, states and cache. *Runs* means that a small random folder of the type answers in "
            "float32 as `generate` does on the whole prompt: alone, in batches, in chunks, preempted, from "
            "the prefix cache, with drafts, and in sessions (`tests/support/exactness.py`)."
        ),
        "",
        (
            "`examples/model_table.py` writes this page. `sensorium models FOLDER` says of a folder at hand "
            "whether it would be served, through which code and with what memory, before any weights are "
            "read. [media_models.md](media_models.md) lists the types that see or hear."
        ),
        "",
        "| type | | through, or why not |",
        "|---|---|---|",
    ]
    for model_type in sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES):
        if model_type in NOT_TEXT_DECODERS:
            lines.append(f"| `{model_type}` | no text decoder | {NOT_TEXT_DECODERS[model_type]} |")
        elif model_type in results:
            found = results[model_type]
            words = found.get("path") or found["words"].replace("FOLDER: ", "").replace("|", "\\|")
            words = words.removeprefix(_REFUSED).removesuffix("; docs/models.md lists those that can")
            lines.append(f"| `{model_type}` | {found['state']} | {words} |")
    TABLE.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
