"""Write the small recordings in `data/`: one conversation in three languages, two sentences.

    python examples/training/make_demo_audio.py
    python examples/training/make_demo_audio.py --turns 90 --output /tmp/talk.wav    # to measure with

Every sentence is one that the embedded models were never trained on; the voices are those they know.
`data/conversation.json` says what is spoken when.
"""

import argparse
import json
import random
import wave
from pathlib import Path

import numpy as np
from speech_grammar import LANGUAGES, Language, is_held_out, load_grammar
from speech_synthesis import HELD_OUT_VOICES, SAMPLE_RATE_HZ, VOICES, Audio, Speaker, noise

FOLDER = Path(__file__).parents[1] / "data"
WORDS_PER_MINUTE = 160
LOUDNESS = 0.5
# About 40 dB below the speech: a quiet room rather than digital silence.
ROOM_NOISE = 0.0006

Turn = tuple[Language, str, str]

CONVERSATION: tuple[Turn, ...] = (
    ("en", "en-us+f2", "Good morning Alice, how are you today?"),
    ("es", "es+m3", "¿Qué tiempo hace en Madrid el sábado?"),
    ("de", "de+f2", "Wie wird das Wetter morgen in Hamburg?"),
    ("en", "en+m1", "Remind me to call my mother on Sunday."),
    ("es", "es-419+f4", "Recuérdale a Victoria traer el paraguas mañana."),
    ("de", "de+m3", "Der Zug nach Wien fährt um halb neun von Gleis sieben."),
)
SINGLE: dict[str, tuple[Turn, ...]] = {
    "kitchen_lights": (("en", "en-us+m3", "Set the kitchen lights to ninety percent."),),
    "buenos_dias": (("es", "es+f4", "Buenos días Julia, ¿cómo estás hoy?"),),
}


def spoken(turns: tuple[Turn, ...], speaker: Speaker) -> tuple[Audio, list[dict[str, object]]]:
    """The turns one after another, 1.2 to 1.5 s apart, and when each is said."""
    rng = random.Random(f"demo/{turns[0][2]}")
    pieces = [np.zeros(SAMPLE_RATE_HZ // 2, dtype=np.float32)]
    described: list[dict[str, object]] = []
    for language, voice, text in turns:
        if not is_held_out(text):
            raise ValueError(f"{text!r} may have been trained on; choose a held-out sentence")
        audio, _ = speaker.speak(text, voice, WORDS_PER_MINUTE)
        start = sum(map(len, pieces))
        described.append(
            {
                "text": text,
                "language": language,
                "start_ms": round(1000 * start / SAMPLE_RATE_HZ),
                "end_ms": round(1000 * (start + len(audio)) / SAMPLE_RATE_HZ),
            }
        )
        pause = np.zeros(int(rng.uniform(1.2, 1.5) * SAMPLE_RATE_HZ), dtype=np.float32)
        pieces += [audio * np.float32(LOUDNESS / np.abs(audio).max()), pause]
    whole = np.concatenate(pieces)
    return whole + np.float32(ROOM_NOISE) * noise(len(whole), rng), described


def write_wav(path: Path, audio: Audio) -> None:
    """Mono, 16 kHz, 16 bit."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(SAMPLE_RATE_HZ)
        file.writeframes((np.clip(audio, -1, 1) * 32767).astype("<i2").tobytes())


def held_out_turns(count: int) -> tuple[Turn, ...]:
    """Different sentences, languages in turn, every fourth by a voice that was never trained on."""
    rng = random.Random("demo/turns")
    turns: dict[str, Turn] = {}
    while len(turns) < count:
        language = LANGUAGES[len(turns) % len(LANGUAGES)]
        voice = HELD_OUT_VOICES[language] if len(turns) % 4 == 3 else rng.choice(VOICES[language])
        text = load_grammar(language).held_out_sentence(rng)
        turns.setdefault(text, (language, voice, text))
    return tuple(turns.values())


def write_long(path: Path, num_turns: int) -> None:
    """A recording of many turns, and its description beside it."""
    audio, turns = spoken(held_out_turns(num_turns), Speaker())
    write_wav(path, audio)
    text = json.dumps({"file": path.name, "turns": turns}, ensure_ascii=False, indent=2)
    path.with_suffix(".json").write_text(text + "\n", "utf-8")


def main() -> None:
    """Write them."""
    parser = argparse.ArgumentParser(description="Make the recordings of the demo, or a long one.")
    parser.add_argument("--turns", type=int, default=0, help="turns of a long recording")
    parser.add_argument("--output", type=Path, default=Path("talk.wav"), help="where it goes")
    arguments = parser.parse_args()
    if arguments.turns:
        write_long(arguments.output, arguments.turns)
    else:
        write_small()


def write_small() -> None:
    """What is in the repository."""
    FOLDER.mkdir(exist_ok=True)
    speaker = Speaker()
    audio, turns = spoken(CONVERSATION, speaker)
    write_wav(FOLDER / "conversation.wav", audio)
    described: dict[str, object] = {"file": "conversation.wav", "turns": turns, "single": []}
    single: list[dict[str, object]] = []
    for name, sentence in SINGLE.items():
        audio, turns = spoken(sentence, speaker)
        write_wav(FOLDER / f"{name}.wav", audio)
        single.append({"file": f"{name}.wav", **turns[0]})
    described["single"] = single
    text = json.dumps(described, ensure_ascii=False, indent=2)
    (FOLDER / "conversation.json").write_text(text + "\n", "utf-8")


if __name__ == "__main__":
    main()
