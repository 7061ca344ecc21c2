"""Greedy answers equal `transformers` `generate` in float32, token for token.

Random checkpoints of different shapes, each with several inputs: prompts, languages, language detection,
alone and in mixed batches, with right, wrong, half-right and too long drafts. Where the two best logits are
closer than 1e-4 either token is right, and the comparison of that answer ends there.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from sensorium.engine.execution.runner import Runner
from sensorium.engine.models.registry import open_model
from sensorium.engine.models.whisper.text import WhisperText
from sensorium.protocols.transcription.transcript import Task
from support.covering import covering_seeds
from support.plan_loop import Job, encode, run_jobs
from support.whisper_folder import WhisperShape, make_whisper_folder
from transformers import WhisperForConditionalGeneration

TIE = 1e-4
NUM_CHECKPOINTS = 50
_TEXT = "Turn on the lights in the kitchen, mañana Grüße"


@dataclass
class Case:
    """One input with the answer of `transformers` and the margin by which each token won."""

    prompt: tuple[int, ...]
    slot: int
    expected: list[int]
    margins: list[float]

    def check(self, tokens: list[int]) -> None:
        """Equal up to the first tie; the end of the answer is a choice with a margin too."""
        for index, margin in enumerate(self.margins):
            if margin < TIE:
                return
            assert tokens[index : index + 1] == self.expected[index : index + 1], f"token {index} of {self}"
        assert tokens == self.expected


class Reference:
    """`transformers` on the same folder."""

    def __init__(self, folder: Path) -> None:
        self.model: Any = WhisperForConditionalGeneration.from_pretrained(folder, dtype=torch.float32)
        self.model.eval()

    def detect(self, window: torch.Tensor) -> int:
        """Id of the language token."""
        return int(self.model.detect_language(window[None], num_segment_frames=window.shape[1])[0])

    def case(self, window: torch.Tensor, slot: int, *, previous: tuple[int, ...], **named: str) -> Case:
        """Decode one window as `transformers` does without any help."""
        output = self.model.generate(
            window[None],
            **named,
            prompt_ids=torch.tensor(previous) if previous else None,
            force_unique_generate_call=True,
            return_dict_in_generate=True,
            output_scores=True,
        )
        sequence: list[int] = output.sequences[0].tolist()
        num_prompt = len(sequence) - len(output.scores)
        best = torch.stack([scores[0] for scores in output.scores]).topk(2).values
        answer = [t for t in sequence[num_prompt:] if t != self.model.generation_config.eos_token_id]
        margins = (best[:, 0] - best[:, 1]).tolist()
        return Case(tuple(sequence[:num_prompt]), slot, answer, margins)


def random_shape(rng: random.Random) -> WhisperShape:
    """Small, with encoder and decoder unlike each other."""
    return WhisperShape(
        d_model=rng.choice([16, 32, 48, 64]),
        encoder_layers=rng.randint(1, 3),
        decoder_layers=rng.randint(1, 3),
        encoder_heads=rng.choice([1, 2, 4]),
        decoder_heads=rng.choice([1, 2, 4]),
        encoder_ffn=rng.choice([32, 64, 96]),
        decoder_ffn=rng.choice([32, 80, 128]),
        window_s=rng.choice([2, 2, 2, 3, 8]),
        num_mel_bins=rng.choice([80, 128]),
        max_target_positions=rng.choice([36, 48, 64]),
        num_text_tokens=rng.choice([280, 320]),
        multilingual=rng.random() < 0.85,
        activation=rng.choice(["gelu", "gelu", "relu"]),
        scale_embedding=rng.random() < 0.2,
    )


def make_cases(
    reference: Reference, text: WhisperText, windows: list[torch.Tensor], rng: random.Random
) -> list[Case]:
    """Each window twice, some with a prompt, in detected or given languages."""
    cases: list[Case] = []
    for slot, window in enumerate(windows):
        for _ in range(2):
            previous_text = _TEXT if rng.random() < 0.4 else ""
            language: str | None = None
            task: Task = "transcribe"
            named: dict[str, str] = {}
            if text.is_multilingual:
                task = rng.choice(text.info.tasks)
                language = text.language_of(reference.detect(window))
                named["task"] = task
                if rng.random() < 0.5:  # else both sides detect it
                    language = named["language"] = rng.choice(text.info.languages)
            previous = text.previous(previous_text)
            case = reference.case(window, slot, previous=previous, **named)
            prompt = text.prompt(language=language, task=task, previous_text=previous_text)
            assert prompt == case.prompt
            cases.append(case)
    return cases


def job_of(case: Case, text: WhisperText, draft: list[int] | None = None, joins_at: int = 0) -> Job:
    """The case as our request."""
    sampling = text.sampling(num_prompt=len(case.prompt))
    return Job(case.prompt, case.slot, sampling, tuple(draft or ()), joins_at=joins_at)


def drafts_of(case: Case, text: WhisperText, rng: random.Random) -> list[list[int]]:
    """Right, right and then too long, half right, wrong from the start, and with the end inside."""
    answer, vocab = case.expected, text.info.vocab_size
    noise = [rng.randrange(vocab) for _ in range(8)]
    half = answer[: len(answer) // 2]
    return [answer, answer + noise, half + noise, noise, [*answer, text.end_id, *noise], half]


@pytest.mark.parametrize("seed", covering_seeds(random_shape, NUM_CHECKPOINTS))
def test_greedy_equals_transformers(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    torch.set_num_threads(1)
    folder = make_whisper_folder(
        tmp_path,
        seed=seed,
        shape=random_shape(rng),
        suppress=rng.choice([None, []]),
    )
    if seed % 6 == 5:  # as fine-tuned with an output projection of its own, though the config ties it
        path = folder / "model.safetensors"
        tensors = load_file(path)
        tensors["proj_out.weight"] = torch.randn_like(tensors["model.decoder.embed_tokens.weight"])
        save_file(tensors, path, metadata={"format": "pt"})
    reference, text = Reference(folder), WhisperText.from_folder(folder)
    model = open_model(folder, device="cpu", dtype="float32").load()
    runner = Runner(model, num_blocks=800, block_size=rng.choice([1, 4, 16]))
    generator = torch.Generator().manual_seed(seed)
    shape = (text.info.num_mel_bins, 2 * text.info.num_positions)
    windows = [torch.randn(shape, generator=generator) for _ in range(2)]
    encode(runner, windows)
    if text.is_multilingual:
        check_detection(runner, reference, text, windows)
    cases = make_cases(reference, text, windows, rng)

    alone = job_of(cases[0], text)
    run_jobs(runner, [alone])
    cases[0].check(alone.tokens)

    # Everything at once: requests join at different steps, some with a draft, prompts in pieces.
    mixed: list[tuple[Case, Job]] = []
    for case in cases:
        drafts = rng.sample(drafts_of(case, text, rng), 2)
        mixed += [(case, job_of(case, text, draft, rng.randrange(5))) for draft in (None, *drafts)]
    rng.shuffle(mixed)
    chunk, preempt_every = rng.choice([(1, None), (3, None), (1000, None), (1000, 5)])
    run_jobs(runner, [job for _, job in mixed], seed=seed, prompt_chunk=chunk, preempt_every=preempt_every)
    for case, job in mixed:
        case.check(job.tokens)


def test_the_embedded_model_equals_transformers() -> None:
    """The weights we ship, on windows of noise of different loudness."""
    torch.set_num_threads(1)
    source = open_model("tiny-whisper", device="cpu", dtype="float32")
    text, reference, rng = WhisperText.from_folder(source.folder), Reference(source.folder), random.Random(0)
    runner = Runner(source.load(), num_blocks=100)
    generator = torch.Generator().manual_seed(0)
    shape = (text.info.num_mel_bins, 2 * text.info.num_positions)
    windows = [torch.randn(shape, generator=generator) * scale for scale in (0.1, 0.4, 0.8)]
    encode(runner, windows)
    check_detection(runner, reference, text, windows)
    cases = make_cases(reference, text, windows, rng)
    jobs = [job_of(case, text, rng.choice(drafts_of(case, text, rng))) for case in cases]
    run_jobs(runner, jobs)
    for case, job in zip(cases, jobs, strict=True):
        case.check(job.tokens)


def check_detection(
    runner: Runner, reference: Reference, text: WhisperText, windows: list[torch.Tensor]
) -> None:
    """One constrained step per window names the language `transformers` detects."""
    request = text.detection()
    jobs = [Job(request.prompt_token_ids, slot, request.sampling) for slot in range(len(windows))]
    run_jobs(runner, jobs)
    for job, window in zip(jobs, windows, strict=True):
        assert job.tokens == [reference.detect(window)]
        assert (job.num_steps, job.finish) == (1, "length")
