"""How far a build is, by the lines of uv: a share of what there is to do, and an estimate of the rest."""

import pytest

from llm_sandbox_mcp.libraries.prepared.progress import Progress, in_place

BEGUN = "preparing Python's libraries"


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def progress(clock: Clock) -> Progress:
    return Progress("Python", clock)


def test_downloads_count_by_their_size_and_then_packages_as_they_are_put_in_place(
    progress: Progress, clock: Clock
) -> None:
    said = []
    for seconds, line in [
        (1, "Using Python 3.11.2 environment at: /tmp/new"),
        (2, "Resolved 4 packages in 739ms"),
        (2, "Downloading scipy (30.0MiB)"),
        (2, "Downloading lxml (5.0MiB)"),
        (2, "Downloading kiwisolver (5120.0KiB)"),
        (5, "Downloaded lxml"),
        (10, "Downloaded scipy"),
        (12, "Prepared 4 packages in 3.25s"),
        (13, in_place(2)),
        (14, "Installed 4 packages in 4.00s"),
    ]:
        clock.now = 100 + seconds
        progress.take(line)
        said.append(str(progress).removeprefix(BEGUN))
    assert said[:5] == [""] * 5
    assert said[5:] == [
        ", 8 %, about 55 s more",
        ", 58 %, about 10 s more",
        ", 66 %, about 10 s more",
        ", 83 %, about 5 s more",
        ", 99 %",
    ]


def test_what_is_in_the_cache_of_uv_is_only_put_in_place(progress: Progress, clock: Clock) -> None:
    progress.take("Resolved 100 packages in 1.04s")
    clock.now += 10
    progress.take(in_place(3))
    assert str(progress) == f"{BEGUN}, 3 %"
    progress.take(in_place(10))
    assert str(progress) == f"{BEGUN}, 10 %, about 2 min more"
    clock.now += 10
    assert str(progress) == f"{BEGUN}, 10 %, about 3 min more"


def test_a_download_that_is_told_late_takes_nothing_back(progress: Progress, clock: Clock) -> None:
    clock.now += 1
    for line in ("Downloading one (3.0MiB)", "Downloaded one", "Downloading two (3.0MiB)"):
        progress.take(line)
    assert str(progress) == f"{BEGUN}, 66 %, about 5 s more"


def test_a_line_that_says_nothing_about_it_changes_nothing(progress: Progress) -> None:
    for line in ("", " + numpy==2.3.1", "warning: something", "Resolved", "Downloaded unknown"):
        progress.take(line)
    assert str(progress) == BEGUN
