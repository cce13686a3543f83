"""Which ring a test belongs to, by what it needs. `make check`, `test`, `test-engines` and `test-all` run the rings.

The folder of a test, its backend and its language decide; the test itself does not name its ring.
"""

from collections.abc import Iterable

import pytest

from llm_sandbox_mcp.backends import BACKENDS

from .effort import EFFORT
from .turns import backend_of, by_case, by_language, client_of, has_turn, language_of, left_out

OPTION = "--ring"
ENGINE = "--engine"
CONCURRENCY = "--concurrency"
CHECK = "check"
"""Tests that need no sandbox at all."""
SANDBOX = "sandbox"
"""Tests that need no engine and no daemon: the tests of `CHECK`, and those that run on bubblewrap."""
ENGINES = "engines"
"""Tests on real Docker, Podman and Kubernetes, which take turns: what every engine must do, tests of single engines,
and a few attacks and languages."""
ALL = "all"
"""Every case of every test on every engine, including slow tests and tests that need more than engines."""
RINGS = (CHECK, SANDBOX, ENGINES, ALL)

NOTHING = ("tests/unit/", "tests/memory/", "tests/other_systems/", "tests/test_layers.py")
"""Tests that need no sandbox."""
EACH = "tests/conformance/"
"""What every engine must do. The ring of engines runs only the cases in Python, and each case on one engine."""
ON_ENGINES = {"tests/containers/": ("docker", "podman"), "tests/cluster/": ("kubernetes",)}
"""Folders with tests of some engines; the ring of engines runs each case on one of them."""
IN_TURNS = (
    "tests/handlers/test_selftests.py::test_a_language_behaves_as_its_selftest_says",
    "tests/hostile/test_closed_descriptors.py::test_closed_descriptors_give_a_clean_result",
    "tests/hostile/test_copy_in.py::test_a_planted_folder_link_is_not_followed",
    "tests/hostile/test_copy_out_archive.py::test_crafted_members_are_dropped",
    "tests/hostile/test_core_dump.py::test_an_abort_writes_no_file",
    "tests/hostile/test_daemon.py::test_a_daemon_is_gone_with_a_session_that_is_not_kept",
    "tests/hostile/test_descriptors.py::test_a_child_inherits_only_its_streams",
    "tests/hostile/test_disk_filler.py::test_a_disk_filler_meets_the_limit",
    "tests/hostile/test_fork_bomb.py::test_a_fork_bomb_meets_the_limit_on_processes",
    "tests/hostile/test_ipc.py::test_no_sandbox_finds_what_another_leaves_in_the_kernel",
    "tests/hostile/test_kernel_settings.py::test_no_setting_of_the_kernel_can_be_written",
    "tests/hostile/test_kill_signals.py::test_a_run_after_its_runner_was_killed_really_runs",
    "tests/hostile/test_memory_bomb.py::test_a_memory_bomb_is_out_of_memory",
    "tests/hostile/test_mount.py::test_every_call_that_changes_the_tree_is_refused",
    "tests/hostile/test_network.py::test_what_listens_on_the_host_is_out_of_reach",
    "tests/hostile/test_output_flood.py::test_a_flood_is_cut_and_stopped",
    "tests/hostile/test_read_only_system.py::test_raw_writes_to_devices_and_disks_fail",
    "tests/hostile/test_setuid.py::test_no_call_gives_another_user",
    "tests/hostile/test_signals_ignored.py::test_code_that_answers_no_interrupt_is_dead_soon_after_the_deadline",
    "tests/hostile/test_socket_families.py::test_only_ordinary_sockets_can_be_made",
    "tests/hostile/test_user_namespace.py::test_no_namespace_can_be_made_or_entered",
)
"""Tests for which the ring of engines runs one case per language, each on one engine."""
ONLY_IN_ALL = (
    "tests/cli/test_layers.py::test_without_",
    "tests/cli/test_limits.py",
    "tests/cluster/test_outages.py::test_a_cluster_that_is_silent_",
    "tests/cluster/test_outages.py::test_a_silent_node_is_reported_by_name_and_used_again_once_it_answers",
    "tests/cluster/test_scale.py",
    "tests/containers/test_crashes.py::test_fifty_sessions_opened_at_once_all_answer_and_close_at_once",
    "tests/containers/test_frozen_engine.py::test_a_built_program_",
    "tests/containers/test_frozen_engine.py::test_a_container_",
    "tests/containers/test_frozen_engine.py::test_an_engine_that_does_not_report_",
    "tests/containers/test_frozen_engine.py::test_what_starts_",
    "tests/gate/test_after_checks.py",
    "tests/gate/test_growth.py",
    "tests/gate/test_stage.py",
    "tests/handlers/test_library_failures.py::test_a_limit_that_an_installation_reached_is_named",
    "tests/handlers/test_public_indexes.py",
    "tests/handlers/test_python_pictures.py",
    "tests/hostile/test_limits_in_languages.py",
    "tests/hostile/test_tampering.py",
    "tests/compat/rest/test_limits.py",
    "tests/integrations/",
    "tests/packaging/test_bundle.py",
    "tests/packaging/test_packaging.py::test_the_demo_runs_in_the_sdist",
    "tests/packaging/test_publish.py::test_every_dependency_has_a_wheel",
    "tests/packaging/test_publish.py::test_the_entry_meets_the_schema_of_the_registry",
    "tests/packaging/test_server_image.py",
    "tests/slurm/",
    "tests/soak/test_soak.py::test_nothing_grows_with_the_number_of_runs",
    *(
        f"tests/host/test_rules_worker.py::test_no_text_keeps_code_from_being_judged[{language}]"
        for language in ("bash", "cpp", "go", "java", "javascript", "r", "ruby")
    ),
)
"""Tests of load, slow tests, and tests that need daemons, packages or a network that no other test needs."""
IN_PYTHON = ("tests/handlers/test_libraries.py", "tests/handlers/test_library_failures.py")
"""Slow tests whose cases in other languages only `ALL` runs."""
OUTSIDE = "tests/clients/"
"""Tests with the packages of clients, of which only `ALL` runs all."""
QUICKEST = ("mcp_1", "stdio")
"""The client and the way to the server that `SANDBOX` runs too."""
PROTOCOLS_IN_TURNS = (
    "tests/mcp/test_bad_input.py",
    "tests/mcp/test_everyday.py",
    "tests/mcp/test_host_files.py",
    "tests/mcp/test_old_names.py",
    "tests/mcp/test_resources.py",
    "tests/mcp/test_roots.py",
    "tests/mcp/test_rules.py",
    "tests/mcp/test_tools.py",
)
"""Tests of tools rather than of a protocol: each runs over one of the two, and in `ALL` over both."""
ALONE = (
    "tests/cluster/test_network.py",
    "tests/cluster/test_outages.py::test_a_silent_node_is_reported_by_name_and_used_again_once_it_answers",
    "tests/cluster/test_scale.py",
    "tests/containers/test_crashes.py::test_fifty_sessions_opened_at_once_all_answer_and_close_at_once",
    # These backends share the machine's pseudo-terminals, and the attack takes all of them.
    *(
        f"tests/hostile/test_shared_counters.py::test_others_still_have_what_one_sandbox_uses_up[{backend}-pseudo-terminals]"
        for backend in ("docker", "kubernetes")
    ),
)
"""Tests that need the whole machine, or change it for everyone: they run when all other tests have ended."""

