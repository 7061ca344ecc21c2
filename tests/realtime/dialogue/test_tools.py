"""Scripted conversations in which the model calls tools, in the shapes of OpenAI's sessions."""

from __future__ import annotations

from typing import Any

import pytest
from sensorium.protocols.chat.content import ChatMessage
from support.conversation_dialogs import Talk, text_item

TOOL = {"type": "function", "name": "look", "description": "Look there.", "parameters": {"type": "object"}}
NESTED = {"type": "function", "function": {key: TOOL[key] for key in ("name", "description", "parameters")}}
CALLS = {"calls_tools": True}


def output(call_id: str, text: str = "a cat") -> dict[str, Any]:
    """What a call gave."""
    return {"type": "function_call_output", "call_id": call_id, "output": text}


def called(talk: Talk) -> list[ChatMessage]:
    """The messages of the question that waits."""
    return list(talk.current_request().conversation.messages)


def test_a_call_its_output_and_the_answer() -> None:
    talk = Talk(dialogue=CALLS)
    talk.configure(tools=[TOOL], tool_choice="auto")
    session = talk.sent[-1]["session"]
    assert (session["tools"], session["tool_choice"]) == ([TOOL], "auto")
    talk.add(text_item("What is there?"))
    talk.respond()
    assert talk.current_request().conversation.tools == [NESTED]
    assert [tool.name for tool in talk.current_request().conversation.tool_use.tools] == ["look"]
    talk.begin()
    talk.grow("I will look.")
    talk.call("look", '{"at":', ' "door"}')
    talk.end()
    assert talk.names() == [
        "response.output_item.added",
        "added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "done",
        "response.output_item.done",
        "response.output_item.added",
        "added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "done",
        "response.output_item.done",
        "response.done",
    ]
    message, call = talk.sent[-1]["response"]["output"]
    assert message["content"] == [{"type": "output_text", "text": "I will look."}]
    assert (call["name"], call["arguments"], call["status"]) == ("look", '{"at": "door"}', "completed")
    talk.add(output(call["call_id"]))
    talk.respond()
    pending, spoke, gave = called(talk)
    assert (pending.role, spoke.role, gave.role) == ("user", "assistant", "tool")
    assert spoke.content == "I will look."
    function = {"name": "look", "arguments": {"at": "door"}}
    assert spoke.extra["tool_calls"] == [{"id": call["call_id"], "type": "function", "function": function}]
    assert (gave.content, gave.extra["tool_call_id"]) == ("a cat", call["call_id"])
    talk.reply("A cat.")
    talk.check_responses()


def test_answers_that_only_call_have_no_message() -> None:
    talk = Talk(dialogue=CALLS)
    talk.configure(tools=[TOOL])
    talk.add(text_item("?"))
    talk.respond()
    talk.begin()
    talk.call("look", "{}", call_id="a")
    talk.call("look", "{}", call_id="b")
    talk.end()
    done = talk.sent[-1]["response"]
    assert [item["type"] for item in done["output"]] == ["function_call", "function_call"]
    talk.add(output("b", "two"))
    talk.add(output("a", "one"))
    talk.respond()
    assert [(message.role, message.content) for message in called(talk)[1:]] == [
        ("assistant", ""),
        ("tool", "one"),
        ("tool", "two"),
    ]
    talk.check_responses()


def test_a_call_made_knowing_what_another_gave_is_a_message_of_its_own() -> None:
    """So the model reads on from what it read before, and no template is asked for calls made together."""
    talk = Talk(dialogue=CALLS)
    talk.configure(tools=[TOOL])
    talk.add(text_item("?"))
    read: list[ChatMessage] = []
    for call_id in "abc":
        talk.respond()
        pending = called(talk)
        assert pending[: len(read)] == read
        read = pending
        talk.begin()
        talk.call("look", "{}", call_id=call_id)
        talk.end()
        talk.add(output(call_id))
    talk.respond()
    assert [message.role for message in called(talk)] == ["user", *("assistant", "tool") * 3]


def test_what_a_call_gave_stands_behind_it_and_nothing_yet_is_no_call() -> None:
    talk = Talk(dialogue=CALLS)
    talk.configure(tools=[TOOL])
    talk.add({"type": "function_call", "call_id": "a", "name": "look", "arguments": '{"at": 1}', "id": "it"})
    talk.add(text_item("And?"))
    talk.respond()
    assert talk.prompt() == [("user", "And?")]
    talk.reply("Wait.")
    talk.add(output("a"))
    talk.respond()
    assert talk.prompt() == [("assistant", ""), ("tool", "a cat"), ("user", "And?"), ("assistant", "Wait.")]
    talk.reply("A cat.")
    talk.client({"type": "conversation.item.delete", "item_id": "it"})
    talk.respond()
    assert talk.prompt()[0] == ("user", "And?")


def test_a_call_that_was_cut_off_is_no_call() -> None:
    talk = Talk(dialogue=CALLS)
    talk.configure(tools=[TOOL])
    talk.add(text_item("?"))
    talk.respond()
    talk.begin()
    talk.call("look", '{"at": "do')
    talk.client({"type": "response.cancel"})
    call = talk.sent[-1]["response"]["output"][0]
    assert (call["status"], call["arguments"]) == ("incomplete", '{"at": "do')
    talk.add(output(call["call_id"]))
    talk.respond()
    assert talk.prompt() == [("user", "?")]
    talk.check_responses()


