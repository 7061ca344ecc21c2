"""Encodes, items in prompts, and alignments: when they are planned, and whom their failures hurt."""

from __future__ import annotations

import pytest
from sensorium.engine.planning.events import EncodeDropped, EncodeFailed, WindowEncoded
from sensorium.engine.planning.plan import MediaRows
from sensorium.engine.planning.policies.service_classes import HEAVY_PATIENCE
from sensorium.protocols.engine.messages import RequestId, TaskFailed, TokensAligned
from sensorium.protocols.errors import InternalError
from support.fake_runner import NAN_ID, UNENCODABLE, item
from support.scheduler_dialogs import align, expect_all_free, expect_answer, generate, ids, make_loop, span
from support.step_loop import StepLoop


def test_encodes_and_their_users_share_a_plan() -> None:
    loop = make_loop()
    loop.scheduler.encode(0, item("A").features)
    assert not loop.plan(), "nobody needs it yet"
    loop.submit(generate("a", on="A"), 0)
    loop.run()
    assert [encode.slot for encode in loop.plans[0].encodes] == [0]
    assert ids(loop)[0] == ["a"]
    assert loop.encode_events == [WindowEncoded(0, 1000)]
    expect_answer(loop, generate("a", on="A"))


def test_the_encoder_budget_goes_to_the_best_waiting_and_blocks_nobody_else() -> None:
    loop = make_loop(max_encodes_per_step=1)
    loop.submit(generate("running", max_tokens=8))
    for slot, name in enumerate("ABC"):
        loop.scheduler.encode(slot, item(name).features)
    loop.submit(generate("late", on="B"), 1)
    loop.submit(generate("final", on="C", priority=-1), 2)
    loop.run()
    encodes = [[encode.slot for encode in plan.encodes] for plan in loop.steps]
    assert encodes[:3] == [[2], [1], []], "first what the final waits for, never what nobody waits for"
    assert ids(loop)[:2] == [["final", "running"], ["final", "running", "late"]]


def test_rows_of_items_are_fed_with_their_tokens() -> None:
    loop = make_loop(max_tokens_per_step=5)
    media = (span("A", 2, 4), span("B", 6, 3))
    request = generate("a", (1, 2, *[9] * 7, 3), media=media)
    for slot, name in enumerate("AB"):
        loop.scheduler.encode(slot, item(name).features)
    loop.submit(request, None, (0, 1))
    loop.run()
    assert [plan.sequences[0].media for plan in loop.steps[:2]] == [
        (MediaRows(0, 2, 3, 0),),
        (MediaRows(0, 0, 1, 3), MediaRows(1, 1, 3, 0)),
    ]
    assert [[each.slot for each in plan.encodes] for plan in loop.steps[:2]] == [[0], [1]], "when needed"
    assert loop.scheduler.statistics().num_encoder_tokens == 7
    expect_answer(loop, request)


@pytest.mark.parametrize("limit", [{"max_encodes_per_step": 1}, {"max_encoder_tokens_per_step": 5}])
def test_text_before_an_item_that_must_wait_is_fed(limit: dict[str, int]) -> None:
    loop = make_loop(**limit)
    request = generate("a", (1, *[9] * 4, 2, *[9] * 4, 3), media=(span("A", 1, 4), span("B", 6, 4)))
    for slot, name in enumerate("AB"):
        loop.scheduler.encode(slot, item(name).features)
    loop.submit(request, None, (0, 1))
    loop.run()
    assert [plan.sequences[0].num_rows for plan in loop.steps[:2]] == [6, 5]
    expect_answer(loop, request)


def test_an_item_larger_than_the_encoder_budget_goes_alone() -> None:
    loop = make_loop(max_encoder_tokens_per_step=2)
    request = generate("a", (1, *[9] * 4, 3), media=(span("A", 1, 4),))
    loop.scheduler.encode(0, item("A").features)
    loop.submit(request, None, (0,))
    loop.run()
    assert loop.steps[0].sequences[0].num_rows == 6
    expect_answer(loop, request)


def test_an_item_whose_rows_are_cached_is_not_encoded_again() -> None:
    loop = make_loop()
    media = (span("A", 1, 4),)
    for number, prompt in enumerate([(1, *[9] * 4, 3, 3, 3), (1, *[9] * 4, 3, 3, 3, 4)]):
        loop.scheduler.encode(number, item("A").features)
        request = generate(str(number), prompt, media=media)
        loop.submit(request, None, (number,))
        loop.run()
        expect_answer(loop, request)
    assert loop.scheduler.statistics().num_windows_encoded == 1
    assert loop.first[RequestId("1")].num_cached == 8