PROPERTY = 120
"""Seconds for a property, as often as `make test` tries it."""

running: str | None = None
"""The ring whose tests this process runs; None if no ring was chosen."""

LIMITS = {
    "tests/containers/": 600,
    "tests/cluster/": 600,
    "tests/slurm/": 600,
    "tests/integrations/": 900,
    OUTSIDE: 600,
}
"""Seconds for a test that waits for engines, nodes or packages; pyproject.toml sets the limit of all other tests."""


def add_options(parser: pytest.Parser) -> None:
    """Adds the options that choose a ring and an engine; without them, the named tests run."""
    parser.addoption(OPTION, choices=RINGS, help="run the tests of one ring; see tests/README.md")
    parser.addoption(
        ENGINE, choices=[name for name in BACKENDS if name != "embedded"], help="run only the tests of this engine"
    )
    parser.addoption(
        CONCURRENCY,
        choices=("parallel", "alone"),
        help="run only tests that can run in parallel with others, or only tests that must run alone",
    )


def ring(item: pytest.Item) -> str:
    """The smallest ring that contains a test."""
    name, backend = item.nodeid, backend_of(item)
    if name.startswith(ONLY_IN_ALL):
        return ALL
    if name.startswith(IN_PYTHON) and language_of(item) != "python":
        return ALL
    if name.startswith(OUTSIDE) and client_of(item) != QUICKEST:
        return ALL
    if name.startswith(PROTOCOLS_IN_TURNS) and not has_turn(item):
        return ALL
    if name.startswith(NOTHING):
        return CHECK
    if name.startswith(tuple(ON_ENGINES)):
        return ENGINES
    if backend in ("", "embedded"):
        return SANDBOX
    if (name.startswith(EACH) and language_of(item) == "python") or name.startswith(IN_TURNS):
        return ENGINES
    return ALL


def limit(items: Iterable[pytest.Item]) -> None:
    """Sets the time limit of each test to the limit of its folder."""
    for item in items:
        for folder, seconds in LIMITS.items():
            if item.nodeid.startswith(folder) and not item.get_closest_marker("timeout"):
                item.add_marker(pytest.mark.timeout(seconds))
        if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            item.add_marker(pytest.mark.timeout(PROPERTY * EFFORT))


def chosen(
    items: Iterable[pytest.Item], *, which: str | None = None, engine: str | None = None, concurrency: str | None = None
) -> list[pytest.Item]:
    """The tests that the options choose."""
    wanted = [item for item in items if engine in (None, *_engines(item))]
    if concurrency:
        wanted = [item for item in wanted if item.nodeid.startswith(ALONE) == (concurrency == "alone")]
    if which in (None, ALL):
        return wanted
    rings = (CHECK, SANDBOX) if which == SANDBOX else (which,)
    wanted = [item for item in wanted if ring(item) in rings]
    others = _others(wanted) if which == ENGINES else set()
    return [item for item in wanted if item not in others]


def _others(items: Iterable[pytest.Item]) -> set[pytest.Item]:
    """The cases that are left out on this engine because another engine runs them."""
    of_languages = [item for item in items if item.nodeid.startswith(IN_TURNS)]
    each = [item for item in items if item.nodeid.startswith((EACH, *ON_ENGINES))]
    return left_out(of_languages, by_language) | left_out(each, by_case)


def _engines(item: pytest.Item) -> tuple[str, ...]:
    """The engines that a test belongs to."""
    backend = backend_of(item)
    return (
        (backend,) if backend else next((of for place, of in ON_ENGINES.items() if item.nodeid.startswith(place)), ())
    )
