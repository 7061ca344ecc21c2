"""Train the embedded model tiny-qwen3-asr from nothing but espeak-ng's speech.

    python examples/training/train_tiny_whisper.py data           # speak and store the recordings (shared)
    python examples/training/train_tiny_qwen3_asr.py train        # train and export; --resume continues
    python examples/training/train_tiny_qwen3_asr.py evaluate     # word error rates of the exported model

Everything follows from --seed. One to several recordings follow each other in a row, so that utterances span
several encoder windows. Start reading at `Trainer`; the network and its folder are `tiny_qwen3_asr_model.py`.
"""

import argparse
import time
from dataclasses import dataclass
from pathlib import Path

import tiny_whisper_data as data
import torch
from speech_synthesis import training_texts
from tiny_qwen3_asr_data import Batches
from tiny_qwen3_asr_evaluation import evaluate
from tiny_qwen3_asr_model import LANGUAGE_NAMES, TrainedAsr, build_tokenizer, export, model_config
from trainer import Training

CHECKPOINT = Path(__file__).parents[2] / "engine" / "checkpoints" / "tiny-qwen3-asr"
NUM_TOKENIZER_TEXTS = 20_000
CTC_WEIGHT = 0.4
LOG_EVERY, SAVE_EVERY = 50, 500


@dataclass(frozen=True, slots=True)
class Options:
    """The command line."""

    command: str
    work: Path
    output: Path
    seed: int
    num_recordings: int
    num_steps: int
    frames_per_batch: int
    export_every: int
    num_held_out: int
    resume: bool

    @property
    def state(self) -> Path:
        return self.work / "training-qwen3-asr.pt"


class Trainer:
    """The network on its way through the batches, exported now and then."""

    def __init__(self, options: Options) -> None:
        torch.manual_seed(options.seed)
        self._options = options
        names = [f"language {name}" for name in (*LANGUAGE_NAMES.values(), "None")] * 500
        controls = ["system\n", "user\n", "assistant\n"] * 500
        texts = [*training_texts(NUM_TOKENIZER_TEXTS, options.seed), *names, *controls]
        self._tokenizer = build_tokenizer(texts)
        corpus = data.Corpus(options.work / "shards", options.num_recordings)
        self._batches = Batches(
            corpus, self._tokenizer, seed=options.seed, frames_per_batch=options.frames_per_batch
        )
        self._model = TrainedAsr(model_config(self._tokenizer))
        self._training = Training(self._model, options.num_steps, options.state)

    def run(self) -> None:
        """Train to the last step, saving, exporting and logging on the way."""
        size = sum(p.numel() for p in self._model.asr.parameters()) / 1e6
        print(f"{size:.2f} M parameters", flush=True)
        begun = time.monotonic()
        while self._training.step < self._options.num_steps:
            loss, ctc_loss = self._train_step()
            if self._training.step % LOG_EVERY == 0:
                elapsed_s = time.monotonic() - begun
                print(
                    f"{self._training.step:6d} {elapsed_s:6.0f} s  {loss:.3f}  ctc {ctc_loss:.3f}", flush=True
                )
            if self._training.step % SAVE_EVERY == 0:
                self._training.save()
            if (
                self._training.step % self._options.export_every == 0
                or self._training.step == self._options.num_steps
            ):
                self._training.save()
                export(self._mean_weights(), self._tokenizer, self._options.output)
                print(evaluate(self._options.output, 24, self._options.seed), flush=True)

    def restore(self) -> None:
        """Continue from the last saved step."""
        self._training.restore()

    def _train_step(self) -> tuple[float, float]:
        loss, ctc_loss = self._model(self._batches.batch(self._training.step))
        self._training.take(loss + CTC_WEIGHT * ctc_loss)
        return loss.item(), ctc_loss.item()

    def _mean_weights(self) -> dict[str, torch.Tensor]:
        named = self._training.mean_weights()
        return {
            name: named.get(f"asr.{name}", tensor)
            for name, tensor in self._model.asr.state_dict().items()
            if name != "lm_head.weight"
        }


def main() -> None:
    """Train, or evaluate."""
    parser = argparse.ArgumentParser(description="Train tiny-qwen3-asr on espeak-ng's speech.")
    parser.add_argument("command", choices=["train", "evaluate"])
    work = Path.home() / ".cache" / "sensorium" / "tiny-whisper"
    parser.add_argument("--work", type=Path, default=work, help="recordings and training state")
    parser.add_argument("--output", type=Path, default=CHECKPOINT, help="the exported model")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--recordings", dest="num_recordings", type=int, default=60_000)
    parser.add_argument("--steps", dest="num_steps", type=int, default=12_000)
    parser.add_argument("--frames-per-batch", type=int, default=8_000)
    parser.add_argument("--export-every", type=int, default=3_000, help="steps between exports")
    parser.add_argument("--held-out", dest="num_held_out", type=int, default=300)
    parser.add_argument("--resume", action="store_true", help="continue a stopped training")
    options = Options(**vars(parser.parse_args()))
    if options.command == "evaluate":
        print(evaluate(options.output, options.num_held_out, options.seed))
        return
    torch.set_num_threads(1)  # the matrices are too small to share, and sums keep their order
    trainer = Trainer(options)
    if options.resume and options.state.exists():
        trainer.restore()
    trainer.run()


if __name__ == "__main__":
    main()
