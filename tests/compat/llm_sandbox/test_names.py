"""A program written for LLM Sandbox only changes its import: every name exists here."""

import json
import re
import warnings
from dataclasses import fields
from typing import Any, assert_type

import pytest

import llm_sandbox_mcp
from llm_sandbox_mcp import (
    ArtifactSandboxSession,
    BackendCapabilities,
    CommandEmptyError,
    CommandFailedError,
    ConsoleOutput,
    InteractiveSandboxSession,
    NotOpenSessionError,
    PoolClosedError,
    PoolConfig,
    PoolExhaustedError,
    SandboxBackend,
    SandboxError,
    SandboxSession,
    SandboxTimeoutError,
    SupportedLanguage,
    UnsupportedBackendError,
    ValidationError,
    get_backend,
    list_backends,
    register_backend,
)
from llm_sandbox_mcp.compat import llm_sandbox
from llm_sandbox_mcp.compat.llm_sandbox import pools, registry, session
from llm_sandbox_mcp.compat.llm_sandbox.options import Options
from llm_sandbox_mcp.host.folders import CONFIGS

NAMES = [
    "SandboxSession",
    "create_session",
    "ArtifactSandboxSession",
    "InteractiveSandboxSession",
    "KernelType",
    "InteractiveSettings",
    "ConsoleOutput",
    "ExecutionResult",
    "PlotOutput",
    "FileType",
    "StreamCallback",
    "SupportedLanguage",
    "SandboxBackend",
    "SecurityPolicy",
    "SecurityPattern",
    "RestrictedModule",
    "SecurityIssueSeverity",
    "get_security_policy",
    "validate_package_name",
    "create_pool_manager",
    "PoolConfig",
    "register_backend",
    "get_backend",
    "list_backends",
    "SandboxError",
    "ContainerError",
    "SecurityError",
    "SecurityViolationError",
    "ResourceError",
    "ValidationError",
    "SandboxTimeoutError",
    "NotOpenSessionError",
    "LanguageNotSupportedError",
    "LanguageNotSupportPlotError",
    "LibraryInstallationNotSupportedError",
    "CommandFailedError",
    "ImagePullError",
    "ImageNotFoundError",
    "MissingDependencyError",
    "UnsupportedBackendError",
    "ExtraArgumentsError",
    "DuplicateClientError",
    "CommandEmptyError",
    "PackageManagerError",
    "SessionNotOpenError",
    "InvalidRegexPatternError",
    "PoolExhaustedError",
    "PoolClosedError",
    "PoolHealthCheckError",
]

GONE = [
    "SessionConfig",
    "DefaultImage",
    "LocalSandboxConfig",
    "SeccompPolicy",
    "WindowsMxcConfig",
    "LanguageHandlerFactory",
    "PACKAGE_NAME_PATTERNS",
    "ContainerPoolManager",
    "ContainerState",
    "PooledContainer",
    "PooledSandboxSession",
    "ArtifactPooledSandboxSession",
    "LanguageHandlerNotInitializedError",
]
"""Names of the modules of LLM Sandbox that do not exist here."""


@pytest.mark.parametrize("name", NAMES)
def test_a_name_exists(name: str) -> None:
    found = getattr(llm_sandbox_mcp, name)
    if name.endswith("Error"):
        assert issubclass(found, SandboxError)


def test_type_checkers_know_the_names_at_the_top_and_in_their_own_package() -> None:
    """`make lint` checks the types."""
    assert_type(PoolConfig(), pools.PoolConfig)
    assert_type(llm_sandbox.PoolConfig(), pools.PoolConfig)
    assert_type(llm_sandbox_mcp.SandboxSession("docker"), session.SandboxSession)


def test_the_migration_page_lists_every_name_and_every_argument() -> None:
    page = (CONFIGS / "migration.md").read_text()
    listed = set(re.findall(r"`(\w+)`", page))
    assert {"SandboxError", *llm_sandbox._MODULES} - listed == set()
    assert {field.name for settings in (Options, PoolConfig) for field in fields(settings)} - listed == set()
    assert set(GONE) - listed == set()


