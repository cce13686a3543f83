"""Policies match code however it is written, but not comments and strings, and every run enforces them."""

import json
from pathlib import Path
from typing import Any

import pytest

from llm_sandbox_mcp import (
    InteractiveSandboxSession,
    InvalidRegexPatternError,
    RestrictedModule,
    SandboxSession,
    SecurityIssueSeverity,
    SecurityPattern,
    SecurityPolicy,
    SecurityViolationError,
    ValidationError,
    get_security_policy,
    validate_package_name,
)

pytestmark = pytest.mark.usefixtures("library")

HIGH, MEDIUM, LOW, SAFE = (
    SecurityIssueSeverity.HIGH,
    SecurityIssueSeverity.MEDIUM,
    SecurityIssueSeverity.LOW,
    SecurityIssueSeverity.SAFE,
)
INTERNAL = SecurityPattern(r"get\(.*internal\.example", "asks what is not ours", MEDIUM)
NO_OS = RestrictedModule("os", "starts programs", HIGH)


def policy(threshold: SecurityIssueSeverity) -> SecurityPolicy:
    made = SecurityPolicy(severity_threshold=threshold)
    made.add_pattern(INTERNAL)
    made.add_restricted_module(NO_OS)
    return made


def test_forbidden_code_is_found_however_it_is_written() -> None:
    with SandboxSession(security_policy=policy(MEDIUM)) as session:
        for code in ("import json,os", "x='#';import os", "__import__('os')", "from os import path", "import os as o"):
            safe, found = session.is_safe(code)
            assert (safe, [one.description for one in found]) == (False, ["starts programs"]), code
            with pytest.raises(SecurityViolationError, match="line 1"):
                session.run(f"{code}\nopen('ran', 'w')")
        assert session.is_safe("get('https://internal.example/a')") == (False, [INTERNAL])
        assert session.execute_command("ls").stdout == ""


def test_comments_and_strings_do_not_match() -> None:
    with SandboxSession(security_policy=policy(LOW)) as session:
        code = "# get(internal.example)\nprint('import os')"
        assert session.is_safe(code) == (True, [])
        assert session.run(code).stdout == "import os\n"


def test_a_finding_below_the_threshold_is_reported_and_the_code_runs() -> None:
    code = "def get(x): return 1\nprint(get('internal.example'))"
    for threshold in (HIGH, SAFE):
        with SandboxSession(security_policy=policy(threshold)) as session:
            assert session.is_safe(code) == (True, [INTERNAL])
            assert session.is_safe(code) == (True, [INTERNAL])  # findings do not accumulate
            assert session.run(code).stdout == "1\n"


OURS = [
    {"restricted_modules": [RestrictedModule("threading", "", HIGH), RestrictedModule("atexit", "", HIGH)]},
    {"restricted_modules": [RestrictedModule("sys", "", HIGH), RestrictedModule("types", "", HIGH)]},
    {"patterns": [SecurityPattern(r"\._\w+", "", HIGH), SecurityPattern(r"\b(rm|tar|cd) +-", "", HIGH)]},
]
"""What the package's own code in a sandbox does; policies do not apply to it."""


@pytest.mark.parametrize("forbidden", OURS)
def test_only_code_of_the_program_is_judged(forbidden: dict[str, Any], tmp_path: Path) -> None:
    made = SecurityPolicy(HIGH, **forbidden)
    (tmp_path / "a").write_text("copied")
    with SandboxSession(security_policy=made) as session:
        assert session.run("print(1)").stdout == "1\n"
        session.copy_to_runtime(str(tmp_path / "a"), "/sandbox/a")
        session.copy_from_runtime("/sandbox/a", str(tmp_path / "b"))
        assert session.execute_command("cat a").stdout == "copied"
    assert (tmp_path / "b").read_text() == "copied"
    with InteractiveSandboxSession(security_policy=made) as interactive:
        assert interactive.run("1 + 1").stdout == "2\n"


def test_a_policy_applies_to_commands_and_does_not_change_while_the_session_is_open() -> None:
    made = policy(MEDIUM)
    with SandboxSession(security_policy=made) as session:
        with pytest.raises(SecurityViolationError, match="line 1"):
            session.execute_command("get('https://internal.example/a')")
        made.add_restricted_module(RestrictedModule("json", "", HIGH))
        assert session.is_safe("import json") == (True, [])
        assert session.run("import json").exit_code == 0
    assert not SandboxSession(security_policy=made).is_safe("import json")[0]


def test_no_version_of_a_restricted_module_is_installed() -> None:
    made = SecurityPolicy(HIGH, restricted_modules=[RestrictedModule("requests", "", HIGH)])
    with SandboxSession(security_policy=made) as session:
        for library in ("requests", "requests==2.1", "requests[socks]>=2"):
            with pytest.raises(SecurityViolationError, match="restricted module"):
                session.run("print(1)", libraries=[library])


