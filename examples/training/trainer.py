"""What the training scripts share: the optimisers, a running mean of the weights, and their state on disk.

Knows a module and a learning rate for every step; neither audio nor what the losses mean. Several processes
train together where `torch.distributed` runs: each brings the gradient of its own batch. A learning rate that
stays at its peak until the last steps, whose states are kept apart, allows to end early, with a smaller
number of steps, and with a larger one to go on from where the training began to end.
`train_tiny_whisper.py`, `train_tiny_qwen3_asr.py` and `train_tiny_qwen3_vl.py` use it.
"""

import math
import multiprocessing
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from torch import distributed, nn

BatchT = TypeVar("BatchT")

PEAK_LEARNING_RATE = 1.5e-3
WARMUP_SHARE = 0.06
WARMUP_STEPS = 40
WEIGHT_DECAY, MATRIX_WEIGHT_DECAY = 0.01, 0.05
EMA_DECAY = 0.999
LOG_EVERY, SAVE_EVERY_S = 20, 240


def cosine_rate(step: int, num_steps: int) -> float:
    """Linear warm-up, then a cosine down to a hundredth of the peak."""
    warmup = max(1, int(WARMUP_SHARE * num_steps))
    if step < warmup:
        return PEAK_LEARNING_RATE * (step + 1) / warmup
    progress = (step - warmup) / max(1, num_steps - warmup)
    return PEAK_LEARNING_RATE * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * progress)))


def steady_rate(step: int, num_steps: int, num_decaying: int, peak: float = PEAK_LEARNING_RATE) -> float:
    """Linear warm-up, the peak for as long as one likes, and a straight way down in the last steps."""
    rising = (step + 1) / WARMUP_STEPS
    falling = (num_steps - step) / max(1, num_decaying)
    return peak * max(0.01, min(1.0, rising, falling))


