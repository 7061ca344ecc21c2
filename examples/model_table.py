#!/usr/bin/env python3
"""Which causal language models of `transformers` run: `examples/model_table.py [--types A B] [--again]`.

For each of its types a small random folder is written and opened. A type *runs* if all its answers equal
`generate`'s over the whole prompt: alone, in batches, in chunks, preempted, from the prefix cache, with
drafts and in sessions (`tests/support/exactness.py`). Each type has a process of its own and a time limit;
what is known is kept in `build/model_types.json`, so that an interrupted run goes on. Writes
`docs/models.md`.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import torch

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
TIME_LIMIT_S: Final = 1800
"""Of one type: a few seconds on a machine with nothing else to do."""
Result = dict[str, str]
"""Of a type: `state` (runs, refused, fails), `path` (native or transformers) and `words`."""


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


def _child(model_type: str, pipe: Connection) -> None:
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    pipe.send(check(model_type))


def check_apart(model_type: str) -> Result:
    """In a process of its own, for no longer than the limit."""
    here, there = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_child, args=(model_type, there))
    process.start()
    there.close()
    result: Result = {"state": "fails", "words": f"not done after {TIME_LIMIT_S} s"}
    if here.poll(TIME_LIMIT_S):
        try:
            result = here.recv()
        except EOFError:
            result = {"state": "fails", "words": "its process died"}
    process.kill()
    process.join()
    return result


def main() -> None:
    """Check what is not known yet, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--types", nargs="*", help="check these (again) and no others")
    parser.add_argument("--again", action="store_true", help="check what does not run again")
    parser.add_argument("--all", action="store_true", help="forget what is known")
    parser.add_argument("--write", action="store_true", help="check nothing, and write what is known")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    results: dict[str, Any] = {}
    if KNOWN.exists() and not options.all:
        results = json.loads(KNOWN.read_text())
    decoders = [name for name in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES if name not in NOT_TEXT_DECODERS]
    for model_type in [] if options.write else options.types or decoders:
        known = results.get(model_type)
        if not options.types and known and not (options.again and known["state"] != "runs"):
            continue
        results[model_type] = check_apart(model_type)
        KNOWN.parent.mkdir(exist_ok=True)
        KNOWN.write_text(json.dumps(results, indent=1, sort_keys=True))
        print(model_type, results[model_type]["state"], results[model_type].get("words", ""), flush=True)
    write_table(results)
    print(Counter(each["state"] for each in results.values()), "of", len(decoders))


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
