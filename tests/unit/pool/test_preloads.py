"""Which modules warm interpreters import."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from llm_sandbox_mcp.languages.languages import included_languages
from llm_sandbox_mcp.pool.preloads import modules_of
from llm_sandbox_mcp.profile.profile import load_profile

PYTHON = included_languages()["python"]


@pytest.mark.parametrize(
    ("section", "modules"),
    [
        ({}, ["numpy", "pandas", "matplotlib.pyplot"]),
        ({"libraries": ["Pandas>=2,<3", "polars"]}, ["pandas"]),
        ({"libraries": []}, []),
        ({"libraries": [], "preload": ["json", "scipy.stats"]}, ["json", "scipy.stats"]),
        ({"preload": []}, []),
    ],
)
def test_the_modules_of_the_default_list_are_those_of_the_libraries_and_others_are_as_chosen(
    section: Mapping[str, Sequence[str]], modules: Sequence[str]
) -> None:
    assert [*modules_of(load_profile(over={"languages": {"python": section}}), PYTHON)] == modules


def test_nothing_is_imported_where_the_runner_cannot_do_that() -> None:
    runner = PYTHON.handler.runner
    assert runner is not None
    handler = PYTHON.handler.model_copy(update={"runner": runner.model_copy(update={"preloads": False})})
    assert modules_of(load_profile(), replace(PYTHON, handler=handler)) == ()