@pytest.mark.parametrize("name", GONE)
def test_a_name_that_the_page_lists_as_gone_does_not_exist(name: str) -> None:
    assert not hasattr(llm_sandbox_mcp, name)


def test_languages_and_backends_are_found_in_any_case() -> None:
    assert SupportedLanguage("Python") is SupportedLanguage.PYTHON
    assert SandboxBackend("DOCKER") is SandboxBackend.DOCKER
    assert {language.value for language in SupportedLanguage} >= {
        "python",
        "java",
        "javascript",
        "cpp",
        "go",
        "ruby",
        "r",
    }


def test_positional_arguments_of_old_programs_work() -> None:
    assert SandboxSession("docker").options.backend is SandboxBackend.DOCKER
    assert SandboxSession(SandboxBackend.PODMAN, None).options.engine == "podman"
    drawing = ArtifactSandboxSession("docker", "python:3.12", None, "Python").options
    assert (drawing.engine, drawing.image, drawing.lang) == ("docker", "python:3.12", "python")
    assert InteractiveSandboxSession("bubblewrap", lang="PY", kernel_type="IPython").options.engine == "embedded"


def test_programs_make_errors_with_the_arguments_of_llm_sandbox() -> None:
    full = PoolExhaustedError(4, 0.5)
    assert (full.pool_size, full.timeout) == (4, 0.5)
    assert str(full) == "all 4 sandboxes of the pool are in use, and none was free within 0.5 s"
    assert str(PoolExhaustedError(pool_size=4)) == "all 4 sandboxes of the pool are in use"
    failed = CommandFailedError("make", 2, "no rule")
    assert (failed.command, failed.exit_code, failed.output) == ("make", 2, "no rule")
    assert str(failed) == "make failed with exit code 2: no rule"
    assert SandboxTimeoutError("too slow", 1.5).timeout_duration == 1.5
    assert str(SandboxTimeoutError("too slow", 1.5)) == "too slow"
    assert all(str(kind()) for kind in (CommandEmptyError, NotOpenSessionError, PoolClosedError))


def test_results_can_be_compared_and_converted() -> None:
    output = ConsoleOutput(0, "", "1\n")
    assert output.success() and not ConsoleOutput(1).success()
    assert json.loads(output.to_json()) == {"exit_code": 0, "stderr": "", "stdout": "1\n", "notes": []}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert output.text() == "1\n"
    assert [one.category for one in caught] == [DeprecationWarning]


def test_a_program_can_register_its_own_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_own", {})
    made = register_backend(
        "Own", lambda **arguments: ("own", arguments), capabilities=BackendCapabilities(pooling=True)
    )
    assert (get_backend("own"), made.builtin) == (made, False)
    assert made in list_backends()
    made_by_it: list[object] = [SandboxSession(backend="own", lang="x"), SandboxSession("OWN", lang="x")]
    for own in made_by_it:
        assert own == ("own", {"lang": "x"})
    for kind in (ArtifactSandboxSession, InteractiveSandboxSession):
        with pytest.raises(
            UnsupportedBackendError, match=f"backend own: {kind.__name__} is only for the included backends"
        ):
            kind(backend="own")
    register_backend("ours", lambda **arguments: SandboxSession("embedded", **arguments))
    ours = SandboxSession("ours", lang="Ruby")
    assert (ours.options.backend, ours.options.lang) == ("embedded", "ruby")
    names: list[Any] = ["own", "Docker", "no name", "", 5, None]
    for name in names:
        with pytest.raises(ValidationError):
            register_backend(name, dict)
    with pytest.raises(ValueError, match="not a function"):
        register_backend("other", 5)  # type: ignore[arg-type]
    with pytest.raises(UnsupportedBackendError):
        get_backend("none")
    assert get_backend("docker").capabilities.container_images
