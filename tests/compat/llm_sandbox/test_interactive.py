"""Names are kept between cells, magics work where IPython is installed, and an interrupted interpreter lives on."""

import threading

import pytest

from llm_sandbox_mcp import (
    InteractiveSandboxSession,
    InteractiveSettings,
    KernelType,
    LanguageNotSupportedError,
    RestrictedModule,
    SandboxTimeoutError,
    SecurityIssueSeverity,
    SecurityPolicy,
    SecurityViolationError,
    ValidationError,
)
from llm_sandbox_mcp.compat.llm_sandbox.pip_lines import without_pip


@pytest.mark.usefixtures("rich")
def test_ipython_keeps_state_and_has_its_magics() -> None:
    with InteractiveSandboxSession() as session:
        first = session.run("x = 20\ndef double(n): return 2 * n")
        assert (first.kernel, first.stdout) == (KernelType.IPYTHON, "")
        assert session.run("double(x) + 2").stdout == "Out[2]: 42\n"
        assert session.run("!echo from a shell").stdout == "from a shell\n"
        assert session.run("%%bash\necho from bash").stdout == "from bash\n"
        assert "per loop" in session.run("%timeit -n1 -r1 sum(range(10))").stdout
        assert session.run("%history -n 2").stdout.strip().endswith("double(x) + 2")
        assert session.run("import sys; print('e', file=sys.stderr)").stderr == "e\n"


@pytest.mark.usefixtures("rich")
def test_errors_are_shown_as_in_ipython_and_set_the_exit_code() -> None:
    with InteractiveSandboxSession() as session:
        failed = session.run("1 / 0")
        assert failed.exit_code == 1
        assert "----> 1" in failed.stderr and "ZeroDivisionError" in failed.stderr
        assert session.run("def f(:").exit_code == 1
        assert session.run("1").exit_code == 0
        assert session.run("import sys\nsys.exit(3)").exit_code == 3
        assert session.run("x = 1\n%reset -f").exit_code == 0
        assert "NameError" in session.run("x").stderr


@pytest.mark.usefixtures("rich")
def test_a_policy_judges_the_cell_and_not_the_code_that_runs_it() -> None:
    forbidden = [RestrictedModule(name, "", SecurityIssueSeverity.HIGH) for name in ("os", "sys", "types")]
    made = SecurityPolicy(SecurityIssueSeverity.HIGH, restricted_modules=forbidden)
    with InteractiveSandboxSession(security_policy=made) as session:
        assert session.run("%who").kernel is KernelType.IPYTHON
        with pytest.raises(SecurityViolationError, match="line 2"):
            session.run("x = 1\nimport os")
        assert session.run("x").exit_code == 1


@pytest.mark.usefixtures("rich")
def test_the_loss_of_names_is_reported() -> None:
    with InteractiveSandboxSession() as session:
        ended = session.run("x = 1\nimport os\nos._exit(3)")
        assert ended.exit_code == 3
        assert ended.stderr.endswith("variables of earlier runs are lost\n")
        assert session.run("x").exit_code == 1
        assert session.run("x = 2").notes == ()


@pytest.mark.usefixtures("rich")
def test_a_cell_that_takes_too_long_is_interrupted_and_names_are_kept() -> None:
    with InteractiveSandboxSession(timeout=20) as session:
        session.run("x = 1")
        with pytest.raises(SandboxTimeoutError):
            session.run("import time\nwhile True: time.sleep(1)", timeout=0.5)
        assert session.run("x").stdout.endswith("1\n")
        seen: list[str] = []
        session.run("print('a', flush=True)", on_stdout=seen.append)
        assert seen == ["a\n"]


@pytest.mark.usefixtures("rich")
def test_stderr_of_a_cell_arrives_while_it_runs_and_another_thread_can_interrupt_it() -> None:
    with InteractiveSandboxSession(history_size=5) as session:
        session.run("x = 1")

        def stop(text: str) -> None:
            if text == "begun\n":
                stopping.start()

        stopping = threading.Thread(target=session.interrupt)
        done = session.run(
            "import sys, time\nprint('begun', file=sys.stderr)\nwhile True: time.sleep(1)", on_stderr=stop
        )
        stopping.join()
        assert done.exit_code == 130
        assert "KeyboardInterrupt" in done.stderr
        assert session.run("x").stdout.endswith(": 1\n")


