"""Each channel has the transcript that it has alone, and all are read together as they were spoken."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sensorium.actors.speech.channels import together
from sensorium.actors.speech.transcriber import Transcriber
from sensorium.protocols.transcription.transcript import Segment, Transcript, TranscriptionOptions, Word
from support.scripted_speech import ScriptedFamily, scripted_audio

SAID = (("en", "hello"), ("en", "who is there?"), ("en", "me"), ("de", "wer?"))


async def test_channels_are_transcribed_alone_and_read_together() -> None:
    family = ScriptedFamily(*SAID, language_from="detection")
    transcriber = Transcriber(family)
    tracks = scripted_audio(1, 0, 3), scripted_audio(0, 2, 4)
    options = TranscriptionOptions(word_timestamps=True, segment_timestamps=True)
    alone = [await transcriber.transcribe(track, options) for track in tracks]
    asked = TranscriptionOptions(multichannel=True, word_timestamps=True)
    heard = await transcriber.transcribe(np.stack(tracks), asked)
    assert [channel.text for channel in heard.channels] == [each.text for each in alone]
    for number, channel in enumerate(heard.channels):
        assert {segment.channel for segment in channel.segments} == {number}
        assert [word.word for word in channel.words] == [word.word for word in alone[number].words]
    assert [(segment.id, segment.channel, segment.text.strip()) for segment in heard.segments] == [
        (0, 0, "hello"),
        (1, 1, "who is there?"),
        (2, 0, "me"),
        (3, 1, alone[1].segments[-1].text.strip()),
    ]
    assert heard.text == " ".join(segment.text.strip() for segment in heard.segments)
    assert [word.channel for word in heard.words] == [0, 1, 0, 1]
    assert heard.duration == 3.0


async def test_one_channel_is_as_good_as_mono() -> None:
    family = ScriptedFamily(*SAID, language_from="detection")
    samples = scripted_audio(1, 2)
    plain = await Transcriber(family).transcribe(samples, TranscriptionOptions())
    heard = await Transcriber(family).transcribe(samples[None], TranscriptionOptions(multichannel=True))
    assert (heard.text, heard.language, len(heard.channels)) == (plain.text, plain.language, 1)


def transcript(
    language: str, *segments: tuple[float, float, str], channel: int, tokens: int = 1, mean: float = 0.0
) -> Transcript:
    listed = [
        Segment(number, 0, start, end, text, (), 0.0, 0.0, 1.0, 0.0, language, channel)
        for number, (start, end, text) in enumerate(segments)
    ]
    return Transcript(
        "",
        language,
        9.0,
        (language,),
        0.7,
        tuple(listed),
        (),
        10,
        tokens,
        mean,
        0.1 * tokens,
        num_audio_tokens=8,
    )


def test_figures_are_of_all_channels_and_the_language_of_who_speaks_most() -> None:
    silent = Transcript("", "", 9.0, avg_logprob=None, no_speech_prob=1.0)
    heard = together(
        [
            transcript("de", (0.0, 1.0, "Ja."), channel=0, tokens=1, mean=-1.0),
            silent,
            transcript("zh", (2.0, 5.0, "你好。"), (5.0, 6.0, "再见。"), channel=2, tokens=3, mean=-0.2),
        ]
    )
    assert (heard.language, heard.languages, heard.language_probability) == ("zh", ("zh", "de"), 0.7)
    assert heard.text == "Ja. 你好。再见。"
    assert (heard.num_input_tokens, heard.num_audio_tokens, heard.num_output_tokens) == (20, 16, 4)
    assert heard.avg_logprob == pytest.approx(-0.4)
    assert heard.no_speech_prob == pytest.approx(0.1)
    nobody = together([silent, silent])
    assert (nobody.text, nobody.language, nobody.avg_logprob) == ("", "", None)


def test_words_of_one_moment_stand_in_the_order_of_the_channels() -> None:
    both = [Transcript("a", "en", 1.0, words=(Word("a", 0.0, 1.0, channel=channel),)) for channel in range(2)]
    assert [word.channel for word in together(both[::-1]).words] == [0, 1]


@given(st.lists(st.tuples(st.integers(0, 1), st.text(alphabet="a 你", max_size=3)), max_size=6))
def test_texts_of_segments_join_to_the_text(said: list[tuple[int, str]]) -> None:
    channels = [
        transcript(
            "en",
            *((at, at + 1.0, text) for at, (whose, text) in enumerate(said) if whose == channel),
            channel=channel,
        )
        for channel in range(2)
    ]
    heard = together(channels)
    assert "".join(segment.text for segment in heard.segments).strip() == heard.text
    assert [segment.text.strip() for segment in heard.segments] == [text.strip() for _, text in said]
    alone = together(channels[:1])
    assert alone.text == "".join(segment.text for segment in channels[0].segments).strip()


def test_a_pause_of_the_other_channel_leaves_one_space() -> None:
    first = transcript("en", (0.0, 1.0, " Yes, "), (4.0, 5.0, "I do. "), channel=0)
    other = transcript("en", (2.0, 3.0, " Do you? "), channel=1)
    heard = together([first, other])
    assert heard.text == "Yes, Do you? I do."
    assert [segment.text for segment in heard.segments] == [" Yes,", " Do you?", " I do."]


def test_a_channel_that_speaks_on_is_written_as_alone() -> None:
    """By its own white space, though its language is written without."""
    first = transcript("zh", (0.0, 1.0, "Hello."), (1.0, 2.0, " World"), (6.0, 7.0, "你好"), channel=0)
    other = transcript("th", (3.0, 4.0, "ครับ"), (4.0, 5.0, " ครับ"), channel=1)
    assert together([first]).text == "Hello. World你好"
    assert together([first, other]).text == "Hello. World ครับ ครับ你好"
