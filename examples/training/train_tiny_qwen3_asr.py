"""Train the embedded model tiny-qwen3-asr from nothing but espeak-ng's speech.

    python examples/training/train_tiny_qwen3_asr.py words      # from packages: see `word_lists.py`
    python examples/training/train_tiny_qwen3_asr.py data       # speak the pool of clips
    python examples/training/train_tiny_qwen3_asr.py train      # train and export
    python examples/training/train_tiny_qwen3_asr.py evaluate   # word error rates of the export

Everything lies in --work. `train` goes on where it was stopped, and may begin while `data` is still
speaking; --steps may change (`trainer.py`).
Start reading at `Trainer`.
"""

import argparse
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

import torch
from open_text import KINDS, Kind, drawn_kind, open_texts
from speech_grammar import LANGUAGES
from spoken_clips import generate
from tiny_qwen3_asr_data import MISLED_SHARE, Batches, Pool
from tiny_qwen3_asr_evaluation import evaluate
from tiny_qwen3_asr_model import (
    LANGUAGE_NAMES,
    AsrBatch,
    Shape,
    TrainedAsr,
    build_tokenizer,
    export,
    model_config,
)
from tiny_qwen3_asr_start import start_from
from tokenizers import Tokenizer
from trainer import PEAK_LEARNING_RATE, Losses, Run, Training, in_processes, steady_rate, trained
from word_lists import DEFAULT_FOLDER, build, load_words

NUM_TOKENIZER_TEXTS = 10_000
"""Of each language."""
CTC_WEIGHT, RECALL_WEIGHT = 0.4, 1.5
CTC_ALONE_STEPS = 60
"""With --start: an exported folder lacks the CTC head, which must not shake a tower that hears."""
FEW = 2
"""Recordings of a kind and language that are asked about on the way."""


@dataclass(frozen=True, slots=True)
class Options(Run):
    """The command line."""

    command: str
    output: Path | None
    sources: Path
    start: Path | None
    new_tokenizer: bool
    kinds: list[Kind]
    peak: float
    tower_layers: int
    decoder_mlp: int
    seed: int
    num_shards: int
    frames_per_batch: int
    misled_share: float
    export_every: int
    num_held_out: int

    @property
    def words(self) -> Path:
        return self.work / "words.json"

    @property
    def clips(self) -> Path:
        return self.work / "clips"

    @property
    def exported(self) -> Path:
        return self.output or self.work / "model"

    @property
    def shape(self) -> Shape:
        return Shape(self.tower_layers, self.decoder_mlp)