@pytest.mark.usefixtures("rich")
def test_figure_magics_and_exit_commands_of_notebooks_work() -> None:
    with InteractiveSandboxSession() as session:
        for backend in ("inline", "notebook", "qt"):
            assert session.run(f"%matplotlib {backend}\nimport matplotlib.pyplot as plt").stderr == ""
        assert session.run("%gui qt").stderr == ""
        session.run("x = 1\nplt.plot([x])\nplt.show()")
        assert len(session.get_artifacts()) == 1
        for leave in ("exit", "quit()", "exit()"):
            assert session.run(leave).exit_code == 0
        assert session.run("x").stdout.endswith(": 1\n")


@pytest.mark.usefixtures("rich")
def test_history_size_limits_the_history() -> None:
    with InteractiveSandboxSession(history_size=5) as session:
        for number in range(12):
            session.run(f"{number}")
        assert session.run("print(_12, 1 in _oh)").stdout == "11 False\n"


@pytest.mark.usefixtures("rich")
def test_pip_installs_from_outside_the_sandbox() -> None:
    with InteractiveSandboxSession() as session:
        assert session.run("%pip install -q iniconfig\nimport iniconfig").exit_code == 0
        assert session.run("!pip install iniconfig").exit_code == 0


@pytest.mark.usefixtures("library")
def test_without_ipython_the_runner_runs_the_cells_and_the_result_reports_it() -> None:
    with InteractiveSandboxSession(max_memory="100MB") as session:
        done = session.run("x = 1")
        assert done.kernel is KernelType.RUNNER
        assert session.run("x + 1").stdout == "2\n"
        advice = 'which this sandbox does not have; make the session with libraries=["ipython"], or '
        assert advice in session.run("%time x").stderr
        with pytest.raises(SandboxTimeoutError):
            session.run("while True: pass", timeout=0.5)
        assert session.run("x").stdout == "1\n"


@pytest.mark.parametrize(
    ("cell", "left", "libraries"),
    [
        ("%pip install -q a b\nx = 1", "\nx = 1", ["a", "b"]),
        ("!pip install 'a>=1'  # for c", "", ["a>=1"]),
        ("!pip3 install a&&echo b | cat", "!: &&echo b | cat", ["a"]),
        ("!python -m pip install a; ls", "!: ; ls", ["a"]),
        ("if 1:\n    %pip install a\n", "if 1:\n    pass\n", ["a"]),
        ("%%time\n!pip install a", "%%time\n", ["a"]),
        ("s = '''\n!pip install a\n'''\n!pip install b", "s = '''\n!pip install a\n'''\n", ["b"]),
        ("s = f'''{x}\n%pip install a\n'''", "s = f'''{x}\n%pip install a\n'''", []),
        ("s = '\f\x85'\n%pip install a", "s = '\f\x85'\n", ["a"]),
        ("%%bash\n!pip install a\n", "%%bash\n!pip install a\n", []),
        ("print('!pip install a')\r\n", "print('!pip install a')\r\n", []),
    ],
)
def test_pip_lines_are_taken_out_of_a_cell(cell: str, left: str, libraries: list[str]) -> None:
    assert without_pip(cell) == (left, libraries)


def test_a_pip_line_with_broken_quoting_is_an_error() -> None:
    with pytest.raises(ValidationError, match="cannot be read as a command"):
        without_pip("!pip install 'a")


def test_arguments_that_an_interactive_session_cannot_have_are_an_error() -> None:
    with pytest.raises(LanguageNotSupportedError):
        InteractiveSandboxSession(lang="go")
    with pytest.raises(ValidationError, match="kernel"):
        InteractiveSandboxSession(kernel_type="julia")
    assert InteractiveSettings(poll_interval=0.5).poll_interval == 0.5
    with pytest.raises(ValidationError, match="poll_interval is 0; give seconds above zero"):
        InteractiveSettings(poll_interval=0)
    with pytest.raises(ValidationError, match="history_size"):
        InteractiveSandboxSession(history_size=-1)
    with pytest.raises(ValidationError, match="pool"):
        InteractiveSandboxSession(pool=object())
