"""The settings and messages that result from each variable of LLM Sandbox's server, with each kind of value."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_sandbox_mcp.compat.environment import OldVariable, old_variables, settings_of
from llm_sandbox_mcp.host.folders import CONFIGS
from llm_sandbox_mcp.profile.profile import Profile, load_profile
from tests.engines import table

DEFAULT = load_profile()
GIB = 1 << 30

NAMES = (
    "BACKEND",
    "NAMESPACE",
    "COMMIT_CONTAINER",
    "KEEP_TEMPLATE",
    "SANDBOX_NETWORK_MODE",
    "SANDBOX_READ_ONLY",
    "SANDBOX_MEM_LIMIT",
    "SANDBOX_MEMORY",
    "SANDBOX_CPU_COUNT",
    "SANDBOX_CPUS",
    "SANDBOX_CAP_DROP",
    "SANDBOX_SECURITY_OPT",
    "SANDBOX_PRIVILEGED",
)


def only_variable(environ: Mapping[str, str], *, named: bool = False) -> OldVariable:
    (variable,) = old_variables(environ, named=named)
    return variable


def at(profile: Profile, key: str) -> object:
    section, name = key.split(".")
    found: object = getattr(table(profile, section), name)
    return found


def profile_with(variables: tuple[OldVariable, ...]) -> Profile:
    return load_profile(over=settings_of(variables))


@pytest.mark.parametrize(
    ("name", "text", "key", "value", "written"),
    [
        ("BACKEND", "docker", "backend.name", "docker", '= "docker"'),
        ("BACKEND", "podman", "backend.name", "podman", '= "podman"'),
        ("BACKEND", "kubernetes", "backend.name", "kubernetes", '= "kubernetes"'),
        ("BACKEND", "bubblewrap", "backend.name", "embedded", '= "embedded"'),
        ("SANDBOX_NETWORK_MODE", "none", "network.mode", "none", '= "none"'),
        ("SANDBOX_NETWORK_MODE", "bridge", "network.mode", "open", '= "open"'),
        ("SANDBOX_NETWORK_MODE", "default", "network.mode", "open", '= "open"'),
        ("SANDBOX_MEMORY", "4g", "limits.memory", 4 * GIB, '= "4GiB"'),
        ("SANDBOX_MEMORY", " 1.5GB ", "limits.memory", 3 * GIB // 2, '= "1.5GiB"'),
        ("SANDBOX_MEMORY", "512M", "limits.memory", GIB // 2, '= "512MiB"'),
        ("SANDBOX_MEMORY", "65536k", "limits.memory", 64 << 20, '= "65536KiB"'),
        ("SANDBOX_MEMORY", "8388608b", "limits.memory", 8 << 20, '= "8388608B"'),
        ("SANDBOX_MEM_LIMIT", "1073741824", "limits.memory", GIB, '= "1073741824B"'),
        ("SANDBOX_CPUS", "0.5", "limits.cpus", 0.5, "= 0.5"),
        ("SANDBOX_CPUS", "2", "limits.cpus", 2.0, "= 2.0"),
        ("SANDBOX_CPU_COUNT", "1", "limits.cpus", 1.0, "= 1.0"),
    ],
)
def test_a_variable_with_a_setting_is_applied_and_reported_as_a_line_for_a_profile(
    name: str, text: str, key: str, value: object, written: str
) -> None:
    variable = only_variable({name: text})
    assert not variable.refused
    assert at(profile_with((variable,)), key) == value
    assert variable.line.startswith(f"{name} is deprecated: ")
    assert variable.line.endswith(f"; set {key} {written} in a profile")


@pytest.mark.parametrize(
    ("name", "text", "fact"),
    [
        ("COMMIT_CONTAINER", "false", "no session gets into an image"),
        ("COMMIT_CONTAINER", "OFF", "no session gets into an image"),
        ("KEEP_TEMPLATE", "true", "images stay"),
        ("KEEP_TEMPLATE", "1", "images stay"),
        ("SANDBOX_READ_ONLY", "true", "only /sandbox"),
        ("SANDBOX_READ_ONLY", "Yes", "only /sandbox"),
        ("SANDBOX_CAP_DROP", "ALL", "never have any capabilities"),
        ("SANDBOX_CAP_DROP", "NET_RAW, SYS_ADMIN", "never have any capabilities"),
        ("SANDBOX_SECURITY_OPT", "no-new-privileges", "never gain privileges"),
        ("SANDBOX_SECURITY_OPT", "no-new-privileges:true, no-new-privileges=true", "never gain privileges"),
        ("SANDBOX_PRIVILEGED", "false", "never have privileges"),
        ("SANDBOX_PRIVILEGED", "0", "never have privileges"),
    ],
)
def test_a_variable_for_what_always_applies_changes_nothing_and_is_reported(name: str, text: str, fact: str) -> None:
    variable = only_variable({name: text})
    assert not variable.refused
    assert profile_with((variable,)) == DEFAULT
    assert variable.line.startswith(f"{name} is deprecated: ")
    assert fact in variable.cause
    assert variable.step == "unset it"


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("BACKEND", "micromamba", 'set backend.name = "docker", containers.image and containers.prefix'),
        ("BACKEND", "nsjail", 'set backend.name = "embedded"'),
        ("BACKEND", "windows-mxc", "on Linux"),
        ("BACKEND", "wsl2-bubblewrap", "inside of that distribution"),
        ("COMMIT_CONTAINER", "true", "is not available"),
        ("COMMIT_CONTAINER", "perhaps", "neither true nor false"),
        ("KEEP_TEMPLATE", "no", "is not available"),
        ("KEEP_TEMPLATE", "2", "neither true nor false"),
        ("SANDBOX_NETWORK_MODE", "host", "set network.mode"),
        ("SANDBOX_NETWORK_MODE", "container:db", "set network.mode"),
        ("SANDBOX_NETWORK_MODE", "mine", "set network.mode"),
        ("SANDBOX_READ_ONLY", "false", "is not available"),
        ("SANDBOX_READ_ONLY", "perhaps", "neither true nor false"),
        ("SANDBOX_MEMORY", "0", "8MiB or more"),
        ("SANDBOX_MEMORY", "4m", "8MiB or more"),
        ("SANDBOX_MEMORY", "-1", "is not a size"),
        ("SANDBOX_MEMORY", "4GiB", "is not a size"),
        ("SANDBOX_MEMORY", "9" * 400, "is not a size"),
        ("SANDBOX_MEM_LIMIT", "much", "is not a size"),
        ("SANDBOX_CPUS", "0", "above zero"),
        ("SANDBOX_CPUS", "-1", "above zero"),
        ("SANDBOX_CPUS", "nan", "above zero"),
        ("SANDBOX_CPUS", "inf", "above zero"),
        ("SANDBOX_CPU_COUNT", "two", "above zero"),
        ("SANDBOX_SECURITY_OPT", "seccomp=unconfined", "cannot be changed"),
        ("SANDBOX_SECURITY_OPT", "no-new-privileges:true,apparmor=unconfined", "'apparmor=unconfined'"),
        ("SANDBOX_SECURITY_OPT", "no-new-privileges:false", "cannot be changed"),
        ("SANDBOX_PRIVILEGED", "true", "is not available"),
        ("SANDBOX_PRIVILEGED", "perhaps", "neither true nor false"),
    ],
)
def test_an_unsupported_value_is_refused_with_variable_value_and_next_step(name: str, text: str, reason: str) -> None:
    variable = only_variable({name: text})
    assert variable.refused
    assert profile_with((variable,)) == DEFAULT
    assert variable.line.startswith(f"{name}: '")
    assert reason in variable.line
    assert "; " in variable.line
    assert len(variable.line) < 250


def test_a_backend_set_for_another_program_is_ignored_and_reported_without_its_value() -> None:
    variable = only_variable({"BACKEND": "https://me:hunter2@db.example"})
    assert not variable.refused
    assert profile_with((variable,)) == DEFAULT
    assert "docker, podman, kubernetes, bubblewrap" in variable.line
    assert "hunter2" not in variable.line


def test_a_namespace_counts_only_for_kubernetes() -> None:
    for backend in ({}, {"BACKEND": "docker"}, {"BACKEND": "rails"}):
        assert "NAMESPACE" not in {found.name for found in old_variables({**backend, "NAMESPACE": "a"}, named=False)}
    found = old_variables({"BACKEND": "kubernetes", "NAMESPACE": "models"}, named=False)
    assert table(profile_with(found), "kubernetes").namespace == "models"
    _, refused = old_variables({"BACKEND": "kubernetes", "NAMESPACE": "My_Models"}, named=False)
    assert refused.refused
    assert refused.line.startswith("NAMESPACE: 'My_Models' is not a valid namespace; ")


@pytest.mark.parametrize(
    ("first", "other", "key", "value"),
    [
        ("SANDBOX_MEM_LIMIT", "SANDBOX_MEMORY", "limits.memory", GIB),
        ("SANDBOX_CPU_COUNT", "SANDBOX_CPUS", "limits.cpus", 1.0),
    ],
)
def test_if_two_variables_mean_the_same_the_first_is_used(first: str, other: str, key: str, value: object) -> None:
    environ = {first: "1" if "CPU" in first else "1g", other: "nonsense"}
    found = {variable.name: variable for variable in old_variables(environ, named=False)}
    assert at(profile_with(tuple(found.values())), key) == value
    assert found[other].line == f"{other} is deprecated: it is ignored, because {first} is set; unset it"


def test_dockers_variable_also_names_podmans_host_unless_podmans_own_is_set() -> None:
    here = {"BACKEND": "podman", "DOCKER_HOST": "unix:///run/podman/podman.sock"}
    found = old_variables(here, named=False)
    assert [variable.name for variable in found] == ["BACKEND", "DOCKER_HOST"]
    assert table(profile_with(found), "podman").host == "unix:///run/podman/podman.sock"
    for others in ({"CONTAINER_HOST": "unix:///other.sock"}, {"BACKEND": "docker"}):
        assert "podman" not in settings_of(old_variables(here | others, named=False))


def test_an_empty_variable_counts_as_not_set() -> None:
    assert old_variables(dict.fromkeys(NAMES, " "), named=False) == ()


REFUSED = {"BACKEND": "kubernetes", "SANDBOX_PRIVILEGED": "true", **dict.fromkeys(NAMES[1:-1], "-")}


def test_with_a_named_profile_all_variables_are_ignored_and_each_is_reported() -> None:
    found = old_variables(REFUSED, named=True)
    assert [variable.name for variable in found] == [*NAMES]
    assert profile_with(found) == DEFAULT
    for variable in found:
        assert not variable.refused
        assert "it is ignored, " in variable.line
        assert variable.line.endswith("the named profile applies; unset it")
    assert old_variables({"BACKEND": "rails", "NAMESPACE": "a"}, named=True) == ()


@given(st.dictionaries(st.sampled_from(NAMES), st.text(max_size=20)), st.booleans())
def test_any_value_results_in_one_line_and_a_valid_profile(environ: dict[str, str], named: bool) -> None:
    found = old_variables(environ, named=named)
    assert len({variable.name for variable in found}) == len(found)
    assert all("\n" not in variable.line for variable in found)
    profile = profile_with(found)
    assert profile.limits.memory >= 8 << 20
    assert profile.limits.cpus > 0


def test_the_migration_page_has_every_variable_and_a_valid_profile(tmp_path: Path) -> None:
    page = (CONFIGS / "migration.md").read_text(encoding="utf-8")
    assert [name for name in NAMES if f"| `{name}`" not in page and f", `{name}` |" not in page] == []
    (written,) = re.findall(r"^```toml\n(.*?old_names.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "mine.toml").write_text(written)
    assert load_profile(str(tmp_path / "mine.toml")).tools.old_names