def test_positions_are_those_of_the_grid() -> None:
    loop = make_loop()
    request = generate("a", (1, *[9] * 6, 3), media=(span("A", 1, 6, (1, 2, 3)),), max_tokens=2)
    loop.scheduler.encode(0, item("A").features)
    loop.submit(request, None, (0,))
    loop.run()
    assert loop.steps[0].sequences[0].positions == (
        (0, 1, 1, 1, 1, 1, 1, 4),
        (0, 1, 1, 1, 2, 2, 2, 4),
        (0, 1, 2, 3, 1, 2, 3, 4),
    )
    assert loop.steps[1].sequences[0].positions == ((5,), (5,), (5,))
    expect_answer(loop, request)


def test_a_failed_encode_fails_its_users_only() -> None:
    loop = make_loop()
    bad = UNENCODABLE.decode()
    loop.scheduler.encode(0, item(bad).features)
    loop.scheduler.encode(1, item("A").features)
    loop.submit(generate("bad", on=bad), 0)
    loop.submit(generate("bad picture", media=(span(bad, 1, 2),)), None, (0,))
    loop.scheduler.submit(align("bad align"), 0)
    loop.submit(generate("good", on="A"), 1)
    loop.plan()
    loop.run()
    for name in ("bad", "bad picture"):
        end = loop.ends[RequestId(name)]
        assert (end.finish_reason, end.error) == ("error", "these features cannot be encoded")
    assert isinstance(loop.outcomes[RequestId("bad align")], TaskFailed)
    assert EncodeFailed(0, "these features cannot be encoded") in loop.encode_events
    expect_answer(loop, generate("good", on="A"))
    with pytest.raises(InternalError, match="cannot be encoded"):
        loop.submit(generate("later", on=bad), 0)
    expect_all_free(loop)


def test_an_encode_is_dropped_before_it_is_planned_and_not_after() -> None:
    loop = make_loop()
    loop.scheduler.encode(0, item("A").features)
    assert loop.scheduler.drop_encode(0) == [EncodeDropped(0)]
    loop.scheduler.encode(1, item("A").features)
    loop.submit(generate("a", on="A"), 1)
    loop.plan()
    assert loop.scheduler.drop_encode(1) == []
    loop.run()
    assert loop.encode_events == [WindowEncoded(1, 1000)]
    loop.scheduler.encode(2, item("B").features)
    loop.submit(generate("b", on="B"), 2)
    loop.take(loop.scheduler.drop_encode(2))
    assert loop.ends[RequestId("b")].error == "the encode was cancelled"


def test_a_slot_is_freed_behind_the_steps_that_use_it() -> None:
    loop = make_loop()
    loop.scheduler.encode(0, item("A").features)
    loop.submit(generate("a", on="A"), 0)
    loop.step()
    loop.plan()
    loop.scheduler.abort(RequestId("a"))
    loop.take(loop.scheduler.free(0))
    assert loop.plan().frees == (0,)
    loop.run()


def test_a_slot_freed_under_a_request_ends_that_request() -> None:
    loop = make_loop()
    loop.scheduler.encode(0, item("A").features)
    loop.submit(generate("a", on="A"), 0)
    loop.step()
    loop.take(loop.scheduler.free(0))
    assert loop.ends[RequestId("a")].finish_reason == "error"
    loop.run()
    expect_all_free(loop)


def test_alignments_run_beside_sequences_and_fail_alone() -> None:
    loop = make_loop(max_tokens_per_step=8)
    loop.scheduler.encode(0, item("A").features)
    for name in ("x", "y", "gone"):
        loop.scheduler.submit(align(name), 0)
    loop.scheduler.submit(align("bad", token_ids=(1, 2, 3, NAN_ID, 5)), 0)
    assert loop.scheduler.abort(RequestId("gone"))
    loop.run()
    assert [len(plan.wholes) for plan in loop.plans] == [1, 1, 1], "a budget of 8 tokens holds one of 5"
    first = b"A"[0] % 10
    assert loop.outcomes[RequestId("x")] == TokensAligned(RequestId("x"), (first, first + 1, first + 2))
    assert loop.outcomes[RequestId("bad")] == TaskFailed(RequestId("bad"), "the alignment has no path")
    assert RequestId("gone") not in loop.outcomes


