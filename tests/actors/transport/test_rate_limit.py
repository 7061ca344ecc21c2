"""A burst, then so many a second; what was owed is earned by time that has passed."""

from __future__ import annotations

import trio
from sensorium.actors.transport.rate_limit import Allowance


async def test_it_grows_no_further_than_a_burst(autojump_clock: trio.abc.Clock) -> None:
    allowance = Allowance(burst=10, per_s=1)
    await trio.sleep(3600)
    assert allowance.spend(10)
    assert not allowance.spend(1)


async def test_what_was_earned_meanwhile_is_not_waited_for(autojump_clock: trio.abc.Clock) -> None:
    allowance = Allowance(burst=10, per_s=1)
    allowance.spend(30)
    await trio.sleep(15)
    begun = trio.current_time()
    await allowance.earn()
    assert trio.current_time() - begun == 5
