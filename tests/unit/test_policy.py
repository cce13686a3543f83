"""Limits can be lowered and never raised."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_sandbox_mcp.errors import PolicyDenied
from llm_sandbox_mcp.policy import LIMITS, Policy, narrow

from .policies import POLICY

POLICIES = st.builds(
    Policy,
    memory=st.integers(1, 1 << 40),
    cpus=st.floats(0.01, 64),
    pids=st.integers(1, 10_000),
    disk=st.integers(1, 1 << 40),
    files=st.integers(1, 1 << 40),
    file_size=st.integers(1, 1 << 40),
    timeout=st.floats(0.001, 1e6),
    grace=st.floats(0.001, 60),
    cpu_time=st.floats(0.001, 1e6),
    output=st.integers(1, 1 << 40),
)
VALUES = st.none() | st.integers() | st.floats()


@given(POLICIES, st.dictionaries(st.sampled_from(LIMITS), VALUES))
def test_narrowing_never_loosens_and_refuses_by_name(policy: Policy, lower: dict[str, float | None]) -> None:
    try:
        narrowed = narrow(policy, **lower)
    except PolicyDenied as denied:
        assert any(name in str(denied) for name in lower)  # noqa: PT017 - either is right
        return
    for name in LIMITS:
        limit, value = getattr(policy, name), getattr(narrowed, name)
        assert 0 < value <= limit
        if lower.get(name) is None:
            assert value == limit
        else:
            assert value == lower[name]
    assert narrow(narrowed) == narrowed
    assert narrowed.network == policy.network


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, -math.inf, 30.001])
def test_a_value_outside_is_refused_with_name_and_limit(value: float) -> None:
    with pytest.raises(PolicyDenied, match=r"timeout .*30"):
        narrow(POLICY, timeout=value)
