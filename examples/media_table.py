#!/usr/bin/env python3
"""Which models of `transformers` that see or hear run: `examples/media_table.py [--types A B] [--again]`.

For each type of its image-text and multimodal mappings a small random folder is written and opened. A type
*runs* if its greedy tokens equal `generate`'s for prompts with pictures or sounds, alone and in chunks among
others, and another picture or sound is answered otherwise. Of all others the words are kept with which the
loader refuses a folder of their config, before weights are read. What is known is kept in
`build/media_types.json`, so that an interrupted run goes on. Writes `docs/media_models.md`.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Final

import torch
from type_table import Result, make_table

ROOT: Final = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))
from sensorium.engine.models.families import FAMILIES as NATIVE  # noqa: E402
from sensorium.engine.models.registry import open_model  # noqa: E402
from sensorium.protocols.errors import ModelLoadError  # noqa: E402
from support.exactness import check_some_ways  # noqa: E402
from support.media_checkpoints import Checkpoint  # noqa: E402
from support.media_families import AUDIO_FAMILIES, BY_NAME  # noqa: E402
from support.media_families.clips import CLIP_FAMILIES  # noqa: E402
from support.media_family import Sound, make_media_folder  # noqa: E402
from support.text_folder import byte_level_tokenizer, write_tokenizer  # noqa: E402
from transformers import __version__ as version  # noqa: E402
from transformers.models.auto.configuration_auto import CONFIG_MAPPING  # noqa: E402
from transformers.models.auto.modeling_auto import (  # noqa: E402
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
    MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES,
)

KNOWN: Final = ROOT / "build" / "media_types.json"
TABLE: Final = ROOT / "docs" / "media_models.md"
IMAGE_TYPES: Final = sorted(MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES)
AUDIO_TYPES: Final = sorted(
    {*MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES} - {*MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES}
)
NATIVE_TESTS: Final = {
    entry.model_type: "tests/engine/models/" + entry.module.split(".")[1]
    for entry in NATIVE
    if entry.model_type in MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES
}
"""Types with code of the engine's own have tests of their own, by which they run."""
OWN_TESTS: Final = {
    **dict.fromkeys((family.model_type for family in CLIP_FAMILIES), "test_granite_speech.py"),
    **dict.fromkeys(("qwen2_5_omni", "qwen2_5_omni_thinker"), "test_omni.py"),
    "phi4_multimodal": "test_phi4_multimodal.py",
    **dict.fromkeys(("qwen3_omni_moe", "qwen3_omni_moe_thinker"), "test_omni.py"),
}
"""Types that take sound in another way, or beside pictures, and the tests by which they run."""


@torch.inference_mode()
def check(model_type: str) -> Result:
    """What becomes of a small folder of a type."""
    torch.set_num_threads(1)
    if model_type in NATIVE_TESTS:
        return {"state": "runs", "path": f"native (`{NATIVE_TESTS[model_type]}/`)"}
    if model_type in OWN_TESTS:
        return {
            "state": "runs",
            "path": f"transformers (`tests/engine/models/multimodal/{OWN_TESTS[model_type]}`)",
        }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "model"
        try:
            if model_type not in BY_NAME:
                return _words(model_type, folder)
            _run(model_type, folder)
        except ModelLoadError as error:
            return {"state": "refused", "words": str(error).replace(str(folder), "FOLDER")}
        except Exception as error:  # whatever a config or a model's own code raises
            words = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
            return {"state": "fails", "words": words, "trace": traceback.format_exc()}
    return {"state": "runs", "path": "transformers"}


def _run(model_type: str, folder: Path) -> None:
    """Raise what does not hold."""
    family = BY_NAME[model_type]
    checkpoint = Checkpoint(make_media_folder(folder, family), family)
    if family in AUDIO_FAMILIES:
        cases = [
            checkpoint.case(Sound(1.31, 1), "What is to be heard?"),
            checkpoint.case("First:", Sound(2.0, 2), "then:", Sound(0.57, 3), "What is the difference?"),
        ]
        other = checkpoint.case(Sound(1.31, 4), "What is to be heard?")
    else:
        cases = [
            checkpoint.case((40, 56, 1), "What is in the picture?"),
            checkpoint.case("The first:", (70, 36, 2), "the second:", (33, 33, 3), "The difference?"),
        ]
        other = checkpoint.case((40, 56, 4), "What is in the picture?")
    assert other.prompt == cases[0].prompt
    assert other.expected != cases[0].expected, "another medium, the same answer"
    check_some_ways(
        checkpoint.model,
        [*cases, other],
        seed=0,
        sees_whole_items=checkpoint.source.sees_whole_items,
        sees_whole_prompts=checkpoint.source.info.sees_whole_prompts,
        positions=checkpoint.source.positions,
    )


def _words(model_type: str, folder: Path) -> Result:
    """What the loader says of a folder with a type's default config."""
    folder.mkdir()
    config = CONFIG_MAPPING[model_type]().to_dict()
    config["architectures"] = [MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES[model_type]]
    (folder / "config.json").write_text(json.dumps(config, default=str))
    write_tokenizer(folder, byte_level_tokenizer(320))
    open_model(folder, device="cpu", dtype="float32")
    return {"state": "fails", "words": "opened, but no test makes a small folder of it"}


def main() -> None:
    """Check what is not known yet, and write the table."""
    every = [*IMAGE_TYPES, *AUDIO_TYPES, "audioflamingo3"]
    random.Random(0).shuffle(every)
    make_table(__doc__, check, every, KNOWN, write_table)


def write_table(results: dict[str, Result]) -> None:
    """`docs/media_models.md`, of all that is known."""
    images = [name for name in IMAGE_TYPES if results.get(name, {}).get("state") == "runs"]
    sounds = [name for name in AUDIO_TYPES if results.get(name, {}).get("state") == "runs"]
    lines = [
        f"# The models of transformers {version} that see or hear",
        "",
        (
            f"{len(images)} of the {len(IMAGE_TYPES)} image-text types run, and {len(sounds)} of the "
            f"{len(AUDIO_TYPES)} that take audio and no pictures. *Runs* means that a small random folder of "
            "the type answers in float32 as `generate` does, alone and in chunks among others, and that "
            "another picture or sound changes the answer. No torchvision is needed: what becomes of pixels "
            "and samples is the server's own, as are the placeholders in prompts. Types with the "
            "engine's own code name their tests; the others' encoders and decoders are run by the code of "
            "`transformers`, with the engine's attention and cache."
        ),
        "",
        (
            "`examples/media_table.py` writes this page. `sensorium models FOLDER` says of a checkpoint "
            "whether it would be served, and why not, before any weights are read. [models.md](models.md) "
            "has the language models."
        ),
    ]
    for title, names in (
        ("Pictures", IMAGE_TYPES),
        ("Audio, without pictures", [*AUDIO_TYPES, "audioflamingo3"]),
    ):
        lines += ["", f"## {title}", "", "| type | | through, or why not |", "|---|---|---|"]
        lines += [_row(name, results.get(name, {"state": "not checked", "words": ""})) for name in names]
    TABLE.write_text("\n".join(lines) + "\n")


def _row(model_type: str, result: Result) -> str:
    if result["state"] == "runs":
        return f"| `{model_type}` | runs | {result['path']} |"
    words = result["words"].removeprefix("FOLDER: ").removeprefix("FOLDER/config.json: ")
    words = words.partition("; supported are ")[0].partition("; docs/models.md lists")[0].replace("|", "\\|")
    return f"| `{model_type}` | {result['state']} | {words} |"


if __name__ == "__main__":
    main()
