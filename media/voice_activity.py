"""How likely each 32 ms of audio is speech: the silero network on onnxruntime, frame by frame.

It scores; deciding when a turn starts and ends is `realtime/turns.py`. The weights come from the
`silero_vad` package's folder, which is found but not imported: importing it loads torch and sets torch's
number of threads for the whole process.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnxruntime

from ..protocols.audio import INTERNAL_RATE
from ..protocols.errors import ModelLoadError

FloatArray = npt.NDArray[np.float32]

FRAME_SAMPLES: Final = 512
"""Samples per score at 16 kHz; the network knows no other length."""
CONTEXT_SAMPLES: Final = 64
"""Samples of the previous frame that the network sees again."""
_STATE_SHAPE: Final = (2, 1, 128)
_RATE: Final = np.array(INTERNAL_RATE, dtype=np.int64)


def _weights() -> Path:
    package = importlib.util.find_spec("silero_vad")
    for folder in (package.submodule_search_locations or []) if package else []:
        path = Path(folder) / "data" / "silero_vad.onnx"
        if path.is_file():
            return path
    raise ModelLoadError("voice activity: data/silero_vad.onnx was not found; is silero-vad installed?")


class VoiceActivityModel:
    """One network for all streams: holds no state of a stream, runs on one thread."""

    def __init__(self, path: Path | None = None) -> None:
        """`path` defaults to the installed weights. Raises ModelLoadError if they cannot be loaded."""
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
        options.log_severity_level = 3  # errors only; the exported graph warns about unused initializers
        path = path or _weights()
        try:
            self._session: Any = onnxruntime.InferenceSession(
                str(path), sess_options=options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # onnxruntime's exceptions share no base below Exception
            raise ModelLoadError(f"voice activity: {path} could not be loaded: {error}") from error

    def score(self, frame: FloatArray, state: FloatArray) -> tuple[float, FloatArray]:
        """Speech probability of one frame with its context, [576], and the state after it, [2, 1, 128]."""
        probability, state = self._session.run(None, {"input": frame[None], "state": state, "sr": _RATE})
        return float(probability[0, 0]), state


class VoiceActivityStream:
    """Scores one stream at 16 kHz; the scores do not depend on how the stream is cut into chunks."""

    def __init__(self, model: VoiceActivityModel) -> None:
        self._model = model
        self._num_samples = 0
        self._pending = np.zeros(0, np.float32)
        self.reset()

    def reset(self) -> None:
        """Forget what was heard. Positions go on counting, and frames stay on the same grid."""
        self._state = np.zeros(_STATE_SHAPE, np.float32)
        self._context = np.zeros(CONTEXT_SAMPLES, np.float32)

    def push(self, samples: FloatArray) -> list[tuple[int, float]]:
        """`(end_sample, probability)` of every frame completed by `samples` [n], in order.

        `end_sample` counts from the stream's first sample. Costs about 0.1 ms per frame.
        """
        waiting = np.concatenate((self._pending, np.asarray(samples, dtype=np.float32)))
        num_frames = len(waiting) // FRAME_SAMPLES
        scores = []
        for frame in waiting[: num_frames * FRAME_SAMPLES].reshape(num_frames, FRAME_SAMPLES):
            probability, self._state = self._model.score(np.concatenate((self._context, frame)), self._state)
            self._context = frame[-CONTEXT_SAMPLES:]
            self._num_samples += FRAME_SAMPLES
            scores.append((self._num_samples, probability))
        self._pending = waiting[num_frames * FRAME_SAMPLES :].copy()
        return scores