@pytest.mark.parametrize(
    "name", ["development", "production", "strict", "educational", "data_science", "web_scraping", "minimal"]
)
def test_the_presets_exist_and_can_be_extended(name: str) -> None:
    made = get_security_policy(name)
    made.add_pattern(INTERNAL)
    with SandboxSession(security_policy=made) as session:
        assert session.is_safe("print(1)") == (True, [])
        found = [one.severity for one in session.is_safe("import os\nos.fork()\nget('internal.example')")[1]]
        assert HIGH in found or name == "development"
        assert MEDIUM in found


def test_a_policy_can_be_made_from_plain_data_and_turned_into_it() -> None:
    data = {
        "severity_threshold": 2,
        "patterns": [{"pattern": "internal", "description": "not ours", "severity": 2}],
        "restricted_modules": [{"name": "os", "description": "starts programs", "severity": 3}],
    }
    made = SecurityPolicy(**data)  # type: ignore[arg-type]
    assert made == SecurityPolicy(MEDIUM, [SecurityPattern("internal", "not ours", MEDIUM)], [NO_OS])
    assert SecurityPolicy.model_validate(json.loads(json.dumps(made.model_dump()))) == made
    assert made.model_copy(update={"severity_threshold": HIGH}).severity_threshold is HIGH
    made.add_pattern({"pattern": "other", "description": "", "severity": 1})  # type: ignore[arg-type]
    assert made.patterns is not None and made.patterns[1].severity is LOW
    with SandboxSession(security_policy=made) as session:
        assert session.is_safe("import os") == (False, [SecurityPattern(r"\bos\b", "starts programs", HIGH)])


def test_code_that_cannot_be_judged_is_not_safe() -> None:
    slow = SecurityPolicy(HIGH, [SecurityPattern("(?:a|aa)+b", "", LOW)])
    with SandboxSession(security_policy=slow) as session:
        code = f"x = '{'a' * 200}'"
        assert session.is_safe(code) == (False, [])
        with pytest.raises(SecurityViolationError, match="did not run"):
            session.run(code)


def test_an_invalid_policy_is_an_error() -> None:
    with pytest.raises(ValidationError, match="unknown security policy 'none'; available: data_science"):
        get_security_policy("none")
    with pytest.raises(InvalidRegexPatternError):
        SecurityPattern("(", "", HIGH)
    made: list[tuple[Any, str]] = [
        (lambda: RestrictedModule("os", "", 9), "severity is 9; give"),  # type: ignore[arg-type]
        (lambda: RestrictedModule(" ", "", HIGH), "name is ' '"),
        (lambda: SecurityPattern(5, "", HIGH), "pattern is 5"),  # type: ignore[arg-type]
        (lambda: SecurityPolicy("high"), "severity_threshold is high"),  # type: ignore[arg-type]
        (lambda: SecurityPolicy(HIGH, {"pattern": "a"}), "patterns is .*; give a list"),  # type: ignore[arg-type]
        (lambda: SecurityPolicy(HIGH, [5]), "'5' is not a SecurityPattern"),  # type: ignore[list-item]
        (lambda: SecurityPolicy(HIGH).add_restricted_module({"module": "os"}), "name, description, severity"),  # type: ignore[arg-type]
    ]
    for make, message in made:
        with pytest.raises(ValidationError, match=message):
            make()
    with pytest.raises(ValidationError, match=r"backend auto: security_policy: '\.\*' matches any code"):
        SandboxSession(security_policy=SecurityPolicy(HIGH, [SecurityPattern(".*", "", HIGH)])).open()
    with SandboxSession() as session:
        assert session.is_safe("import os") == (True, [])


@pytest.mark.parametrize(
    "library", [None, 5, "a; rm -rf /", "$(x)", "-r x", "../x", "", "https://a.example/x.whl", "a b"]
)
def test_an_invalid_library_name_is_refused(library: Any) -> None:
    for language in ("python", "javascript", "ruby", "c", "cobol", ""):
        with pytest.raises(ValidationError, match=f"is not a valid {language} package; give a plain name"):
            validate_package_name(library, language)


def test_valid_library_names_are_accepted() -> None:
    assert validate_package_name(" numpy>=2,<3 ", "python") == "numpy>=2,<3"
    assert validate_package_name("@scope/name@1.2", "javascript") == "@scope/name@1.2"
    for name, language in (("g++", "C"), ("lens-5.2", "haskell"), ("a.b/c@1", "")):
        assert validate_package_name(name, language) == name


def test_a_name_of_maven_can_lack_its_version() -> None:
    for name in ("org.example:tool", "org.example:tool:1.2"):
        assert validate_package_name(name, "java") == name
    for name in ("tool", "org.example:tool:", "org.example:tool:1:2:3"):
        with pytest.raises(ValidationError, match="is not a valid java package"):
            validate_package_name(name, "java")


def test_a_language_without_libraries_has_no_valid_name() -> None:
    with pytest.raises(ValidationError, match="is not a valid bash package"):
        validate_package_name("curl", "bash")


def test_a_pattern_with_two_groups_of_one_name_is_refused() -> None:
    with pytest.raises(InvalidRegexPatternError, match="redefinition of group name 'a'"):
        SecurityPattern("(?P<a>x)(?P<a>y)", "", HIGH)
