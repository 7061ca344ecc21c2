"""What users of `LocalEngine` may write, and what becomes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image
from sensorium import AsyncLocalEngine, LocalEngine
from sensorium.actors.local.engine import as_prompts, spread
from sensorium.actors.local.options import (
    Prompt,
    SamplingOptions,
    check_template,
    full_scale,
    read_prompt,
    read_samples,
)
from sensorium.actors.local.speech import read_request_options
from sensorium.actors.text.media_opening import Frames, Samples
from sensorium.protocols.chat.content import MediaPart, TextPart
from sensorium.protocols.engine.messages import Grammar, SamplingParams
from sensorium.protocols.errors import BadRequestError
from sensorium.protocols.shared.sampling import SamplingDefaults

MESSAGES = [{"role": "user", "content": "Hi"}]


def test_defaults_are_greedy() -> None:
    assert SamplingOptions().params(100) == SamplingParams(max_tokens=256)
    own = SamplingDefaults(temperature=0.7, top_k=5)
    assert SamplingOptions().params(100, own) == SamplingParams(max_tokens=256, temperature=0.7, top_k=5)
    greedy = SamplingOptions(temperature=0.0, top_k=0)
    assert greedy.params(100, own) == SamplingParams(max_tokens=256)


def test_options_arrive() -> None:
    options = SamplingOptions(
        max_tokens=5,
        temperature=0.5,
        top_p=0.9,
        top_k=3,
        min_p=0.1,
        seed=1,
        stop="end",
        stop_token_ids=(7,),
        min_tokens=2,
        ignore_eos=True,
        presence_penalty=0.1,
        frequency_penalty=0.2,
        repetition_penalty=1.1,
        logit_bias={3: -1.0},
        allowed_token_ids=[1, 2],
        logprobs=0,
        prompt_logprobs=1,
        json_schema={"type": "object"},
    )
    assert options.params(100) == SamplingParams(
        max_tokens=5,
        temperature=0.5,
        top_p=0.9,
        top_k=3,
        min_p=0.1,
        seed=1,
        stop=("end",),
        stop_token_ids=(7,),
        min_tokens=2,
        ignore_eos=True,
        presence_penalty=0.1,
        frequency_penalty=0.2,
        repetition_penalty=1.1,
        logit_bias=((3, -1.0),),
        allowed_token_ids=(1, 2),
        logprobs=0,
        prompt_logprobs=1,
        grammar=Grammar("json_schema", '{"type":"object"}'),
    )


def test_what_an_answer_may_not_hold() -> None:
    assert SamplingOptions(bad_words="word").forbidden == ["word"]
    assert SamplingOptions(bad_words=("a", "b")).forbidden == ["a", "b"]
    assert SamplingOptions(no_repeat_ngram_size=3).params(100).no_repeat_ngram_size == 3
    with pytest.raises(BadRequestError, match="bad_words"):
        SamplingOptions(bad_words=["a", ""]).params(100)


def test_what_ends_an_answer_may_be_in_it() -> None:
    assert SamplingOptions(stop="end", include_stop_str_in_output=True).params(100).includes_stop


@pytest.mark.parametrize(
    ("given", "number"),
    [
        ("a", 1),
        (["a", "b"], 2),
        ([1, 2], 1),
        ([[1], [2]], 2),
        (MESSAGES, 1),
        ([MESSAGES, MESSAGES], 2),
        (MESSAGES[0], 1),
        ({"text": "a"}, 1),
        ([{"text": "a"}, "b", [1], MESSAGES], 4),
        ([], 0),
    ],
)
def test_one_prompt_or_many(given: Any, number: int) -> None:  # noqa: ANN401
    assert len(as_prompts(given)) == number


def test_options_for_all_or_for_each() -> None:
    one, other = SamplingOptions(max_tokens=1), SamplingOptions(max_tokens=2)
    assert spread(None, ["a"]) == [SamplingOptions()]
    assert spread(one, ["a", "b"]) == [one, one]
    assert spread([one, other], ["a", "b"]) == [one, other]
    with pytest.raises(BadRequestError):
        spread([one], ["a", "b"])


def test_media_lie_before_the_text() -> None:
    prompt = read_prompt({"text": "What?", "images": [b"file"], "video": b"film", "audio": b"sound"})
    assert prompt.conversation is not None
    content = prompt.conversation.messages[0].content
    assert content == (
        MediaPart("image", b"", "images[0]"),
        MediaPart("video", b"", "video"),
        MediaPart("audio", b"", "audio"),
        TextPart("What?"),
    )
    assert prompt.sources == {"images[0]": b"file", "video": b"film", "audio": b"sound"}


def test_media_lie_in_the_last_user_message() -> None:
    messages = [*MESSAGES, {"role": "assistant", "content": "Yes?"}, {"role": "user", "content": "Look"}]
    prompt = read_prompt({"messages": messages, "images": [b"file"]}, enable_thinking=False)
    assert prompt.conversation is not None
    assert prompt.conversation.messages[0].content == "Hi"
    assert prompt.conversation.messages[2].content == (MediaPart("image", b"", "images[0]"), TextPart("Look"))
    assert prompt.conversation.template_kwargs == {"enable_thinking": False}


def test_settings_of_the_template_are_told_from_its_variables() -> None:
    prompt = read_prompt(
        [*MESSAGES, {"role": "assistant", "content": "So"}],
        continue_final_message=True,
        add_generation_prompt=False,
        mood="good",
    )
    assert prompt.conversation is not None
    assert prompt.conversation.continue_final_message
    assert not prompt.conversation.add_generation_prompt
    assert prompt.conversation.template_kwargs == {"mood": "good"}


def test_transparent_pictures_lie_on_white(tmp_path: Path) -> None:
    image = Image.new("RGBA", (4, 4), (10, 20, 30, 0))
    found = read_prompt({"text": "a", "images": [image]}).sources["images[0]"]
    assert isinstance(found, np.ndarray)
    assert found.shape == (4, 4, 3)
    assert (found == 255).all()


def test_frames_have_times() -> None:
    frame = np.zeros((4, 4, 3), np.uint8)
    found = read_prompt({"text": "a", "video": [frame] * 3, "fps": 4}).sources["video"]
    assert isinstance(found, Frames)
    assert list(found.times_s) == [0.0, 0.25, 0.5]


def test_samples_are_resampled() -> None:
    found = read_prompt({"text": "", "audio": (np.zeros(48_000), 48_000)}).sources["audio"]
    assert isinstance(found, Samples)
    assert len(found.samples) == 16_000
    assert found.samples.dtype == np.float32


@pytest.mark.parametrize(("dtype", "full"), [("<i2", 2**15), (">i2", 2**15), ("<i4", 2**31), (">i4", 2**31)])
def test_integers_are_as_loud_as_what_they_stand_for(dtype: str, full: int) -> None:
    given: npt.NDArray[Any] = (0.25 * full * np.sin(np.arange(1600))).astype(dtype)
    expected = (given / full).astype(np.float32)
    found = read_prompt({"text": "", "audio": (given, 16_000)}).sources["audio"]
    assert isinstance(found, Samples)
    np.testing.assert_array_equal(found.samples, expected)
    np.testing.assert_array_equal(full_scale(given[:, None]), expected[:, None])


@pytest.mark.parametrize(
    ("prompt", "param"),
    [
        ({"images": []}, "prompt"),
        ({"text": "a", "messages": MESSAGES}, "prompt"),
        ({"text": "a", "colour": 1}, "prompt"),
        ([1, "a"], "prompt"),
        ([{"role": "user"}], "messages[0].content"),
        ([{"role": "user", "content": object()}], "messages"),
        ({"messages": [{"role": "system", "content": "a"}], "images": [b"x"]}, "messages"),
        ({"text": "a", "images": [np.zeros((4, 4, 3))]}, "images[0]"),
        ({"text": "a", "video": [np.zeros((4, 4, 4), np.uint8)]}, "video[0]"),
        ({"text": "a", "audio": [0.0] * 100}, "audio"),
        ({"text": "a", "audio": (np.zeros((2, 100)), 16_000)}, "audio"),
        ({"text": "a", "audio": (np.full(100, np.nan), 16_000)}, "audio"),
        ({"text": "a", "audio": (np.zeros(0), 16_000)}, "audio"),
        ({"text": "a", "audio": ([0, 12_000, -500], 16_000)}, "audio"),
        ({"text": "a", "audio": (np.full(100, 12_000.0), 16_000)}, "audio"),
        ({"text": "a", "audio": (np.zeros(100, np.uint8), 16_000)}, "audio"),
        ({"text": "a", "audio": (np.zeros(100), 44_100.5)}, "audio"),
    ],
    ids=range(17),
)
def test_refused_by_name(prompt: Prompt, param: str) -> None:
    with pytest.raises(BadRequestError) as caught:
        read_prompt(prompt)
    assert caught.value.param == param


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(FileNotFoundError):
        read_prompt({"text": "a", "images": ["/nowhere/at/all.png"]})


@pytest.mark.parametrize("prompt", [5, None, ["a", 5], 2.5])
def test_what_is_no_prompt_is_refused_in_words(prompt: Any) -> None:  # noqa: ANN401
    def read() -> None:
        for each in as_prompts(prompt):
            read_prompt(each)

    with pytest.raises(BadRequestError, match=r"^A prompt is a text"):
        read()


def test_ids_of_numpy_are_one_prompt() -> None:
    ids: Any = np.array([3, 4])
    (one,) = as_prompts(ids)
    assert read_prompt(one).raw == (3, 4)


def test_options_that_are_none_are_refused_in_words() -> None:
    options: Any = {"max_tokens": 3}
    for given in (options, [options]):
        with pytest.raises(BadRequestError, match="SamplingOptions"):
            spread(given, ["a"])


def test_half_a_surrogate_pair_is_refused_in_words() -> None:
    with pytest.raises(BadRequestError, match="surrogate"):
        read_prompt([{"role": "user", "content": "\ud800"}])
    with pytest.raises(BadRequestError, match="surrogate"):
        SamplingOptions(regex="\ud800").params(vocab_size=10)


def test_a_temperature_that_is_no_number_is_named() -> None:
    with pytest.raises(BadRequestError, match="`temperature` is nan"):
        SamplingOptions(temperature=float("nan")).params(vocab_size=10)


def test_one_picture_need_not_stand_in_a_list(tmp_path: Path) -> None:
    pixels = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    path = tmp_path / "a.png"
    Image.fromarray(pixels).save(path)
    alone: list[Any] = [pixels, Image.fromarray(pixels), path, str(path), path.read_bytes()]
    for each in alone:
        (source,) = read_prompt({"text": "What?", "images": each}).sources.values()
        (listed,) = read_prompt({"text": "What?", "images": [each]}).sources.values()
        assert bytes(source) == bytes(listed)  # type: ignore[arg-type]
    assert len(read_prompt({"text": "What?", "images": np.stack([pixels, pixels])}).sources) == 2


@pytest.mark.parametrize("kind", ["images", "video", "audio"])
def test_file_objects_are_files(kind: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"media")
    with (tmp_path / "a").open("rb") as file:
        for _ in range(2):  # from their beginning, as the SDK sends them
            assert list(read_prompt({"text": "What?", kind: file}).sources.values()) == [b"media"]
    with (tmp_path / "a").open() as text, pytest.raises(BadRequestError, match="opened as text"):
        read_prompt({"text": "What?", kind: text})


def test_samples_alone_are_at_16_khz_and_channels_are_mixed() -> None:
    left, right = np.linspace(-1, 1, 400, dtype=np.float32), np.zeros(400, np.float32)
    assert np.array_equal(read_samples(left, "audio"), left)
    assert np.array_equal(read_samples((np.stack([left, right], 1), 16_000), "audio"), left / 2)
    with pytest.raises(BadRequestError, match="n, channels"):
        read_samples((np.stack([left, right]), 16_000), "audio")


def test_no_samples_are_told_as_of_a_file() -> None:
    for nothing in (np.zeros(0, np.float32), (np.zeros(0), 8_000), (np.zeros((0, 2), np.int16), 8_000)):
        with pytest.raises(BadRequestError, match=r"`audio` holds no audio samples$"):
            read_samples(nothing, "audio")
    with pytest.raises(BadRequestError, match="allowed are"):
        read_samples(("x", 8_000), "audio")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("word_timestamps", "ask for `timestamp_granularities` word"),
        ("beam", "did you mean `beam_size`"),
        ("xyz", "there are: language, prompt"),
    ],
)
def test_an_option_of_others_is_told_by_our_name(name: str, message: str) -> None:
    with pytest.raises(BadRequestError, match=f"`{name}` is not an option; {message}") as caught:
        read_request_options({name: True})
    assert caught.value.param == name


@pytest.mark.parametrize("kind", [LocalEngine, AsyncLocalEngine])
def test_an_option_of_an_engine_that_is_none_is_told(kind: Any) -> None:  # noqa: ANN401
    message = f"^{kind.__name__} has no option 'foo'; there are: device, dtype, .*, max_context, .*kernels$"
    with pytest.raises(TypeError, match=message):
        kind("tiny-whisper", foo=1)


def test_no_limit_is_the_contexts() -> None:
    assert SamplingOptions(max_tokens=None).params(100).max_tokens == 2**31 - 1


def test_an_option_of_sampling_is_no_variable_of_a_template() -> None:
    with pytest.raises(BadRequestError, match=r"`temperature=0.5` is of sampling: SamplingOptions"):
        check_template({"enable_thinking": False, "temperature": 0.5})
    check_template({"enable_thinking": False})
