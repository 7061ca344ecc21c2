"""Each delta of a stream has the log-probabilities of its own piece, of files as of live turns."""

from __future__ import annotations

import json

import msgspec
from sensorium.media.transcript.joining import DeltaJoiner
from sensorium.protocols.transcription.rest import delta_event
from sensorium.protocols.transcription.transcript import SpokenText, TokenLogProb, Transcript, tokens_between
from sensorium.protocols.transcription.vllm_chunks import ChunkFrames
from support.dialogs import Dialog, make_transcript


def token(text: str) -> TokenLogProb:
    return TokenLogProb(text, text.encode(), -0.5)


def piece(*texts: str) -> SpokenText:
    return SpokenText("".join(texts), map(token, texts))


def told(deltas: list[str]) -> list[tuple[str, list[str]]]:
    return [(str(d), [t.text for t in d.tokens] if isinstance(d, SpokenText) else []) for d in deltas]


def test_pieces_keep_their_tokens_in_order_of_the_ranges() -> None:
    deltas: list[str] = []
    joiner = DeltaJoiner(2, deltas.append)
    first, second = joiner.feeder(0), joiner.feeder(1)
    first(piece(" Set", " the"))
    second(piece(" Now"))
    first(piece(" lights"))
    joiner.finish(0, piece("Set", " the", " lights", "."))
    joiner.finish(1, piece("Now"))
    assert told(deltas) == [
        ("Set the", [" Set", " the"]),
        (" lights", [" lights"]),
        (".", ["."]),
        (" Now", [" Now"]),
    ]


def test_text_without_tokens_is_text() -> None:
    deltas: list[str] = []
    joiner = DeltaJoiner(1, deltas.append)
    joiner.feeder(0)("Set the")
    joiner.finish(0, "Set the lights")
    assert deltas == ["Set the", " lights"]


def test_frames() -> None:
    frame = json.loads(delta_event(piece(" Set", " the"), has_logprobs=True).decode().removeprefix("data: "))
    assert frame["delta"] == " Set the"
    assert [each["token"] for each in frame["logprobs"]] == [" Set", " the"]
    assert frame["logprobs"][0] == {"token": " Set", "bytes": list(b" Set"), "logprob": -0.5}
    assert "logprobs" not in json.loads(delta_event("a").decode().removeprefix("data: "))
    chunks = ChunkFrames("transcribe", "m", unique="a", created=1, with_usage=False)
    assert b'"content":" Set"' in chunks.delta(piece(" Set"))


def test_tokens_between_bytes_of_a_text() -> None:
    heard = Transcript("Küche an.", "de", 1.0, tokens=tuple(map(token, (" Küche", " an", "."))))
    assert [each.text for each in tokens_between(heard, 0, 6)] == [" Küche"]
    assert [each.text for each in tokens_between(heard, 6, 100)] == [" an", "."]
    end = msgspec.structs.replace(heard, tokens=heard.tokens[1:])
    assert [each.text for each in tokens_between(end, 0, 9)] == [" an"]


def test_live_deltas() -> None:
    dialog = Dialog(delay="minimal")
    dialog.update({}, include=["item.input_audio_transcription.logprobs"])
    words = ("Turn", " on", " the", " light", ".")

    def hypothesis(num: int) -> Transcript:
        return msgspec.structs.replace(
            make_transcript("".join(words[:num])), tokens=tuple(map(token, words[:num]))
        )

    dialog.speak(600)
    for num in (2, 3, 4):
        while dialog.pending:
            dialog.answer(hypothesis(num))
        dialog.speak(600)
    if dialog.pending:
        dialog.answer(hypothesis(4))
    dialog.silence(256)
    dialog.answer(hypothesis(5))
    dialog.silence(1000)
    deltas = dialog.of("delta")
    assert len(deltas) > 1
    for delta in deltas:
        assert "".join(each["token"] for each in delta["logprobs"]) == delta["delta"]
    (completed,) = dialog.of("completed")
    whole = [each for delta in deltas for each in delta["logprobs"]]
    assert whole == completed["logprobs"]


def test_live_deltas_without_them_have_none() -> None:
    dialog = Dialog(delay="minimal")
    dialog.speak(1200, "turn on")
    assert all("logprobs" not in delta for delta in dialog.of("delta"))
