"""Draw where turns and words were found: `python examples/plot_words.py talk.wav out.svg [URL]`.

The picture is the recording's mel spectrogram (librosa, a development dependency), with a bar over each turn
and each word under where it was said. Of a live session, sent as fast as the server takes it.
"""

from __future__ import annotations

import base64
import io
import sys
from html import escape

import librosa
import numpy as np
from PIL import Image
from sensorium.client import Client, Committed, Completed, SDKError
from sensorium.client.audio import read_wav
from sensorium.protocols.transcription.transcript import Word

PX_PER_S = 120
NUM_MELS = 80
HEIGHT = 2 * NUM_MELS


def listen(path: str, url: str | None) -> tuple[list[tuple[float, float]], list[Word]]:
    """Turns, and words, both in seconds of the recording."""
    audio = read_wav(path)
    turns: dict[str, tuple[float, float]] = {}
    words: list[Word] = []
    with (
        Client(url) as client,
        client.realtime(sample_rate=audio.rate, timestamp_granularities=["word"]) as session,
    ):
        for event in session.transcribe(audio.chunks()):
            match event:
                case Committed(item_id=item, audio_start_ms=int(start), audio_end_ms=int(end)):
                    turns[item] = (start / 1000, end / 1000)
                case Completed(item_id=item, words=list(timed_words)):
                    begin = turns[item][0]
                    words += [Word(each.word, begin + each.start, begin + each.end) for each in timed_words]
                case _:
                    pass
    return list(turns.values()), words


def spectrogram(path: str) -> tuple[str, float]:
    """The picture as a data URI, and the seconds it lasts."""
    samples, rate = librosa.load(path, sr=16_000)
    power = librosa.feature.melspectrogram(y=samples, sr=rate, n_fft=400, hop_length=160, n_mels=NUM_MELS)
    decibels = librosa.power_to_db(power, ref=np.max, top_db=70.0)
    grey = np.uint8(255 + decibels[::-1] * (-255 / -70.0))
    data = io.BytesIO()
    Image.fromarray(255 - grey).save(data, "png")
    return f"data:image/png;base64,{base64.b64encode(data.getvalue()).decode()}", len(samples) / rate


def main(path: str, out: str, url: str | None = None) -> None:
    """Listen, draw, write."""
    turns, words = listen(path, url)
    image, seconds = spectrogram(path)
    width = round(PX_PER_S * seconds)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{HEIGHT + 70}" font-size="12">',
        f'<image href="{image}" y="20" width="{width}" height="{HEIGHT}" preserveAspectRatio="none"/>',
    ]
    for start, end in turns:
        x, length = PX_PER_S * start, PX_PER_S * (end - start)
        parts.append(f'<rect x="{x:.1f}" y="4" width="{length:.1f}" height="10" fill="steelblue"/>')
    for number, word in enumerate(words):
        x, length = PX_PER_S * word.start, PX_PER_S * (word.end - word.start)
        y = HEIGHT + 24 + 22 * (number % 2)
        parts.append(f'<rect x="{x:.1f}" y="{y}" width="{length:.1f}" height="4" fill="firebrick"/>')
        parts.append(f'<text x="{x:.1f}" y="{y + 16}">{escape(word.word)}</text>')
    with open(out, "w", encoding="utf-8") as file:
        file.write("\n".join([*parts, "</svg>\n"]))
    print(f"{len(turns)} turns, {len(words)} words: {out}")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    try:
        main(*sys.argv[1:4])
    except (SDKError, OSError) as error:
        sys.exit(f"{error}")
    except KeyboardInterrupt:
        sys.exit(130)
