"""Whether a folder's completions equal those of `transformers`, token by token, in float32.

    python examples/benchmarks/completions_agree.py FOLDER [--tokens 32]

Eight beginnings of texts are completed by `generate`, then by the engine: all at once, and again from the
prefix cache. Two of them are pages of this project's documents, some 800 tokens: longer than the sliding
windows that models have. Prints each completion, and how many are equal; where the two best logits are closer
than 1e-4 either token is right, and the comparison ends there. Exits with 1 if one differs.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from sensorium.engine.models.registry import open_model
from support.exactness import BLOCK_SIZE, Case, Engine, reference_case
from transformers import AutoModelForCausalLM, AutoTokenizer

BEGINNINGS: Final = (
    "The capital of France is",
    "Water boils at a temperature of",
    "Once upon a time, in a small village by the sea,",
    "def fibonacci(n):\n    ",
    "The three primary colours are",
    "Die Hauptstadt von Deutschland ist",
)
_DOCUMENTS: Final = ("lifecycle.md", "glossary.md")
_DOCUMENT_LETTERS: Final = 3200
_SHOWN_LETTERS: Final = 40
"""Of the end of what is completed."""


def beginnings() -> list[str]:
    """Texts to complete."""
    docs = Path(__file__).parents[2] / "docs"
    return [*BEGINNINGS, *((docs / name).read_text()[:_DOCUMENT_LETTERS] for name in _DOCUMENTS)]


@torch.inference_mode()
def main() -> None:
    """Complete, compare, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tokens", type=int, default=32)
    options = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(options.folder)
    reference = AutoModelForCausalLM.from_pretrained(options.folder, dtype=torch.float32).eval()
    texts = beginnings()
    prompts = [tokenizer(text)["input_ids"] for text in texts]
    cases = [reference_case(reference, prompt, num_tokens=options.tokens) for prompt in prompts]
    del reference
    source = open_model(options.folder, device="cpu", dtype="float32")
    model = source.load()
    num_blocks = sum(
        source.layout.num_blocks(len(case.prompt) + options.tokens, BLOCK_SIZE, 512) for case in cases
    )
    engine = Engine(model, num_blocks=2 * num_blocks)
    num_equal = 0
    answers: list[list[list[int]]] = []
    for _ in range(2):
        ids = [engine.submit(case, num_tokens=options.tokens) for case in cases]
        engine.run()
        answers.append([engine.tokens(request_id) for request_id in ids])
    for text, case, first, second in zip(texts, cases, *answers, strict=True):
        is_equal = _is_equal(case, first) and _is_equal(case, second)
        num_equal += is_equal
        verdict = "equal " if is_equal else "DIFFER"
        shown = f"{len(case.prompt)} tokens …{text[-_SHOWN_LETTERS:]!r}"
        print(f"{verdict} {shown} {tokenizer.decode(first)!r}")
    print(
        f"{num_equal} of {len(cases)} equal, {options.tokens} tokens each, through {source.info.runs_through}"
    )
    sys.exit(num_equal < len(cases))


def _is_equal(case: Case, tokens: list[int]) -> bool:
    try:
        case.check(tokens, "")
    except AssertionError:
        return False
    return True


if __name__ == "__main__":
    main()