class Training:
    """A module being trained, `step` steps of it done; Muon steps its `matrices`, AdamW the rest."""

    def __init__(
        self,
        model: nn.Module,
        rate: Callable[[int], float],
        *,
        matrices: Sequence[torch.Tensor] = (),
    ) -> None:
        self.step = 0
        self.rate = rate
        self._model = model
        self._parameters: list[torch.Tensor] = [p for p in model.parameters() if p.requires_grad]
        chosen = {id(matrix) for matrix in matrices}
        others = [p for p in self._parameters if id(p) not in chosen]
        self._optimizers: list[torch.optim.Optimizer] = [
            torch.optim.AdamW(others, lr=0.0, betas=(0.9, 0.98), weight_decay=WEIGHT_DECAY, foreach=True)
        ]
        if matrices:
            self._optimizers.append(
                torch.optim.Muon(
                    matrices, lr=0.0, weight_decay=MATRIX_WEIGHT_DECAY, adjust_lr_fn="match_rms_adamw"
                )
            )
        self._mean = [p.detach().clone() for p in self._parameters]

    def take(self, loss: torch.Tensor) -> None:
        """One step down the gradient of `loss`, averaged over the processes."""
        torch.autograd.backward(loss)
        if distributed.is_initialized():
            _average([p.grad for p in self._parameters if p.grad is not None])
        torch.nn.utils.clip_grad_norm_(self._parameters, 1.0)
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                group["lr"] = self.rate(self.step)
            optimizer.step()
            optimizer.zero_grad()
        # A short memory at first, or the mean would hold on to the random start.
        decay = min(EMA_DECAY, (1 + self.step) / (10 + self.step))
        with torch.no_grad():
            torch._foreach_lerp_(self._mean, self._parameters, 1 - decay)
        self.step += 1

    def mean_weights(self, part: str = "") -> dict[str, torch.Tensor]:
        """The module's state, or what of it has names that begin with `part`, by the rest of their names: of
        every trained parameter the running mean. What is tied to another parameter has none."""
        named = (name for name, parameter in self._model.named_parameters() if parameter.requires_grad)
        means = dict(zip(named, self._mean, strict=True))
        state = self._model.state_dict().items()
        return {
            name.removeprefix(part): means.get(name, tensor)
            for name, tensor in state
            if name.startswith(part)
        }

    def save(self, path: Path) -> None:
        """Write the state, at once or not at all."""
        temporary = path.with_suffix(".tmp")
        state = {
            "model": self._model.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self._optimizers],
            "mean": self._mean,
            "step": self.step,
        }
        torch.save(state, temporary)
        os.replace(temporary, path)

    def restore(self, path: Path) -> None:
        """Continue from a saved state."""
        state: dict[str, Any] = torch.load(path, weights_only=True)
        self._model.load_state_dict(state["model"])
        for optimizer, saved in zip(self._optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self._mean = state["mean"]
        self.step = state["step"]
        print(f"resuming at step {self.step}", flush=True)


def _average(gradients: list[torch.Tensor]) -> None:
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    distributed.all_reduce(flat)
    flat /= distributed.get_world_size()
    parts = torch.split(flat, [gradient.numel() for gradient in gradients])
    torch._foreach_copy_(gradients, [p.view_as(g) for p, g in zip(parts, gradients, strict=True)])


def in_processes(train: Callable[[int], None], num_processes: int, meeting: Path) -> None:
    """Call `train` with each rank in a process of its own, with one thread, and with `torch.distributed` if
    they are several; `meeting` is a file in which they find each other. `train` can be pickled. Where one
    fails, the others, which would wait for it, are ended and SystemExit is raised."""
    meeting.unlink(missing_ok=True)
    context = multiprocessing.get_context("spawn")
    arguments = (train, num_processes, str(meeting.resolve()))
    processes = [context.Process(target=_ranked, args=(rank, *arguments)) for rank in range(num_processes)]
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


def _ranked(rank: int, train: Callable[[int], None], num_processes: int, meeting: str) -> None:
    torch.set_num_threads(1)  # the matrices are too small to share, and sums keep their order
    if num_processes > 1:
        distributed.init_process_group(
            "gloo", init_method=f"file://{meeting}", rank=rank, world_size=num_processes
        )
    train(rank)


@dataclass(frozen=True, slots=True)
class Run:
    """How far a training goes, in how many processes, and the folder of its states."""

    work: Path
    num_processes: int
    num_steps: int
    num_decaying: int

    def state(self, step: int) -> Path:
        """Where the state after so many steps is saved: a decay does not replace the last before it."""
        return self.work / ("decaying.pt" if self._is_decaying(step) else "training.pt")

    def restore_newest(self, training: Training) -> None:
        """Continue from the last saved step, if there is one: of the states while the learning rate decays,
        which are kept apart, only where this training comes by."""
        decaying, steady = self.work / "decaying.pt", self.work / "training.pt"
        if decaying.exists() and self._comes_by(torch.load(decaying, weights_only=True, mmap=True)["step"]):
            training.restore(decaying)
        elif steady.exists():
            training.restore(steady)

    def _is_decaying(self, step: int) -> bool:
        return step > self.num_steps - self.num_decaying

    def _comes_by(self, step: int) -> bool:
        return self._is_decaying(step) and step <= self.num_steps


Losses = tuple[torch.Tensor, dict[str, float]]
"""What a step goes down, and figures of it to log."""


def trained(
    training: Training, run: Run, rank: int, make: Callable[[int], BatchT], losses: Callable[[BatchT], Losses]
) -> Iterator[int]:
    """Take the steps that are left, with batches by their numbers; yields each that is done. The first of the
    processes saves and logs on the way."""
    saved_at = begun = time.monotonic()
    figured = deque[dict[str, float]](maxlen=LOG_EVERY)
    for batch in _made_ahead(make, training.step, run.num_steps, rank, run.num_processes):
        loss, figures = losses(batch)
        training.take(loss)
        figured.append(figures)
        if rank == 0 and training.step % LOG_EVERY == 0:
            means = {name: sum(each[name] for each in figured) / len(figured) for name in figures}
            print(
                f"{training.step:6d} {time.monotonic() - begun:6.0f} s"
                + "".join(f"  {name} {mean:.4g}" for name, mean in means.items())
                + f"  rate {training.rate(training.step):.1e}",
                flush=True,
            )
        to_keep = training.step in (run.num_steps, run.num_steps - run.num_decaying)
        if rank == 0 and (to_keep or time.monotonic() - saved_at > SAVE_EVERY_S):
            training.save(run.state(training.step))
            saved_at = time.monotonic()
        yield training.step


def _made_ahead(
    make: Callable[[int], BatchT], first: int, last: int, rank: int, num_processes: int
) -> Iterator[BatchT]:
    """One process' batches of the steps from `first` to before `last`, each made during the one before."""
    with ThreadPoolExecutor(1) as thread:
        step = first
        coming = thread.submit(make, step * num_processes + rank)
        while step < last:
            batch = coming.result()
            step += 1
            coming = thread.submit(make, step * num_processes + rank)
            yield batch
