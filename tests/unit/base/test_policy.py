"""Limits can be lowered and never raised."""

import math
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_sandbox_mcp.base.errors import InvalidArgument, PolicyDenied
from llm_sandbox_mcp.base.policy import LIMITS, Policy, narrow

from ..policies import POLICY

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
HUGE = [10**400, -(10**400), 10**5000]
VALUES = st.none() | st.integers() | st.floats() | st.sampled_from(HUGE)


@given(POLICIES, st.dictionaries(st.sampled_from(LIMITS), VALUES))
def test_narrowing_never_raises_a_limit_and_a_refusal_names_it(policy: Policy, lower: dict[str, float | None]) -> None:
    try:
        narrowed = narrow(policy, lower)
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
    assert narrow(narrowed, {}) == narrowed
    assert narrowed.network == policy.network


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, -math.inf, 30.001])
def test_a_value_out_of_range_is_refused_with_name_and_limit(value: float) -> None:
    with pytest.raises(PolicyDenied, match=r"timeout .*30"):
        narrow(POLICY, {"timeout": value})


@pytest.mark.parametrize("name", LIMITS)
@pytest.mark.parametrize(
    "value",
    [*HUGE, math.inf, math.nan, 0, -1],
    ids=["huge", "huge negative", "too long to print", "inf", "nan", "0", "-1"],
)
def test_no_limit_accepts_a_number_out_of_range(name: str, value: float) -> None:
    with pytest.raises(
        PolicyDenied, match=rf"^{name} must be .* and at most \S+, the profile's limit; got "
    ) as refused:
        narrow(POLICY, {name: value})
    assert len(str(refused.value)) < 150


@pytest.mark.parametrize("name", LIMITS)
@pytest.mark.parametrize(
    "value", [True, False, "5", "5s", "1MiB", b"5", 5j, [], {}, Decimal(5), Fraction(1, 2), object]
)
def test_a_value_that_is_not_a_number_is_refused_with_the_expected_unit(name: str, value: object) -> None:
    unit = "bytes|seconds|processors|processes and threads|files and folders"
    with pytest.raises(InvalidArgument, match=rf"^{name} must be a number of ({unit}); got "):
        narrow(POLICY, {name: value})


@pytest.mark.parametrize("name", ["policy", "lower", "network", "model_config", "", "a b", 5, None, "x" * 1000])
def test_an_unknown_limit_is_refused_with_the_list_of_limits(name: str) -> None:
    with pytest.raises(InvalidArgument, match=r"^unknown limit .*; available: memory, cpus, pids, .*output$"):
        narrow(POLICY, {name: 1})


def test_the_limits_in_a_message_are_exact() -> None:
    policy = POLICY.model_copy(update={"memory": 123_456_789})
    with pytest.raises(PolicyDenied, match="at most 123456789, the session's limit; got 123456790"):
        narrow(policy, {"memory": 123_456_790}, "the session's")


@pytest.mark.parametrize(
    ("lower", "expected"),
    [
        ({"timeout": 30}, {"timeout": 30.0}),
        ({"timeout": 0.5, "grace": None}, {"timeout": 0.5}),
        ({"files": 7.0}, {"files": 7}),
        ({"files": 1, "cpus": 0.25}, {"files": 1, "cpus": 0.25}),
        ({"memory": 8 << 20, "pids": 8}, {"memory": 8 << 20, "pids": 8}),
    ],
)
def test_a_lower_limit_is_accepted_and_has_the_type_of_its_field(
    lower: dict[str, object], expected: dict[str, float]
) -> None:
    policy = POLICY.model_copy(update={"memory": 1 << 30, "pids": 64, "files": 9})
    narrowed = narrow(policy, lower)
    assert narrowed == policy.model_copy(update=expected)
    assert [type(getattr(narrowed, name)) for name in expected] == [type(value) for value in expected.values()]


@pytest.mark.parametrize(
    ("lower", "reason"),
    [
        ({"files": 6.5}, "files must be a whole number; got 6.5"),
        ({"pids": 7}, "pids must be at least 8 and at most 64"),
        ({"memory": (8 << 20) - 1}, "memory must be at least 8388608 and at most"),
        ({"files": 10}, "files must be above 0 and at most 9"),
    ],
)
def test_a_limit_that_no_sandbox_can_have_is_refused(lower: dict[str, object], reason: str) -> None:
    with pytest.raises(PolicyDenied, match=reason):
        narrow(POLICY.model_copy(update={"memory": 1 << 30, "pids": 64, "files": 9}), lower)
