"""What the server answers agrees with its `/openapi.json`, for requests that schemathesis makes up of it.

Bodies of every route, valid and invalid: no 5xx, documented statuses, content types and shapes;
of errors, too.
"""

from __future__ import annotations

import os

import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    unsupported_method,
]
schema = schemathesis.openapi.from_url(f"{os.environ['PEERS_URL']}/openapi.json")


@schema.parametrize()
@settings(
    max_examples=int(os.environ.get("PEERS_EXAMPLES", "10")),
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],
)
def test_answers_are_as_documented(case: schemathesis.Case) -> None:
    case.call_and_validate(checks=CHECKS, timeout=60)