def test_call_ids_that_come_again_are_made_new() -> None:
    talk = Talk(dialogue=CALLS)
    talk.configure(tools=[TOOL])
    ids = []
    for _ in range(2):
        talk.respond(input=[text_item("?")])
        talk.begin()
        talk.call("look", "{}", call_id="functions.look:0")
        talk.end()
        ids.append(talk.sent[-1]["response"]["output"][0]["call_id"])
    assert ids[0] == "functions.look:0" != ids[1]


def test_one_response_may_be_told_otherwise() -> None:
    talk = Talk(dialogue=CALLS)
    talk.configure(tools=[TOOL], tool_choice={"type": "function", "name": "look"})
    talk.add(text_item("?"))
    talk.respond(tool_choice="none")
    assert talk.current_request().conversation.tools is None
    talk.reply("Fine.")
    talk.respond()
    use = talk.current_request().conversation.tool_use
    assert (use.is_forced, use.max_calls) == (True, 1)
    talk.client({"type": "response.cancel"})
    talk.respond(tools=[{"type": "function", "name": "other"}], tool_choice="required")
    assert [tool.name for tool in talk.current_request().conversation.tool_use.tools] == ["other"]
    talk.client({"type": "response.cancel"})
    talk.configure(tools=None, tool_choice=None)
    talk.respond()
    assert talk.current_request().conversation.tools is None


@pytest.mark.parametrize(
    ("session", "code", "param"),
    [
        ({"tools": 5}, "invalid_value", "session.tools"),
        ({"tools": ["look"]}, "invalid_value", "session.tools[0]"),
        ({"tools": [{"name": "look"}]}, "missing_required_parameter", "session.tools[0].type"),
        ({"tools": [{"type": "mcp"}]}, "unsupported_parameter", "session.tools[0].type"),
        ({"tools": [TOOL, TOOL]}, "invalid_value", "session.tools[1].name"),
        ({"tools": [TOOL | {"parameters": []}]}, "invalid_value", "session.tools[0].parameters"),
        ({"tool_choice": "required"}, "invalid_value", "session.tool_choice"),
        ({"tool_choice": 5}, "invalid_value", "session.tool_choice"),
        (
            {"tools": [TOOL], "tool_choice": {"type": "function", "name": "x"}},
            "invalid_value",
            "session.tool_choice.name",
        ),
        ({"tools": [TOOL | {"description": "x" * 300_000}]}, "invalid_value", "session.tools"),
    ],
)
def test_tools_that_are_none_are_refused_by_name(session: dict[str, object], code: str, param: str) -> None:
    talk = Talk(dialogue=CALLS)
    talk.configure(tools=[TOOL])
    talk.read()
    talk.configure(**session)
    if "tools" not in session and session["tool_choice"] == "required":
        assert talk.read()[-1]["type"] == "session.updated"
        talk.configure(tools=[])
    found = talk.error()
    assert (found["code"], found["param"]) == (code, param)
    talk.respond(input=[text_item("?")])
    assert talk.current_request().conversation.tools == [NESTED]


@pytest.mark.parametrize(
    ("item", "code", "param"),
    [
        (output("nobody"), "call_not_found", "item.call_id"),
        (output("a"), "call_already_answered", "item.call_id"),
        ({"type": "function_call_output", "call_id": "b"}, "missing_required_parameter", "item.output"),
        (
            {"type": "function_call", "call_id": "a", "name": "look", "arguments": "{}"},
            "call_already_exists",
            "item.call_id",
        ),
        (
            {"type": "function_call", "call_id": "c", "name": "look", "arguments": "[]"},
            "invalid_value",
            "item.arguments",
        ),
        (
            {"type": "function_call", "call_id": "c", "arguments": "{}"},
            "missing_required_parameter",
            "item.name",
        ),
    ],
)
def test_calls_that_do_not_fit_are_refused_by_name(item: dict[str, object], code: str, param: str) -> None:
    talk = Talk(dialogue=CALLS)
    talk.add({"type": "function_call", "call_id": "a", "name": "look", "arguments": "{}"})
    talk.add(output("a"))
    talk.client({"type": "conversation.item.create", "item": item})
    found = talk.error()
    assert (found["code"], found["param"]) == (code, param)


def test_a_model_without_calls_says_so() -> None:
    talk = Talk()
    talk.configure(tools=[TOOL])
    found = talk.error()
    assert (found["code"], found["param"]) == ("unsupported_parameter", "session.tools")
    assert "--tool-parser" in found["message"]


def test_a_call_takes_no_output_of_an_older_one() -> None:
    """Some models number the calls of each answer from 0."""
    talk = Talk(dialogue=CALLS)
    talk.configure(tools=[TOOL])
    talk.add(text_item("What is there?"))
    talk.respond()
    talk.begin()
    talk.call("look", "{}", call_id="look:0")
    talk.end()
    talk.add(output("look:0"))
    (first,) = talk.of("response.done")[0]["response"]["output"]
    talk.client({"type": "conversation.item.delete", "item_id": first["id"]})
    talk.respond()
    talk.begin()
    talk.call("look", "{}", call_id="look:0")
    talk.end()
    (call,) = talk.of("response.done")[-1]["response"]["output"]
    assert call["call_id"] != "look:0"
    talk.add(output(call["call_id"], "a dog"))
    talk.respond()
    assert called(talk)[-1].content == "a dog"
