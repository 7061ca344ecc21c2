"""One view of the console by Lighthouse; `make lighthouse` opens all, in two colour schemes and widths."""

from __future__ import annotations

import pytest
from support.lighthouse import IS_INSTALLED, SKIP, report
from support.server import Server


@pytest.mark.skipif(not IS_INSTALLED, reason=SKIP)
def test_the_live_view_is_accessible_on_a_phone_in_the_dark(console: Server) -> None:
    found = report(f"{console.url}/console#live", width=360, scheme="dark")
    assert found.is_good, found