def test_an_alignment_aborted_in_flight_is_silent() -> None:
    loop = make_loop()
    loop.scheduler.encode(0, item("A").features)
    loop.scheduler.submit(align("x"), 0)
    loop.plan()
    loop.scheduler.abort(RequestId("x"))
    loop.run()
    assert not loop.outcomes


def test_what_is_attended_to_counts_by_its_frames() -> None:
    loop = make_loop(frames_per_row=2, max_encoder_tokens_per_step=5)
    for slot, name in enumerate(("four", "eightlen", "sixlen", "a window of its own")):
        loop.scheduler.encode(slot, item(name).features)
        loop.submit(generate(name, on=name), slot)
    loop.run()
    encodes = [[encode.slot for encode in plan.encodes] for plan in loop.steps if plan.encodes]
    assert encodes == [[0, 2], [1], [3]], "2 + 3 rows, 4, and one that is more than a step may have"
    assert loop.scheduler.statistics().num_encoder_tokens == 2 + 4 + 3 + 10


def speaking_loop(**given: int | None) -> StepLoop:
    """Encodes go apart, for a live request decodes all the while."""
    loop = make_loop(overlap_encoder=True, max_context=2000, num_blocks=600, **given)
    loop.submit(generate("speaks", (1, 2), service="live", max_tokens=500))
    loop.step()
    return loop


def steps_made(loop: StepLoop) -> list[bool]:
    """Whether each of six times there was a step to make; it is done at once."""
    made = []
    for _ in range(6):
        made.append(bool(loop.plan()))
        if loop.in_flight:
            loop.finish()
    return made


def test_an_encode_goes_apart_while_somebody_speaks_and_its_user_joins_when_it_is_done() -> None:
    loop = speaking_loop()
    loop.scheduler.encode(0, item("A").features)
    loop.submit(generate("a", on="A", service="live"), 0)
    for _ in range(3):
        assert loop.plan().encodes == ()
        loop.finish()
    assert [[encode.slot for encode in plan.encodes] for plan in loop.overlapped] == [[0]]
    assert ids(loop)[-3:] == [["speaks"]] * 3, "others go on"
    assert loop.encode_events == []
    loop.plan()
    loop.finish_overlapped()
    assert loop.encode_events == [WindowEncoded(0, 1000)]
    loop.finish()
    loop.plan()
    assert ids(loop)[-1] == ["speaks", "a"]
    loop.run()
    expect_answer(loop, generate("a", on="A", service="live"))
    statistics = loop.scheduler.statistics()
    assert statistics.num_steps == len(loop.plans), "what goes apart is no step"
    assert statistics.num_windows_encoded == 1


def test_where_nobody_speaks_encodes_are_in_the_steps() -> None:
    loop = make_loop(overlap_encoder=True)
    loop.scheduler.encode(0, item("A").features)
    loop.submit(generate("a", on="A"), 0)
    assert [encode.slot for encode in loop.plan().encodes] == [0]
    assert not loop.overlapped
    loop.run()
    expect_answer(loop, generate("a", on="A"))


def test_one_encode_is_apart_at_a_time_and_the_best_is_next() -> None:
    loop = speaking_loop()
    for slot, name in enumerate("ABCD"):
        loop.scheduler.encode(slot, item(name).features)
        loop.submit(generate(name, on=name, service="live", priority=-(slot == 3)), slot)
    order = []
    for _ in range(4):
        for _ in range(2):
            loop.step()
            assert len(loop.overlapped) == 1
        order.append([encode.slot for encode in loop.overlapped[0].encodes])
        loop.finish_overlapped()
    assert order == [[3], [0], [1], [2]]
    loop.run()
    for name in "ABCD":
        expect_answer(loop, generate(name, on=name, service="live"))


def test_a_file_has_its_turn_though_more_live_encodes_wait_at_any_time() -> None:
    loop = speaking_loop()
    loop.scheduler.encode(0, item("F").features)
    loop.submit(generate("file", on="F"), 0)
    order = []
    for slot in range(1, 40):
        loop.scheduler.encode(slot, item(f"L{slot}").features)
        loop.submit(generate(f"l{slot}", on=f"L{slot}", service="live", max_tokens=2), slot)
        loop.step()
        if loop.overlapped:
            order.append([encode.slot for encode in loop.overlapped[0].encodes])
            loop.finish_overlapped()
    assert order.index([0]) == HEAVY_PATIENCE + 1
    loop.run()
    expect_answer(loop, generate("file", on="F"))


