"""Train the embedded model tiny-whisper from nothing but espeak-ng's speech.

    python examples/training/train_tiny_whisper.py data       # speak and store the recordings
    python examples/training/train_tiny_whisper.py train      # train and export; --resume continues
    python examples/training/train_tiny_whisper.py evaluate   # word error rates of the exported model
    python examples/training/train_tiny_whisper.py all

Everything follows from --seed. Start reading at `train`; the recordings come from
`speech_synthesis.py`, the batches from `tiny_whisper_data.py`, the network and its folder
from `tiny_whisper_model.py`, the figures from `tiny_whisper_evaluation.py`.
"""

import argparse
import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import tiny_whisper_data as data
import torch
from speech_synthesis import training_texts
from tiny_whisper_evaluation import evaluate, word_error_rate
from tiny_whisper_model import CTC_WEIGHT, TrainedWhisper, alignment_heads, export, model_config
from tiny_whisper_tokens import RowMaker, build_tokenizer
from trainer import Training, cosine_rate
from transformers import WhisperTokenizer

CHECKPOINT = Path(__file__).parents[2] / "engine" / "checkpoints" / "tiny-whisper"
NUM_TOKENIZER_TEXTS = 20_000
# The last steps see the whole window only, as inference does; before, a part of them.
FULL_WINDOW_SHARE = 0.1
LAST_SHARE = 0.06
LOG_EVERY, SAVE_EVERY = 50, 500


@dataclass(frozen=True, slots=True)
class Options:
    """The command line: what to do, where, and how much of it."""

    command: str
    work: Path
    output: Path
    seed: int
    num_recordings: int
    num_steps: int
    batch_size: int
    export_every: int
    num_held_out: int
    resume: bool

    @property
    def shards(self) -> Path:
        return self.work / "shards"

    @property
    def state(self) -> Path:
        return self.work / "training.pt"


class Trainer:
    """The network on its way through the batches, exported now and then."""

    def __init__(self, options: Options, tokenizer: WhisperTokenizer, corpus: data.Corpus) -> None:
        torch.manual_seed(options.seed)
        self._options = options
        self._tokenizer = tokenizer
        self._corpus = corpus
        self._sampler = data.BatchSampler(corpus, RowMaker(tokenizer), options.batch_size, options.seed)
        self._model = TrainedWhisper(model_config(tokenizer))
        rate = partial(cosine_rate, num_steps=options.num_steps)
        self._training = Training(self._model, rate)

    def run(self) -> None:
        """Train to the last step, saving, exporting and logging on the way."""
        size = sum(p.numel() for p in self._model.whisper.parameters()) / 1e6
        print(f"{size:.2f} M parameters, {len(self._corpus)} recordings", flush=True)
        begun = time.monotonic()
        while self._training.step < self._options.num_steps:
            loss, ctc_loss = self._train_step()
            if self._training.step % LOG_EVERY == 0:
                elapsed_s = time.monotonic() - begun
                print(
                    f"{self._training.step:6d} {elapsed_s:6.0f} s  {loss:.3f}  ctc {ctc_loss:.3f}", flush=True
                )
            if self._training.step % SAVE_EVERY == 0:
                self._training.save(self._options.state)
            if (
                self._training.step % self._options.export_every == 0
                or self._training.step == self._options.num_steps
            ):
                self._training.save(self._options.state)
                self._export()

    def restore(self) -> None:
        """Continue from the last saved step."""
        self._training.restore(self._options.state)

    def _train_step(self) -> tuple[float, float]:
        last = self._training.step >= (1 - LAST_SHARE) * self._options.num_steps
        batch = self._sampler.batch(self._training.step, 1.0 if last else FULL_WINDOW_SHARE)
        loss, ctc_loss = self._model(batch)
        self._training.take(loss + CTC_WEIGHT * ctc_loss)
        return loss.item(), ctc_loss.item()

    def _export(self) -> None:
        weights = self._training.mean_weights("whisper.")
        weights["proj_out.weight"] = weights["model.decoder.embed_tokens.weight"]
        rng = random.Random(self._options.seed)
        spoken = [i for i, entry in enumerate(self._corpus.entries) if len(entry.words) > 4]
        heads = alignment_heads(weights, self._tokenizer, self._corpus, rng.sample(spoken, 48))
        export(weights, self._tokenizer, heads, self._options.output)
        rate = word_error_rate(self._options.output, num_per_language=24, seed=self._options.seed)
        print(f"{self._training.step:6d} exported, {rate:.1%} of held-out words wrong", flush=True)


def generate(options: Options) -> None:
    """Speak the recordings that are not stored yet."""
    data.generate(options.shards, options.seed, options.num_recordings, os.cpu_count() or 1)


def train(options: Options) -> None:
    """Train on the stored recordings and export the result."""
    torch.set_num_threads(os.cpu_count() or 1)
    tokenizer = build_tokenizer(training_texts(NUM_TOKENIZER_TEXTS, options.seed))
    corpus = data.Corpus(options.shards, options.num_recordings)
    trainer = Trainer(options, tokenizer, corpus)
    if options.resume and options.state.exists():
        trainer.restore()
    trainer.run()


def report(options: Options) -> None:
    """Print the exported model's figures on held-out sentences and voices."""
    print(evaluate(options.output, options.num_held_out, options.seed))


COMMANDS: dict[str, tuple[Callable[[Options], None], ...]] = {
    "data": (generate,),
    "train": (train,),
    "evaluate": (report,),
    "all": (generate, train, report),
}


def parse(arguments: list[str] | None = None) -> Options:
    """The options of a command line."""
    parser = argparse.ArgumentParser(description="Train tiny-whisper on espeak-ng's speech.")
    parser.add_argument("command", choices=COMMANDS)
    work = Path.home() / ".cache" / "sensorium" / "tiny-whisper"
    parser.add_argument("--work", type=Path, default=work, help="recordings and training state")
    parser.add_argument("--output", type=Path, default=CHECKPOINT, help="the exported model")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--recordings", dest="num_recordings", type=int, default=60_000)
    parser.add_argument("--steps", dest="num_steps", type=int, default=10_000)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--export-every", type=int, default=2_000, help="steps between exports")
    parser.add_argument("--held-out", dest="num_held_out", type=int, default=300)
    parser.add_argument("--resume", action="store_true", help="continue a stopped training")
    return Options(**vars(parser.parse_args(arguments)))


def main() -> None:
    options = parse()
    for step in COMMANDS[options.command]:
        step(options)


if __name__ == "__main__":
    main()
