"""Sizes and times are read as people write them, exactly, and shown as short as they can be."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from llm_sandbox_mcp.base.units import (
    SIZES,
    TIMES,
    PositiveDuration,
    PositiveSize,
    Size,
    docker_size,
    format_age,
    format_duration,
    format_size,
    parse_duration,
    parse_size,
)


def test_each_unit_has_its_number_of_bytes_or_seconds() -> None:
    assert [parse_size(f"1{unit}") for unit in ("B", "KiB", "MiB", "GiB", "TiB")] == [1024**power for power in range(5)]
    assert [parse_duration(f"2{unit}") for unit in ("ms", "s", "m", "h", "d")] == [0.002, 2, 120, 7200, 172800]
    assert (parse_size("1.5 KiB"), parse_size("0B"), parse_duration("0.1s"), parse_duration("0ms")) == (1536, 0, 0.1, 0)


def test_an_age_has_whole_units() -> None:
    ages = (0.0, 0.9, 1.5, 59.9, 60, 101, 3599, 3600, 90_000, 10**9)
    assert [format_age(age) for age in ages] == ["0s", "0s", "1s", "59s", "1m", "1m", "59m", "1h", "1d", "11574d"]


LARGEST = 2**63 - 1


def test_what_no_kernel_has_room_for_is_refused() -> None:
    assert parse_size(f"{LARGEST}B") == LARGEST
    with pytest.raises(ValueError, match='is too large; give at most "8388607TiB"'):
        parse_size(f"{LARGEST + 1}B")
    assert parse_duration("36500d") == 36500 * 86400
    with pytest.raises(ValueError, match='is too long; give at most "36500d"'):
        parse_duration("36500.1d")


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (512, "512MiB"),
        (1, "1GiB"),
        (64, "64GiB"),
        (65, "65MiB"),
        (1048575, "1048575MiB"),
        (1048576, "1048576B"),
        ("512", "512MiB"),
        ("2.5", "2.5GiB"),
        ("512 mb", "512MiB"),
        ("512M", "512MiB"),
        ("1 gigabyte", "1GiB"),
        ("3kb", "3KiB"),
        ("4tb", "4TiB"),
        ("9bytes", "9B"),
        ("5 parsecs", "512MiB"),
        ("-1GiB", "512MiB"),
        ("a lot", "512MiB"),
        ("", "512MiB"),
        (True, "512MiB"),
        (None, "512MiB"),
        (f"{10**15}", "512MiB"),
    ],
)
def test_a_size_without_its_unit_is_refused_with_what_was_probably_meant(given: object, meant: str) -> None:
    with pytest.raises(ValueError, match=rf'with a unit \(B, KiB, MiB, GiB, TiB\), such as "{meant}"$'):
        parse_size(given)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (30, "30s"),
        (1.5, "1.5s"),
        ("10 minutes", "10m"),
        ("10min", "10m"),
        ("250 millis", "250ms"),
        ("250MS", "250ms"),
        ("2 hours", "2h"),
        ("7 days", "7d"),
        ("5sec", "5s"),
        ("3 months", "30s"),
        ("1 year", "30s"),
        (False, "30s"),
    ],
)
def test_a_time_without_its_unit_is_refused_with_what_was_probably_meant(given: object, meant: str) -> None:
    with pytest.raises(ValueError, match=rf'with a unit \(ms, s, m, h, d\), such as "{meant}"$'):
        parse_duration(given)


@pytest.mark.parametrize(
    ("given", "size"),
    [
        ("512m", "512MiB"),
        ("4gb", "4GiB"),
        (" 1.5G ", "1.5GiB"),
        ("10", "10B"),
        ("10b", "10B"),
        ("3K", "3KiB"),
        ("2t", "2TiB"),
        ("9" * 15, f"{'9' * 15}B"),
        ("9" * 16, None),
        ("512MiB", None),
        ("m", None),
        ("-1m", None),
    ],
)
def test_a_size_in_the_form_of_docker_becomes_ours(given: str, size: str | None) -> None:
    assert docker_size(given) == size
    assert size is None or parse_size(size) >= 0


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        (0, "0B"),
        (1, "1B"),
        (1023, "1023B"),
        (1024, "1KiB"),
        (1536, "1.5KiB"),
        (2**20 - 1, "1024KiB"),
        (2**20, "1MiB"),
        (2**30, "1GiB"),
        (2**40, "1TiB"),
        (2**50, "1024TiB"),
        (-5, "-5B"),
    ],
)
def test_a_size_is_shown_in_the_largest_unit_that_leaves_one(size: int, shown: str) -> None:
    assert format_size(size) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0ms"),
        (0.0005, "0.5ms"),
        (0.001, "1ms"),
        (0.999, "999ms"),
        (1, "1s"),
        (59.9, "59.9s"),
        (60, "1m"),
        (90, "1.5m"),
        (600, "10m"),
        (3599, "59.98m"),
        (3600, "1h"),
        (86399, "24h"),
        (86400, "1d"),
        (864000, "10d"),
    ],
)
def test_a_time_is_shown_in_the_largest_unit_that_leaves_one(seconds: float, shown: str) -> None:
    assert format_duration(seconds) == shown


@given(st.integers(1, 999), st.sampled_from([*SIZES]), st.sampled_from([*TIMES]))
def test_what_is_shown_can_be_read_again(number: int, size: str, time: str) -> None:
    assert parse_size(format_size(number * SIZES[size])) == number * SIZES[size]
    seconds = number * TIMES[time]
    assert parse_duration(format_duration(seconds)) == pytest.approx(seconds, rel=1e-3)


def test_some_amounts_must_be_above_zero() -> None:
    assert TypeAdapter(Size).validate_python("0B") == 0
    assert TypeAdapter(PositiveSize).validate_python("1B") == 1
    assert TypeAdapter(PositiveDuration).validate_python("1ms") == 0.001
    for kind, zero in ((PositiveSize, "0B"), (PositiveDuration, "0s")):
        with pytest.raises(ValidationError, match="must be above zero"):
            TypeAdapter(kind).validate_python(zero)