class Trainer:
    """The network on its way through the batches, exported now and then; one of `num_processes`."""

    def __init__(self, options: Options, rank: int) -> None:
        torch.manual_seed(options.seed)
        self._options = options
        self._rank = rank
        self._texts = open_texts(load_words(options.words))
        self._tokenizer = self._own_tokenizer()
        pool = Pool(options.clips, options.num_shards, options.kinds)
        self._batches = Batches(
            pool,
            self._texts,
            self._tokenizer,
            seed=options.seed,
            frames_per_batch=options.frames_per_batch,
            misled_share=options.misled_share,
        )
        self._model = TrainedAsr(model_config(self._tokenizer, options.shape))
        if options.start is not None:
            start_from(options.start, self._model, self._tokenizer)
        matrices = [p for name, p in self._model.named_parameters() if p.ndim == 2 and ".layers." in name]
        rate = partial(
            steady_rate,
            num_steps=options.num_steps,
            num_decaying=options.num_decaying,
            peak=options.peak,
        )
        self._training = Training(self._model, rate, matrices=matrices)
        options.restore_newest(self._training)

    def run(self) -> None:
        """Train to the last step, saving, exporting and logging on the way."""
        options, training = self._options, self._training
        if self._rank == 0:
            size = sum(p.numel() for p in self._model.asr.parameters()) / 1e6
            print(f"{size:.2f} M parameters", flush=True)
        for step in trained(training, options, self._rank, self._batches.batch, self._losses):
            if self._rank == 0 and (step == options.num_steps or step % options.export_every == 0):
                export(training.mean_weights("asr."), self._tokenizer, options.shape, options.exported)
                print(evaluate(options.exported, options.words, FEW, options.seed), flush=True)

    def _losses(self, batch: AsrBatch) -> Losses:
        ctc_alone = self._options.start is not None and self._training.step < CTC_ALONE_STEPS
        loss, ctc_loss = self._model(batch, ctc_alone=ctc_alone)
        recall_loss = self._model.recalled(batch.recall)
        figures = {"loss": loss.item(), "ctc": ctc_loss.item(), "recall": recall_loss.item()}
        whole = loss + CTC_WEIGHT * ctc_loss + RECALL_WEIGHT * recall_loss
        return whole, figures | {"frames": 100.0 * len(batch.chunks)}

    def _own_tokenizer(self) -> Tokenizer:
        """That of the model to begin with, or built of what the training says and of the words of prompts;
        the same in every run."""
        start = self._options.start
        if start is not None and not self._options.new_tokenizer:
            return Tokenizer.from_file(str(start / "tokenizer.json"))
        rng = Random(f"{self._options.seed}/texts")
        texts = [self._texts[name].phrase(drawn_kind(rng), rng) for name in LANGUAGES * NUM_TOKENIZER_TEXTS]
        headers = [f"language {name}" for name in (*LANGUAGE_NAMES.values(), "None")] * 500
        return build_tokenizer([*texts, *headers, *["system\n", "user\n", "assistant\n"] * 500])


def _train(rank: int, options: Options) -> None:
    Trainer(options, rank).run()


def _options() -> Options:
    parser = argparse.ArgumentParser(description="Train tiny-qwen3-asr on espeak-ng's speech.")
    parser.add_argument("command", choices=["words", "data", "train", "evaluate"])
    parser.add_argument("--work", type=Path, default=DEFAULT_FOLDER, help="word lists, clips, states, export")
    parser.add_argument("--output", type=Path, help="the exported model; model in --work if not given")
    parser.add_argument("--sources", type=Path, default=DEFAULT_FOLDER / "sources", help="packages of words")
    parser.add_argument("--start", type=Path, help="begin with weights and tokenizer of this exported model")
    parser.add_argument("--new-tokenizer", action="store_true", help="with its weights only")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS), help="of clips to train on")
    parser.add_argument("--peak", type=float, default=PEAK_LEARNING_RATE, help="learning rate")
    parser.add_argument("--tower-layers", type=int, default=6)
    parser.add_argument("--mlp", dest="decoder_mlp", type=int, default=768, help="the decoder's width")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--shards", dest="num_shards", type=int, default=120, help="of 1000 clips")
    parser.add_argument("--processes", dest="num_processes", type=int, default=2)
    parser.add_argument("--steps", dest="num_steps", type=int, default=7_000)
    parser.add_argument("--decay", dest="num_decaying", type=int, default=1_200, help="last steps")
    parser.add_argument("--frames-per-batch", type=int, default=12_000, help="of each process")
    parser.add_argument(
        "--misled", dest="misled_share", type=float, default=MISLED_SHARE, help="share of misleading answers"
    )
    parser.add_argument("--export-every", type=int, default=500, help="steps between exports")
    parser.add_argument(
        "--held-out", dest="num_held_out", type=int, default=100, help="of a kind and language"
    )
    return Options(**vars(parser.parse_args()))


def main() -> None:
    """Do what the command says."""
    options = _options()
    match options.command:
        case "words":
            build(options.sources, options.words)
        case "data":
            generate(options.clips, options.words, options.seed, options.num_shards, options.num_processes)
        case "evaluate":
            print(evaluate(options.exported, options.words, options.num_held_out, options.seed))
        case _:
            in_processes(partial(_train, options=options), options.num_processes, options.work / "meeting")


if __name__ == "__main__":
    main()
