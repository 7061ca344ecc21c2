"""Memory is shared out as said, what cannot work is refused with what would, and limits are really read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sensorium.engine.control_groups import control_groups
from sensorium.engine.models import memory
from sensorium.engine.models.memory import MemoryPlan, MemoryRequest, MemorySize, host_bytes, plan_memory
from sensorium.engine.planning.kv.groups import PagedGroup
from sensorium.engine.planning.kv.specs import FullAttention, SlidingWindow
from sensorium.protocols.errors import ModelLoadError

GIB = 1024**3
REQUEST = MemoryRequest(
    device="cuda",
    weight_bytes=2 * GIB,
    token_bytes=64 * 1024,
    model_context=4096,
    block_size=16,
    max_running=8,
)
REQUEST_BYTES = 4096 * REQUEST.token_bytes  # 256 MiB


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("2GiB", MemorySize(2 * GIB, "bytes")),
        ("512 mib", MemorySize(512 * 1024**2, "bytes")),
        ("1.5GB", MemorySize(1_500_000_000, "bytes")),
        ("123456", MemorySize(123456, "bytes")),
        ("1B", MemorySize(1, "bytes")),
        ("0.5", MemorySize(0.5, "share")),
        ("1", MemorySize(1, "share")),
    ],
)
def test_sizes_are_read(text: str, size: MemorySize) -> None:
    assert MemorySize.parse(text) == size


@pytest.mark.parametrize("text", ["", "much", "-1GiB", "1TiBB", "0.5.5", "nan", "inf"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size"):
        MemorySize.parse(text)


def test_a_gpu_gives_most_of_what_is_left() -> None:
    plan = plan_memory(REQUEST, 12 * GIB)
    assert plan.num_blocks == int(0.9 * 10 * GIB) // (16 * REQUEST.token_bytes)
    assert str(plan) == (
        "weights 2.00 GiB, KV 9.00 GiB = 147456 tokens = 36.0 requests of the full context (4096 tokens); "
        "12.00 GiB were free"
    )


WINDOWED = replace(
    REQUEST,
    groups=(PagedGroup(FullAttention()), *[PagedGroup(SlidingWindow(512))] * 5),
    max_tokens_per_step=256,
)


def test_windows_hold_no_more_than_they_are_long() -> None:
    """Of 4,096 tokens: 256 blocks of full attention, and of each window 34, or 49 right behind 256 tokens
    that are fed at once."""
    plan = plan_memory(WINDOWED, 12 * GIB)
    assert plan.context_blocks == 256 + 5 * 34
    assert str(plan) == (
        "weights 2.00 GiB, KV 9.00 GiB = 88612 tokens = 21.6 requests of the full context (4096 tokens); "
        "12.00 GiB were free"
    )
    with pytest.raises(ModelLoadError, match=r"one request of 4096 tokens .* room for 64 tokens"):
        plan_memory(replace(WINDOWED, num_blocks=24), 12 * GIB)
    least = WINDOWED.blocks_of(4096)
    assert least == 256 + 5 * 49
    assert plan_memory(replace(WINDOWED, num_blocks=least), 12 * GIB).num_blocks == least
    with pytest.raises(ModelLoadError, match=f"--max-context 4080 or --num-blocks {least}"):
        plan_memory(replace(WINDOWED, num_blocks=least - 1), 12 * GIB)


STATES = replace(REQUEST, state_bytes=64 * 1024**2)


def test_states_have_half_of_what_caches_may_take_and_two_slots_a_request() -> None:
    plan = plan_memory(STATES, 12 * GIB)
    plain = plan_memory(REQUEST, 12 * GIB)
    assert plan.num_state_slots == min(2 * REQUEST.max_running, 9 * GIB // 2 // STATES.state_bytes)
    taken = plan.num_blocks * plan.block_bytes + plan.all_state_bytes
    assert 0 <= plain.num_blocks * plain.block_bytes - taken < plan.block_bytes
    assert f", states {plan.num_state_slots * 64 / 1024:.2f} GiB = {plan.num_state_slots} of 64.0 MiB" in str(
        plan
    )


def test_a_model_of_states_alone_has_names_for_its_prefixes() -> None:
    alone = replace(STATES, token_bytes=0)
    plan = plan_memory(alone, 12 * GIB)
    assert plan.num_state_slots == min(2 * REQUEST.max_running, 9 * GIB // STATES.state_bytes)
    assert plan.num_blocks == 4 * alone.blocks_of(alone.context)
    assert "no KV, states " in str(plan)


def test_states_too_small_to_be_shown_are_not_mentioned() -> None:
    plan = plan_memory(replace(STATES, token_bytes=0, state_bytes=4), 12 * GIB)
    assert plan.num_state_slots > 0
    assert "states" not in str(plan)


def test_states_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ModelLoadError, match=r"the states of one request take 20\.00 GiB, and 10\.00 GiB"):
        plan_memory(replace(REQUEST, state_bytes=20 * GIB), 12 * GIB)


def test_a_cpu_gives_a_quarter_and_no_more_than_can_be_used() -> None:
    wanted = replace(REQUEST, device="cpu")
    assert plan_memory(wanted, 4 * GIB).num_tokens * REQUEST.token_bytes == GIB // 2
    assert plan_memory(wanted, 100 * GIB).num_tokens == 8 * 4096


def test_a_cpu_gives_up_to_half_so_that_one_request_fits() -> None:
    wanted = replace(REQUEST, device="cpu")
    assert plan_memory(wanted, 2 * GIB + 3 * REQUEST_BYTES).num_tokens == 4096
    with pytest.raises(ModelLoadError, match="would fit"):
        plan_memory(wanted, 2 * GIB + REQUEST_BYTES)


def test_models_share_the_default_and_no_more_than_that_together() -> None:
    wanted = replace(REQUEST, device="cpu", weight_bytes=0, max_running=1000)
    assert [plan.promised_bytes for plan in _side_by_side(wanted)] == [2 * GIB] * 3
    small = replace(wanted, num_models=1, max_running=1)
    assert plan_memory(small, 24 * GIB).promised_bytes == REQUEST_BYTES, "others get what one cannot use"


def test_encoder_caches_of_others_leave_a_model_its_part_of_the_default() -> None:
    plans = _side_by_side(
        replace(REQUEST, device="cpu", weight_bytes=0, max_running=1000, encoding_bytes=1024)
    )
    given = [plan.promised_kv_bytes / GIB for plan in plans]
    assert [plan.encoder_bytes / GIB for plan in plans] == [1, 1, 1]
    assert sum(given) == pytest.approx((24 - 3) / 4, abs=0.01)
    assert min(given) > 1.5


def _side_by_side(wanted: MemoryRequest) -> list[MemoryPlan]:
    plans: list[MemoryPlan] = []
    for num_models in (3, 2, 1):
        next_request = replace(
            wanted,
            num_models=num_models,
            promised_bytes=sum(plan.promised_bytes for plan in plans),
            promised_kv_bytes=sum(plan.promised_kv_bytes for plan in plans),
        )
        plans.append(plan_memory(next_request, 24 * GIB))  # nothing was touched: it all still looks free
    return plans


def test_what_was_promised_to_others_is_not_given_again() -> None:
    wanted = replace(REQUEST, device="cpu", promised_bytes=10 * GIB, kv_memory=MemorySize(GIB, "bytes"))
    assert plan_memory(wanted, 14 * GIB).num_tokens * REQUEST.token_bytes == GIB
    with pytest.raises(ModelLoadError, match="are free"):
        plan_memory(wanted, 12 * GIB)


def test_a_gpu_is_shared_by_the_models_to_come() -> None:
    plan = plan_memory(replace(REQUEST, num_models=2), 12 * GIB)
    assert plan.num_blocks == int(0.45 * 10 * GIB) // (16 * REQUEST.token_bytes)
    assert plan.promised_bytes == 0, "it is taken at once"


def test_the_largest_image_has_its_room() -> None:
    plan = plan_memory(replace(REQUEST, activation_bytes=GIB), 12 * GIB)
    assert plan.num_blocks == int(0.9 * 9 * GIB) // (16 * REQUEST.token_bytes)
    assert "the largest image 1.00 GiB" in str(plan)
    with pytest.raises(ModelLoadError, match="--max-image-pixels"):
        plan_memory(replace(REQUEST, activation_bytes=10 * GIB), 11 * GIB)


def test_encoder_caches_come_first_and_can_be_given() -> None:
    wanted = replace(REQUEST, encoding_bytes=1024, kv_memory=MemorySize(1, "share"))
    plan = plan_memory(wanted, 7 * GIB)
    assert plan.encoder_bytes == GIB // 2
    assert "encoder cache 0.50 GiB" in str(plan)
    assert plan.num_tokens * REQUEST.token_bytes == 4.5 * GIB
    assert plan_memory(wanted, 100 * GIB).encoder_bytes == GIB
    assert plan_memory(replace(wanted, encoding_bytes=2 * GIB), 7 * GIB).encoder_bytes == 2 * GIB, "one fits"
    given_ = replace(wanted, encoder_memory=MemorySize(3 * GIB, "bytes"))
    assert plan_memory(given_, 7 * GIB).encoder_bytes == 3 * GIB


def test_explicit_sizes_are_taken() -> None:
    assert plan_memory(replace(REQUEST, kv_memory=MemorySize(GIB, "bytes")), 9 * GIB).num_tokens == 4 * 4096
    assert plan_memory(replace(REQUEST, num_blocks=300), 9 * GIB).num_blocks == 300


@pytest.mark.parametrize(
    ("wanted", "free", "message"),
    [
        (REQUEST, GIB, r"the weights take 2.00 GiB, and 1.00 GiB of memory are free; .*--dtype"),
        (
            replace(REQUEST, kv_memory=MemorySize(64 * 1024**2, "bytes")),
            9 * GIB,
            (
                r"one request of 4096 tokens takes 0.25 GiB .* room for 1024 tokens .*; "
                r"--max-context 1024 or --kv-memory 256MiB would fit"
            ),
        ),
        (replace(REQUEST, num_blocks=16), 9 * GIB, r"--max-context 256 or --num-blocks 256 would fit"),
        (REQUEST, 2 * GIB + 100 * 1024**2, r"; --max-context 1440 would fit"),
        (REQUEST, 2 * GIB + 1024, "a smaller model would fit"),
        (
            replace(REQUEST, kv_memory=MemorySize(8 * GIB, "bytes")),
            9 * GIB,
            r"8192 blocks of KV memory take 8.00 GiB, and 7.00 GiB are free .*lower --kv-memory",
        ),
        (
            replace(REQUEST, encoding_bytes=1024, encoder_memory=MemorySize(GIB, "bytes")),
            3 * GIB,
            "a smaller --encoder-memory would fit",
        ),
        (
            replace(REQUEST, encoding_bytes=36_864_000, encoder_memory=MemorySize(20 * 1024**2, "bytes")),
            9 * GIB,
            r"has 20.0 MiB, and one encoding takes 35.2 MiB; --encoder-memory 36MiB would do",
        ),
    ],
)
def test_what_cannot_work_is_refused_with_what_would(wanted: MemoryRequest, free: int, message: str) -> None:
    with pytest.raises(ModelLoadError, match=message):
        plan_memory(wanted, free)


def test_a_shortened_context_fits_where_the_full_one_does_not() -> None:
    free = 2 * GIB + 100 * 1024**2
    plan = plan_memory(replace(REQUEST, max_context=1440), free)
    assert plan.context == 1440
    assert plan_memory(replace(REQUEST, max_context=10**6), 9 * GIB).context == 4096


sizes = st.one_of(
    st.none(),
    st.floats(0, 1).map(lambda share: MemorySize(share, "share")),
    st.integers(0, 8 * GIB).map(lambda amount: MemorySize(amount, "bytes")),
)


@given(
    st.builds(
        MemoryRequest,
        device=st.sampled_from(["cpu", "cuda"]),
        weight_bytes=st.integers(0, 4 * GIB),
        token_bytes=st.integers(1, 10**6),
        model_context=st.integers(1, 10**5),
        block_size=st.integers(1, 64),
        groups=st.sampled_from([REQUEST.groups, WINDOWED.groups, WINDOWED.groups[1:]]),
        max_tokens_per_step=st.sampled_from([1, 512]),
        state_bytes=st.sampled_from([0, 1, 10**7, 10**10]),
        max_running=st.integers(1, 300),
        max_context=st.one_of(st.none(), st.integers(1, 10**5)),
        kv_memory=sizes,
        num_blocks=st.one_of(st.none(), st.integers(1, 10**5)),
        activation_bytes=st.integers(0, GIB),
        encoding_bytes=st.sampled_from([0, 1, 2**20]),
        encoder_memory=sizes,
    ),
    st.integers(0, 16 * GIB),
)
def test_what_is_settled_fits_and_serves_a_request(wanted: MemoryRequest, free: int) -> None:
    try:
        plan = plan_memory(wanted, free)
    except ModelLoadError:
        return
    held = plan.weight_bytes + plan.activation_bytes + plan.encoder_bytes
    assert held + plan.num_blocks * plan.block_bytes + plan.all_state_bytes <= free
    assert (plan.num_state_slots > 0) == (wanted.state_bytes > 0)
    assert plan.num_tokens >= plan.context


def test_remedies_are_true() -> None:
    """What a refusal proposes is accepted."""
    wanted = replace(REQUEST, kv_memory=MemorySize(64 * 1024**2, "bytes"))
    for remedy in ({"max_context": 1024}, {"kv_memory": MemorySize.parse("256MiB")}):
        assert isinstance(plan_memory(replace(wanted, **remedy), 9 * GIB), MemoryPlan)
    wanted = replace(STATES, kv_memory=MemorySize(300 * 1024**2, "bytes"))
    with pytest.raises(ModelLoadError, match=r"--max-context 2[0-9]+ or --kv-memory 512MiB would fit"):
        plan_memory(wanted, 9 * GIB)
    assert plan_memory(replace(wanted, kv_memory=MemorySize.parse("512MiB")), 9 * GIB).num_state_slots == 4


def test_this_machine_has_memory() -> None:
    assert 0 < host_bytes() < 1 << 50


def test_control_groups_of_both_versions_are_read(tmp_path: Path) -> None:
    membership = tmp_path / "cgroup"
    membership.write_text("0::/pod/box\n5:cpu:/x\n4:memory,hugetlb:/old\n")
    root = tmp_path / "fs"
    for folder, files in {
        "pod/box": {"memory.max": "max", "memory.current": "5", "memory.stat": "anon 1\n"},
        "pod": {"memory.max": "1000", "memory.current": "600", "memory.stat": "anon 1\ninactive_file 50\n"},
        "memory/old": {
            "memory.limit_in_bytes": "900",
            "memory.usage_in_bytes": "500",
            "memory.stat": "inactive_file 1\ntotal_inactive_file 20\n",
        },
    }.items():
        (root / folder).mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (root / folder / name).write_text(text)
    folders = control_groups("memory", membership, root)
    assert {root / "pod" / "box", root / "pod", root / "memory" / "old"} <= set(folders)
    left = [memory._limit_left(folder) for folder in folders]
    assert sorted(each for each in left if each is not None) == [420, 450]
    assert control_groups("memory", tmp_path / "none", root) == []


def test_available_memory_is_what_the_kernel_says(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 100 kB\nMemAvailable:   7 kB\n")
    assert memory._available_bytes(meminfo) == 7 * 1024
    assert memory._available_bytes(tmp_path / "none") > 0
