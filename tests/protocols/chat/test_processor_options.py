"""`mm_processor_kwargs`: each key reaches its kind of media, the particular first; what is wrong is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from sensorium.protocols.anthropic.request import parse_message, parse_message_count
from sensorium.protocols.chat.processor_options import (
    NO_PROCESSOR_OPTIONS,
    PROCESSOR_KEYS,
    OptionValue,
    ProcessorOptions,
    UnknownKey,
)
from sensorium.protocols.chat.request import Conversation, parse_chat
from sensorium.protocols.chat.tokenize import parse_tokenize
from sensorium.protocols.errors import BadRequestError
from sensorium.protocols.responses.request import parse_response

MESSAGES = [{"role": "user", "content": "Hi"}]
FIELD = "mm_processor_kwargs"


def tokenized(body: bytes) -> Conversation:
    found = parse_tokenize(body)[1]
    assert isinstance(found, Conversation)
    return found


ROUTES: dict[str, tuple[Callable[[bytes], Conversation], dict[str, Any]]] = {
    "chat": (lambda body: parse_chat(body)[1], {"messages": MESSAGES}),
    "responses": (lambda body: parse_response(body).conversation(()), {"input": "Hi"}),
    "messages": (lambda body: parse_message(body).conversation, {"messages": MESSAGES, "max_tokens": 5}),
    "count": (lambda body: parse_message_count(body).conversation, {"messages": MESSAGES}),
    "tokenize": (tokenized, {"messages": MESSAGES}),
}


def options_of(kwargs: object, route: str = "chat") -> ProcessorOptions:
    parse, least = ROUTES[route]
    return parse(json.dumps({**least, FIELD: kwargs}).encode()).processor_options


@pytest.mark.parametrize("route", ROUTES)
def test_every_route_of_conversations_takes_it(route: str) -> None:
    assert options_of(None, route) == options_of({}, route) == NO_PROCESSOR_OPTIONS
    assert options_of({"max_pixels": 99}, route).image.max_pixels == OptionValue(99, f"{FIELD}.max_pixels")
    assert options_of({"max_pixel": 99}, route).unknown == UnknownKey(f"{FIELD}.max_pixel", PROCESSOR_KEYS)


def test_keys_are_of_images_or_videos_or_both() -> None:
    found = options_of(
        {"min_pixels": 4, "do_resize": False, "fps": 1, "max_frames": 9, "do_sample_frames": True}
    )
    assert (found.image.min_pixels, found.image.do_resize) == (OptionValue(4, f"{FIELD}.min_pixels"), False)
    assert found.image.fps is found.image.max_frames is found.video.min_pixels is None
    assert (found.video.fps, found.video.do_resize) == (OptionValue(1, f"{FIELD}.fps"), False)
    sized = options_of({"size": {"longest_edge": 7, "shortest_edge": 3}})
    assert sized.image == sized.video
    assert sized.video.max_pixels == OptionValue(7, f"{FIELD}.size.longest_edge")


def test_what_is_said_of_one_kind_goes_first() -> None:
    found = options_of(
        {
            "size": {"longest_edge": 9},
            "fps": 2,
            "images_kwargs": {"max_pixels": 5},
            "videos_kwargs": {"num_frames": 3},
        }
    )
    assert found.image.max_pixels == OptionValue(5, f"{FIELD}.images_kwargs.max_pixels")
    assert found.video.max_pixels == OptionValue(9, f"{FIELD}.size.longest_edge")
    assert (found.video.fps, found.video.num_frames) == (
        None,
        OptionValue(3, f"{FIELD}.videos_kwargs.num_frames"),
    )


@pytest.mark.parametrize(
    ("kwargs", "param"),
    [
        ({"fps": 2, "num_frames": 4}, "num_frames"),
        ({"fps": 0}, "fps"),
        ({"fps": 1e9}, "fps"),
        ({"fps": "2"}, "fps"),
        ({"num_frames": 0}, "num_frames"),
        ({"min_frames": -1}, "min_frames"),
        ({"max_frames": 1.5}, "max_frames"),
        ({"max_pixels": 0}, "max_pixels"),
        ({"max_pixels": 10**18}, "max_pixels"),
        ({"min_pixels": True}, "min_pixels"),
        ({"size": {"longest_edge": 0}}, "size.longest_edge"),
        ({"size": {"longest_edge": 4}, "max_pixels": 4}, "size"),
        ({"size": 4}, "size"),
        ({"do_resize": "no"}, "do_resize"),
        ({"do_sample_frames": False}, "do_sample_frames"),
        ({"videos_kwargs": {"num_frames": 0}}, "videos_kwargs.num_frames"),
    ],
)
def test_what_is_wrong_is_named(kwargs: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequestError) as caught:
        options_of(kwargs)
    assert caught.value.param == f"{FIELD}.{param}"


@pytest.mark.parametrize(
    ("kwargs", "param", "group"),
    [
        ({"fps": 0, "use_audio_in_video": True}, "use_audio_in_video", ""),
        ({"size": {"height": 4, "width": 4}}, "size.height", "size"),
        ({"images_kwargs": {"fps": 2}}, "images_kwargs.fps", "images_kwargs"),
        ({"videos_kwargs": {"max_pixels": 2}}, "videos_kwargs.max_pixels", "videos_kwargs"),
    ],
)
def test_unknown_keys_are_left_to_who_knows_the_model(kwargs: object, param: str, group: str) -> None:
    unknown = options_of(kwargs).unknown
    assert unknown is not None
    assert (unknown.param, unknown.group) == (f"{FIELD}.{param}", group)


def test_it_must_be_an_object_and_is_none_of_a_prompts() -> None:
    bad: object
    for bad in ([], "a", 3):
        with pytest.raises(BadRequestError) as caught:
            options_of(bad)
        assert caught.value.param == FIELD
    with pytest.raises(BadRequestError) as caught:
        parse_tokenize(json.dumps({"prompt": "Hi", FIELD: {}}).encode())
    assert caught.value.param == FIELD
