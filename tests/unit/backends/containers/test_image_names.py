"""Names of images: of languages, with a registry in front, and of templates."""

import pytest

from llm_sandbox_mcp.backends.containers.engine import Stored
from llm_sandbox_mcp.backends.containers.settings import Containers
from llm_sandbox_mcp.backends.containers.templates import LABEL, checked, name_of
from llm_sandbox_mcp.base.errors import InvalidArgument


def settings(registry: str = "", **images: str) -> Containers:
    return Containers.model_construct(image="own/{language}:1", images=images, registry=registry)


@pytest.mark.parametrize("name", ["python:3", "library/python", "python"])
def test_the_registry_is_added_to_a_name_that_has_none(name: str) -> None:
    assert settings("reg.example/mirror/").full(name) == f"reg.example/mirror/{name}"
    assert settings().full(name) == name


@pytest.mark.parametrize("name", ["localhost/python", "ghcr.io/x/y", "reg:5000/x"])
def test_a_name_with_a_registry_keeps_it(name: str) -> None:
    assert settings("reg.example").full(name) == name


def test_a_language_has_its_own_image_or_the_one_with_its_name() -> None:
    found = settings(python="python:3", bash="")
    assert [found.name(language) for language in ("python", "bash", "go")] == ["python:3", "own/bash:1", "own/go:1"]


@pytest.mark.parametrize(
    ("name", "whole"),
    [
        ("geo", "geo:latest"),
        ("geo:1", "geo:1"),
        ("reg:5000/geo", "reg:5000/geo:latest"),
        ("reg.example/a/b_c-d.e:V1", "reg.example/a/b_c-d.e:V1"),
        ("a" * 255, "a" * 255 + ":latest"),
        (f"geo:{'t' * 128}", f"geo:{'t' * 128}"),
    ],
)
def test_the_name_of_a_template_has_a_tag(name: str, whole: str) -> None:
    assert checked(name) == whole


@pytest.mark.parametrize(
    "name", ["", "Geo", "a b", "/geo", "geo/", "geo:", "-geo", "a" * 256, f"geo:{'t' * 129}", "a\n"]
)
def test_a_name_that_no_image_can_have_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgument, match="is not valid; use lower-case letters"):
        checked(name)


@pytest.mark.parametrize("names", [("geo:1",), ("x:2", "geo:1"), ("localhost/geo:1",), ("docker.io/library/geo:1",)])
def test_an_image_with_the_name_that_it_was_made_under_is_a_template(names: tuple[str, ...]) -> None:
    assert name_of(Stored("id", 1, names, {LABEL: "geo:1"})) == "geo:1"


@pytest.mark.parametrize("names", [(), ("x:2",), ("mygeo:1",), ("geo:2",)])
def test_an_image_with_another_name_has_only_inherited_the_label(names: tuple[str, ...]) -> None:
    assert name_of(Stored("id", 1, names, {LABEL: "geo:1"})) == ""
    assert name_of(Stored("id", 1, ("geo:1",))) == ""
