"""Train the embedded model tiny-qwen3-asr from nothing but espeak-ng's speech.

    python examples/training/train_tiny_qwen3_asr.py words      # from packages: see `word_lists.py`
    python examples/training/train_tiny_qwen3_asr.py data       # speak the pool of clips
    python examples/training/train_tiny_qwen3_asr.py train      # train and export
    python examples/training/train_tiny_qwen3_asr.py evaluate   # word error rates of the export

Everything lies in --work. `train` goes on where it was stopped, and may begin while `data` is still
speaking. The learning rate stays at its peak until the last --decay steps, whose states are kept apart:
with a smaller --steps a training ends early, and with a larger one it goes on from where it began to end.
Start reading at `Trainer`.
"""

import argparse
import multiprocessing
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import wait
from pathlib import Path
from random import Random
from typing import cast

import torch
from open_text import drawn_kind, open_texts
from speech_grammar import LANGUAGES
from spoken_clips import generate
from tiny_qwen3_asr_data import Batches, Pool
from tiny_qwen3_asr_evaluation import evaluate
from tiny_qwen3_asr_model import LANGUAGE_NAMES, AsrBatch, TrainedAsr, build_tokenizer, export, model_config
from tiny_qwen3_asr_start import start_from
from tokenizers import Tokenizer
from torch import distributed
from trainer import Training, steady_rate
from word_lists import DEFAULT_FOLDER, build, load_words

NUM_TOKENIZER_TEXTS = 10_000
"""Of each language."""
CTC_WEIGHT = 0.4
LOG_EVERY, SAVE_EVERY_S = 20, 240
FEW = 2
"""Recordings of a kind and language that are asked about on the way."""


@dataclass(frozen=True, slots=True)
class Options:
    """The command line."""

    command: str
    work: Path
    output: Path | None
    sources: Path
    start: Path | None
    seed: int
    num_shards: int
    num_processes: int
    num_steps: int
    num_decaying: int
    frames_per_batch: int
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

    def state(self, step: int) -> Path:
        """Where the state after so many steps is saved: a decay does not replace the last before it."""
        return self.work / ("decaying.pt" if self.is_decaying(step) else "training.pt")

    def is_decaying(self, step: int) -> bool:
        return step > self.num_steps - self.num_decaying


