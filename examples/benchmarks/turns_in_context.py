"""What live turns would gain if Whisper heard them behind what was said before, instead of alone.

    python examples/benchmarks/turns_in_context.py FOLDER_OF_WHISPER MIXES/conv.wav MIXES/speaker*.wav

Each turn of a recording (English; `human_mixes.py` makes them, with their times) is decoded greedily by
`transformers` in three ways: as a recording of its own; in a window that begins with the turns before it
(whole ones, up to `--before-s`), whose text is given as the answer's beginning; and in that window, but so
that the decoder attends to the turn's positions only, and is told no text. Words wrong of each, in percent.
A sketch to decide by: no language is detected, no loop cut, and turns are where the recording's JSON says.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

import jiwer
import numpy as np
import numpy.typing as npt
import torch
from sensorium.client.audio import read_wav
from sensorium.client.bench.report import table
from sensorium.client.bench.turns import SpokenTurn, read_spoken_turns
from sensorium.media.resample import StreamingResampler
from transformers import WhisperFeatureExtractor, WhisperForConditionalGeneration, WhisperTokenizer
from transformers.models.whisper.english_normalizer import EnglishTextNormalizer

RATE: Final = 16_000
WINDOW_S: Final = 29.5
POSITION: Final = 320
"""Samples of a position of the encoder."""
LEAD_MS, TAIL_MS = 200, 300
MOST_TOKENS: Final = 100
PROMPT: Final = ("<|startoftranscript|>", "<|en|>", "<|transcribe|>", "<|notimestamps|>")


class Decoder:
    """Greedy answers of one checkpoint."""

    def __init__(self, folder: Path, dtype: torch.dtype) -> None:
        self._model = WhisperForConditionalGeneration.from_pretrained(folder, dtype=dtype).eval()
        self._features = WhisperFeatureExtractor.from_pretrained(folder)
        self._tokens = WhisperTokenizer.from_pretrained(folder)
        self._prompt = [self._tokens.convert_tokens_to_ids(token) for token in PROMPT]
        self._end = int(self._tokens.convert_tokens_to_ids("<|endoftext|>"))

    @torch.no_grad()
    def answer(self, samples: npt.NDArray[np.float32], said: str, *, first: int = 0) -> str:
        """What follows `said`, of a window of which positions from `first` on are attended to."""
        features = self._features(samples, sampling_rate=RATE, return_tensors="pt").input_features
        encoded = self._model.model.encoder(features.to(self._model.dtype))
        encoded.last_hidden_state = encoded.last_hidden_state[:, first:]
        ids = self._prompt + (self._tokens.encode(f" {said}", add_special_tokens=False) if said else [])
        found: list[int] = []
        cache = None
        while len(found) < MOST_TOKENS:
            step = self._model(
                encoder_outputs=encoded,
                decoder_input_ids=torch.tensor([ids]),
                past_key_values=cache,
                use_cache=True,
            )
            cache, logits = step.past_key_values, step.logits[0, -1]
            logits[self._end + 1 :] = -torch.inf
            if not said and not found:
                logits[self._end] = -torch.inf
            if (token := int(logits.argmax())) == self._end:
                break
            found.append(token)
            ids = [token]
        return str(self._tokens.decode(found)).strip()


def ranges_of(turns: list[SpokenTurn]) -> list[tuple[int, int]]:
    """Samples of each turn, with a little around them."""
    per_ms = RATE // 1000
    return [(max(0, each.start_ms - LEAD_MS) * per_ms, (each.end_ms + TAIL_MS) * per_ms) for each in turns]


def begins(ranges: list[tuple[int, int]], index: int, before_s: float) -> int:
    """The first turn of the window that ends with turn `index`."""
    start, end = ranges[index]
    while index:
        earlier = ranges[index - 1][0]
        if start - earlier > before_s * RATE or end - earlier > WINDOW_S * RATE:
            break
        index -= 1
    return index


def row(decoder: Decoder, path: Path, before_s: float) -> list[str]:
    """One recording's line of the table."""
    audio, turns = read_wav(path), read_spoken_turns(path.with_suffix(".json"))
    pcm = np.frombuffer(audio.pcm, np.int16).astype(np.float32) / np.float32(32768)
    samples = StreamingResampler(audio.rate).push(pcm, last=True)
    ranges = ranges_of(turns)
    alone: list[str] = []
    told: list[str] = []
    heard: list[str] = []
    for index, (start, end) in enumerate(ranges):
        first = begins(ranges, index, before_s)
        window = samples[ranges[first][0] : end]
        alone.append(decoder.answer(samples[start:end], ""))
        told.append(decoder.answer(window, " ".join(told[first:index])))
        heard.append(decoder.answer(window, "", first=(start - ranges[first][0]) // POSITION))
    normal = EnglishTextNormalizer({})
    reference = normal(" ".join(turn.text for turn in turns))
    rates = [jiwer.wer(reference, normal(" ".join(texts))) for texts in (alone, told, heard)]
    found = [path.stem, str(len(turns)), *(f"{100 * rate:.2f}" for rate in rates)]
    print(", ".join(found), file=sys.stderr, flush=True)
    return found


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description="Turns alone and behind what was said before.")
    parser.add_argument("model", type=Path, help="a folder of Whisper's")
    parser.add_argument("recording", type=Path, nargs="+", help="with its turns in a JSON beside it")
    parser.add_argument("--before-s", type=float, default=24.0)
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16")
    arguments = parser.parse_args()
    decoder = Decoder(arguments.model, getattr(torch, arguments.dtype))
    rows = [row(decoder, path, arguments.before_s) for path in arguments.recording]
    print(table(["recording", "turns", "alone WER %", "behind sound and text", "behind sound"], rows))


if __name__ == "__main__":
    main()
