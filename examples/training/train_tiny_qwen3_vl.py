"""Train the embedded model tiny-qwen3-vl from nothing but the scenes and clips it draws.

    python examples/training/train_tiny_qwen3_vl.py train      # train and export
    python examples/training/train_tiny_qwen3_vl.py evaluate   # how often the export answers right

Everything lies in --work, nothing is read from elsewhere. `train` goes on where it was stopped; what a step
learns depends on seed, step and the number of processes; --steps may change (`trainer.py`). --start begins
with an exported folder instead of random weights, at the lesson of step --at. Start reading at `Trainer`.
"""

import argparse
import random
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from clip_questions import NUM_FRAMES, drawn_clip
from lessons import EVERYTHING
from safetensors.torch import load_file
from small_talk import TALK_KINDS, beyond, talk
from tiny_qwen3_vl_data import SYSTEMS, Batches, clip_turns, frame_times, still_scene, still_turns
from tiny_qwen3_vl_evaluation import evaluate
from tiny_qwen3_vl_model import TrainedVl, VlBatch, build_tokenizer, export, model_config
from token_words import BARE_WORDS
from tokenizers import Tokenizer
from trainer import Losses, Run, Training, in_processes, steady_rate, trained

DEFAULT_FOLDER = Path.home() / ".cache" / "sensorium" / "tiny-qwen3-vl"
NUM_TOKENIZER_SCENES = 4_000
PATCH_WEIGHT, WORD_WEIGHT = 0.5, 0.3


@dataclass(frozen=True, slots=True)
class Options(Run):
    """The command line."""

    command: str
    output: Path | None
    start: Path | None
    first_step: int
    seed: int
    num_rows: int
    num_held_out: int

    @property
    def exported(self) -> Path:
        return self.output or self.work / "model"

    def rate(self, step: int) -> float:
        """The learning rate of a step; moments that no export keeps warm up from the first."""
        done = self.first_step
        return steady_rate(step - done, num_steps=self.num_steps - done, num_decaying=self.num_decaying)


class Trainer:
    """The network on its way through the batches, exported at the end; one of `num_processes`."""

    def __init__(self, options: Options, rank: int) -> None:
        torch.manual_seed(options.seed)
        self._options = options
        self._rank = rank
        start = options.start
        self._tokenizer = self._found_tokenizer()
        self._batches = Batches(
            self._tokenizer,
            seed=options.seed,
            num_rows=options.num_rows,
            num_processes=options.num_processes,
        )
        self._model = TrainedVl(model_config(self._tokenizer))
        if start is not None:
            stored = load_file(start / "model.safetensors")
            self._model.vl.load_state_dict({n: t.float() for n, t in stored.items()}, strict=False)
        matrices = [
            parameter
            for name, parameter in self._model.named_parameters()
            if parameter.ndim == 2 and (".layers." in name or ".blocks." in name)
        ]
        self._training = Training(self._model, options.rate, matrices=matrices)
        self._training.step = options.first_step
        options.restore_newest(self._training)

    def _found_tokenizer(self) -> Tokenizer:
        """What the folder in --work or --start was trained with; a new one where nothing was."""
        kept = self._options.work / "tokenizer.json"
        if not kept.exists() and self._options.start is not None:
            kept = self._options.start / "tokenizer.json"
        return Tokenizer.from_file(str(kept)) if kept.exists() else built_tokenizer(self._options.seed)

    def run(self) -> None:
        """Train to the last step, saving and logging on the way, and export."""
        options, training = self._options, self._training
        options.work.mkdir(parents=True, exist_ok=True)
        if self._rank == 0:
            self._tokenizer.save(str(options.work / "tokenizer.json"))
            print(f"{sum(p.numel() for p in self._model.vl.parameters()) / 1e6:.2f} M parameters", flush=True)
        for _ in trained(training, options, self._rank, self._batches.batch, self._losses):
            pass
        if self._rank == 0:
            export(training.mean_weights("vl."), self._tokenizer, options.exported)

    def _losses(self, batch: VlBatch) -> Losses:
        loss, patch_loss, word_loss = self._model(batch)
        figures = {"loss": loss.item(), "patches": patch_loss.item(), "words": word_loss.item()}
        return loss + PATCH_WEIGHT * patch_loss + WORD_WEIGHT * word_loss, figures


def built_tokenizer(seed: int, num_scenes: int = NUM_TOKENIZER_SCENES) -> Tokenizer:
    """The same in every run: built of what is asked and answered."""
    rng = random.Random(f"{seed}/texts")
    texts = [*SYSTEMS, "system\n", "user\n", "assistant\n"] * 500
    texts += [f"{word} {word}" for word in BARE_WORDS] * (3 * num_scenes // 4)
    for _ in range(num_scenes):
        turns = still_turns(still_scene(rng), rng, EVERYTHING) + clip_turns(
            drawn_clip(rng, NUM_FRAMES[-1]), rng
        )
        turns += [talk(kind, rng) for kind in TALK_KINDS] + [beyond(rng)]
        texts += [text for turn in turns for text in (turn.question, turn.answer)]
        texts += [f"<{time_s:.1f} seconds>" for time_s in frame_times(NUM_FRAMES[-1])]
    return build_tokenizer(texts)


def _options() -> Options:
    parser = argparse.ArgumentParser(description="Train tiny-qwen3-vl on scenes it draws.")
    parser.add_argument("command", choices=["train", "evaluate"])
    parser.add_argument("--work", type=Path, default=DEFAULT_FOLDER, help="states and export")
    parser.add_argument("--output", type=Path, help="the exported model; model in --work if not given")
    parser.add_argument("--start", type=Path, help="begin with the weights of this exported model")
    parser.add_argument(
        "--at", dest="first_step", type=int, default=0, help="how many steps made what --start names"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", dest="num_processes", type=int, default=2)
    parser.add_argument("--steps", dest="num_steps", type=int, default=10_000)
    parser.add_argument("--decay", dest="num_decaying", type=int, default=2_000, help="last steps")
    parser.add_argument("--rows", dest="num_rows", type=int, default=32, help="of each process' batch")
    parser.add_argument("--held-out", dest="num_held_out", type=int, default=50, help="of a kind")
    return Options(**vars(parser.parse_args()))


def _train(rank: int, options: Options) -> None:
    Trainer(options, rank).run()


def main() -> None:
    """Do what the command says."""
    options = _options()
    if options.command == "evaluate":
        print(evaluate(options.exported, options.num_held_out, options.seed))
        return
    options.work.mkdir(parents=True, exist_ok=True)
    in_processes(partial(_train, options=options), options.num_processes, options.work / "meeting")


if __name__ == "__main__":
    main()