class Trainer:
    """The network on its way through the batches, exported now and then; one of `num_processes`."""

    def __init__(self, options: Options, rank: int) -> None:
        torch.manual_seed(options.seed)
        self._options = options
        self._rank = rank
        self._texts = open_texts(load_words(options.words))
        self._tokenizer = self._built_tokenizer()
        pool = Pool(options.clips, options.num_shards)
        self._batches = Batches(
            pool,
            self._texts,
            self._tokenizer,
            seed=options.seed,
            frames_per_batch=options.frames_per_batch,
        )
        self._model = TrainedAsr(model_config(self._tokenizer))
        if options.start is not None:
            start_from(options.start, self._model, self._tokenizer)
        matrices = [p for name, p in self._model.named_parameters() if p.ndim == 2 and ".layers." in name]
        rate = partial(steady_rate, num_steps=options.num_steps, num_decaying=options.num_decaying)
        self._training = Training(self._model, rate, matrices=matrices)
        self._restore()

    def run(self) -> None:
        """Train to the last step, saving, exporting and logging on the way."""
        options, training = self._options, self._training
        if self._rank == 0:
            size = sum(p.numel() for p in self._model.asr.parameters()) / 1e6
            print(f"{size:.2f} M parameters", flush=True)
        saved_at = begun = time.monotonic()
        sums = torch.zeros(3)
        for batch in self._ahead():
            loss, ctc_loss = self._model(batch)
            training.take(loss + CTC_WEIGHT * ctc_loss)
            sums += torch.tensor([loss.item(), ctc_loss.item(), 100.0 * len(batch.chunks)])
            if self._rank > 0:
                continue
            if training.step % LOG_EVERY == 0:
                mean_loss, mean_ctc, frames = (sums / LOG_EVERY).tolist()
                sums.zero_()
                elapsed_s = time.monotonic() - begun
                print(
                    f"{training.step:6d} {elapsed_s:6.0f} s  loss {mean_loss:.3f}  ctc {mean_ctc:.3f}"
                    f"  {frames:.0f} frames  rate {training.rate(training.step):.1e}",
                    flush=True,
                )
            is_last = training.step == options.num_steps
            begins_to_end = training.step == options.num_steps - options.num_decaying
            if is_last or begins_to_end or time.monotonic() - saved_at > SAVE_EVERY_S:
                training.save(options.state(training.step))
                saved_at = time.monotonic()
            if is_last or training.step % options.export_every == 0:
                export(self._mean_weights(), self._tokenizer, options.exported)
                print(evaluate(options.exported, options.words, FEW, options.seed), flush=True)

    def _ahead(self) -> Iterator[AsrBatch]:
        """This process' batches, each made while the one before is trained on."""
        workers = self._options.num_processes
        with ThreadPoolExecutor(1) as thread:
            step = self._training.step
            coming = thread.submit(self._batches.batch, step * workers + self._rank)
            while step < self._options.num_steps:
                batch = coming.result()
                step += 1
                coming = thread.submit(self._batches.batch, step * workers + self._rank)
                yield batch

    def _restore(self) -> None:
        """Continue from the last saved step, if there is one."""
        decaying, steady = self._options.work / "decaying.pt", self._options.work / "training.pt"
        if decaying.exists():
            step = torch.load(decaying, weights_only=True, mmap=True)["step"]
            if self._options.is_decaying(step) and step <= self._options.num_steps:
                self._training.restore(decaying)
                return
        if steady.exists():
            self._training.restore(steady)

    def _built_tokenizer(self) -> Tokenizer:
        """The same in every run; what the training says, and the words of prompts."""
        rng = Random(f"{self._options.seed}/texts")
        texts = [self._texts[name].phrase(drawn_kind(rng), rng) for name in LANGUAGES * NUM_TOKENIZER_TEXTS]
        headers = [f"language {name}" for name in (*LANGUAGE_NAMES.values(), "None")] * 500
        return build_tokenizer([*texts, *headers, *["system\n", "user\n", "assistant\n"] * 500])

    def _mean_weights(self) -> dict[str, torch.Tensor]:
        named = self._training.mean_weights()
        return {
            name: named.get(f"asr.{name}", tensor)
            for name, tensor in self._model.asr.state_dict().items()
            if name != "lm_head.weight"
        }


def _train(rank: int, options: Options, meeting: str) -> None:
    torch.set_num_threads(1)  # the matrices are too small to share, and sums keep their order
    if options.num_processes > 1:
        distributed.init_process_group(
            "gloo", init_method=f"file://{meeting}", rank=rank, world_size=options.num_processes
        )
    Trainer(options, rank).run()


def _train_together(options: Options) -> None:
    """Train in as many processes; where one fails, end the others, which would wait for it."""
    meeting = options.work.resolve() / "meeting"
    meeting.unlink(missing_ok=True)
    context = multiprocessing.get_context("spawn")
    ranks = range(options.num_processes)
    processes = [context.Process(target=_train, args=(rank, options, str(meeting))) for rank in ranks]
    for process in processes:
        process.start()
    running = {process.sentinel: process for process in processes}
    while running:
        for sentinel in wait(list(running)):
            ended = running.pop(cast(int, sentinel))
            ended.join()
            if ended.exitcode:
                for other in running.values():
                    other.terminate()
                raise SystemExit(f"a training process ended with {ended.exitcode}")


def _options() -> Options:
    parser = argparse.ArgumentParser(description="Train tiny-qwen3-asr on espeak-ng's speech.")
    parser.add_argument("command", choices=["words", "data", "train", "evaluate"])
    parser.add_argument("--work", type=Path, default=DEFAULT_FOLDER, help="word lists, clips, states, export")
    parser.add_argument("--output", type=Path, help="the exported model; model in --work if not given")
    parser.add_argument("--sources", type=Path, default=DEFAULT_FOLDER / "sources", help="packages of words")
    parser.add_argument("--start", type=Path, help="begin with the weights of this, smaller, model")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--shards", dest="num_shards", type=int, default=120, help="of 1000 clips")
    parser.add_argument("--processes", dest="num_processes", type=int, default=2)
    parser.add_argument("--steps", dest="num_steps", type=int, default=7_000)
    parser.add_argument("--decay", dest="num_decaying", type=int, default=1_200, help="last steps")
    parser.add_argument("--frames-per-batch", type=int, default=12_000, help="of each process")
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
            _train_together(options)


if __name__ == "__main__":
    main()