def test_a_file_has_its_turn_though_live_encodes_follow_each_other_beside_one_step() -> None:
    loop = speaking_loop(max_plans_in_flight=1)
    loop.scheduler.encode(0, item("F").features)
    loop.submit(generate("file", on="F"), 0)
    for slot in range(1, 20):
        loop.scheduler.encode(slot, item(f"L{slot}").features)
        loop.submit(generate(f"l{slot}", on=f"L{slot}", service="live", max_tokens=2), slot)
    order = []
    for _ in range(3):
        loop.plan()
        while loop.overlapped:
            order += [encode.slot for encode in loop.overlapped[0].encodes]
            loop.finish_overlapped()
            loop.plan_overlapped()
        loop.finish()
    assert order.index(0) == HEAVY_PATIENCE + 1
    loop.run()
    expect_answer(loop, generate("file", on="F"))


def test_a_live_encode_follows_the_last_one_while_a_step_is_in_flight() -> None:
    loop = speaking_loop(max_plans_in_flight=1)
    for slot, name in enumerate("AB"):
        loop.scheduler.encode(slot, item(name).features)
        loop.submit(generate(name, on=name, service="live"), slot)
    loop.scheduler.encode(2, item("F").features)
    loop.submit(generate("F", on="F"), 2)
    loop.plan()
    assert [encode.slot for encode in loop.overlapped[0].encodes] == [0]
    loop.plan_overlapped()
    assert len(loop.overlapped) == 1, "one at a time"
    loop.finish_overlapped()
    loop.plan_overlapped()
    assert [encode.slot for encode in loop.overlapped[0].encodes] == [1]
    loop.finish_overlapped()
    loop.plan_overlapped()
    assert not loop.overlapped, "a file is for a whole plan to decide about"
    loop.run()
    for name in "ABF":
        expect_answer(loop, generate(name, on=name))


def test_worse_ones_stand_back_while_something_of_somebody_who_speaks_is_encoded() -> None:
    loop = make_loop(overlap_encoder=True, low_priority_interval=3)
    loop.submit(generate("file", max_tokens=12))
    loop.scheduler.encode(0, item("A").features)
    loop.submit(generate("a", on="A", service="live", max_tokens=1), 0)
    assert steps_made(loop) == [False, False, True, False, False, True], (
        "its tokens would take a core from it"
    )
    loop.finish_overlapped()
    loop.run()
    for request in (generate("file", max_tokens=12), generate("a", on="A", service="live", max_tokens=1)):
        expect_answer(loop, request)


def test_files_stand_back_while_one_of_them_is_encoded_beside_somebody_who_speaks() -> None:
    loop = make_loop(overlap_encoder=True, low_priority_interval=3)
    loop.submit(generate("spoke", service="live", max_tokens=1))
    loop.step()
    loop.scheduler.encode(0, item("F").features)
    loop.submit(generate("F", on="F"), 0)
    loop.submit(generate("other", max_tokens=12))
    loop.step()
    assert len(loop.overlapped) == 1, "live speech lingers, and wants nothing now"
    assert steps_made(loop) == [False, False, True, False, False, True], (
        "who speaks next waits for the encode"
    )
    loop.run()
    for request in (generate("F", on="F"), generate("other", max_tokens=12)):
        expect_answer(loop, request)


def test_a_turn_that_is_not_wanted_any_more_holds_up_nobody() -> None:
    loop = speaking_loop()
    loop.scheduler.encode(0, item("F").features)
    loop.submit(generate("file", on="F"), 0)
    encoded = 0
    for slot in range(1, 30):
        loop.scheduler.encode(slot, item(f"L{slot}").features)
        loop.submit(generate(f"l{slot}", on=f"L{slot}", service="live", max_tokens=2), slot)
        loop.plan()
        if slot == 3:
            loop.scheduler.abort(RequestId("file"))
        loop.finish()
        if loop.overlapped:
            encoded += len(loop.overlapped[0].encodes)
            loop.finish_overlapped()
    assert encoded >= 27
    loop.run()


def test_an_encode_that_fails_apart_fails_its_user() -> None:
    loop = speaking_loop()
    loop.scheduler.encode(0, item(UNENCODABLE.decode()).features)
    loop.submit(generate("a", on=UNENCODABLE.decode(), service="live"), 0)
    loop.plan()
    assert loop.scheduler.drop_encode(0) == [], "it is planned"
    loop.finish_overlapped()
    assert loop.ends[RequestId("a")].error == "these features cannot be encoded"
    assert [type(event) for event in loop.encode_events] == [EncodeFailed]
    with pytest.raises(InternalError, match="cannot be encoded"):
        loop.submit(generate("b", on="A", service="live"), 0)
    loop.run()
