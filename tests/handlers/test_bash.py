"""The Bash runner, started directly; the test speaks the server's protocol."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from .driver import Runner, RunnerEnded, start


@pytest.fixture
def bash(tmp_path: Path) -> Iterator[Runner]:
    with start("bash", tmp_path) as runner:
        yield runner


def test_it_starts_where_an_earlier_start_was_cut_off(tmp_path: Path) -> None:
    (tmp_path / "figures").mkdir()
    for name in ("script.sh", "answers"):
        os.mkfifo(tmp_path / "figures" / name)
    with start("bash", tmp_path) as bash:
        assert bash.run("echo hello").out == "hello\n"


def test_it_prints_and_has_no_result(bash: Runner) -> None:
    run = bash.run("echo hello")
    assert (run.out, run.err, run.status, run.exit_code, run.result) == ("hello\n", "", "ok", 0, None)


def test_variables_functions_and_the_working_directory_are_kept(bash: Runner) -> None:
    bash.run("x=1; declare -A map=([a]=2); f() { echo $x; }; mkdir sub; cd sub")
    run = bash.run('f; echo "${map[a]}"; basename "$PWD"')
    assert run.out == "1\n2\nsub\n"


def test_aliases_are_kept(bash: Runner) -> None:
    bash.run("shopt -s expand_aliases\nalias greet='echo hello'")
    assert bash.run("greet").out == "hello\n"


def test_an_error_has_the_line_of_the_code(bash: Runner) -> None:
    run = bash.run("true\ntrue\nno-such-command")
    assert "line 3: no-such-command" in run.err
    assert "runner" not in run.err
    assert (run.status, run.exit_code) == ("error", 127)


def test_a_syntax_error_has_the_line_of_the_code(bash: Runner) -> None:
    run = bash.run("echo before\nif; then")
    assert "line 2: syntax error" in run.err
    assert run.status == "error"
    assert bash.run("echo after").out == "after\n"


@pytest.mark.parametrize("code", ["exit 3", "f() { exit 3; echo no; }; for i in 1 2; do f; done; echo no", "(exit 3)"])
def test_exit_ends_the_run_and_keeps_the_state(bash: Runner, code: str) -> None:
    bash.run("x=kept")
    run = bash.run(code)
    assert (run.out, run.status, run.exit_code, run.interrupted) == ("", "error", 3, False)
    assert bash.run("echo $x").out == "kept\n"


def test_errexit_ends_the_run_and_keeps_the_state(bash: Runner) -> None:
    run = bash.run("set -euo pipefail\nx=kept\nf() { false; echo no; }\nf\necho no")
    assert (run.out, run.status, run.exit_code) == ("", "error", 1)
    run = bash.run("false; echo $x $unset")
    assert run.out == "kept\n"


def test_an_unset_variable_under_nounset_is_reported_before_the_shell_ends(bash: Runner) -> None:
    run = bash.run("set -u; echo $missing")
    assert (run.status, run.report["ended"]) == ("error", True)
    assert "missing: unbound variable" in run.err
    with pytest.raises((RunnerEnded, BrokenPipeError)):
        bash.run("echo again")


@pytest.mark.parametrize(
    ("code", "exit_code", "out"),
    [
        ("exec sh -c 'echo out; echo x >late; exit 5'; echo no", 5, "out\n"),
        ("exec true", 0, ""),
        ("trap 'echo bye' EXIT; builtin exit 3", 3, "bye\n"),
        ("kill -TERM $$; echo no", 143, ""),
        ("kill -KILL $$", 137, ""),
    ],
)
def test_how_the_shell_ended_is_reported(bash: Runner, code: str, exit_code: int, out: str) -> None:
    run = bash.run(f"echo y >file; {code}")
    assert (run.exit_code, run.out, run.err, run.report.get("ended")) == (exit_code, out, "", True)
    assert run.files == ["file", *["late"] * ("late" in code)]


def test_every_character_of_the_code_arrives(bash: Runner) -> None:
    text = 'é漢🙂 \\ \\\\ " \' % $ ` \t & \\n \x01 \x7f ]} {",'
    run = bash.run(f"cat <<'END'\n{text}\nEND")
    assert run.out == text + "\n"


def test_long_code_arrives(bash: Runner) -> None:
    text = 'line with "quotes"\n' * 5000
    assert bash.run(f"cat <<'END'\n{text}END").out == text


def test_variables_become_strings(bash: Runner) -> None:
    text = 'a "b" \\ \n },"code":"x"} é'
    values = {"s": text, "n": 1.5, "t": True, "z": None, "o": {"a": [1, {"b": '"}]'}]}, "l": [], "code": "c", "last": 2}
    run = bash.run('printf "%s|" "$s" "$n" "$t" "$z" "$o" "$l" "$code" "$last"', values)
    assert run.out == text + '|1.5|true||{"a":[1,{"b":"\\"}]"}]}|[]|c|2|'


def test_standard_input_is_empty(bash: Runner) -> None:
    assert bash.run("cat; read x; echo $?").out == "1\n"


def test_large_output_is_complete_before_the_frame(bash: Runner) -> None:
    assert len(bash.run("head -c 10000000 /dev/zero").stdout) == 10_000_000


def test_output_without_a_newline_is_kept_as_it_is(bash: Runner) -> None:
    assert bash.run("printf a; printf b >&2").stdout == b"a"
    assert bash.run(r"printf '\xff\x1e'").stdout == b"\xff\x1e"


@pytest.mark.parametrize(
    "loop",
    [
        "while :; do :; done",
        "f() { while :; do g; done; echo no; }; g() { :; }; f; echo no",
        "sleep 100; echo no",
        "sleep 100 | cat; echo no",
        "y=$(sleep 100); echo no",
        "(while :; do :; done); echo no",
        "sleep 100 & wait; echo no",
    ],
)
def test_an_interrupt_stops_the_code_and_keeps_the_state(bash: Runner, loop: str) -> None:
    bash.send(f"x=kept\necho ready\n{loop}")
    bash.wait_for("ready\n")
    bash.interrupt()
    run = bash.finish()
    assert (run.out, run.status, run.exit_code, run.interrupted) == ("ready\n", "error", 130, True)
    assert bash.run("f() { echo $x; }; f").out == "kept\n"


def test_an_interrupt_between_runs_is_ignored(bash: Runner) -> None:
    bash.run("x=1")
    bash.interrupt()
    run = bash.run("echo $x")
    assert (run.out, run.interrupted) == ("1\n", False)


def test_files_created_and_changed_are_reported_once(bash: Runner) -> None:
    bash.run("true")
    run = bash.run(
        "mkdir -p d node_modules; echo 1 >a; echo 1 >d/b; echo 1 >.hidden; echo 1 >node_modules/c; ln -s a link"
    )
    assert run.files == ["a", "d/b"]
    assert bash.run("true").files == []
    assert bash.run("echo 2 >>a").files == ["a"]
    assert bash.run("cat a").files == []


def test_a_file_copied_in_between_runs_does_not_belong_to_the_next_run(bash: Runner) -> None:
    bash.run("true")
    (bash.workdir / "copied").write_text("1")
    assert bash.run("true").files == []


def test_names_of_files_are_escaped(bash: Runner) -> None:
    run = bash.run(r"""touch 'a "b" \ é' $'tab\tnewline\n' $'\xff'; mkdir 'with space'; touch 'with space/&'""")
    assert run.files == sorted(['a "b" \\ é', "tab\tnewline\n", "with space/&"])


def test_at_most_two_hundred_files_are_named(bash: Runner) -> None:
    run = bash.run("touch f{1..250}")
    assert (len(run.files), run.report["files_omitted"]) == (200, 50)


def test_figures_are_reported_by_name(bash: Runner) -> None:
    assert bash.run('echo x > "$SANDBOX_FIGURES/plot.png"').report["figures"] == ["plot.png"]


def test_unusual_shell_options_do_not_change_the_report(bash: Runner) -> None:
    bash.run("IFS=,x; shopt -s dotglob failglob nocasematch; set -fxC; GLOBIGNORE='*'")
    run = bash.run("echo 1 >a; echo 1 >.hidden")
    assert (run.files, run.err) == (["a"], "")


def test_a_child_never_answers(bash: Runner) -> None:
    run = bash.run("(echo child; exit 4) & wait $!; echo parent")
    assert run.out == "child\nparent\n"
    run = bash.run("while :; do echo noise; done &")
    assert run.status == "ok"
    assert bash.run("kill $!").status == "ok"


def test_a_frame_with_another_nonce_is_output(bash: Runner) -> None:
    frame = "\x1e" + "0" * 32 + ".2\n{}"
    assert bash.run(f"printf '%s' '{frame}'").out == frame


@pytest.mark.parametrize("code", ["exec >/dev/null 2>&1; echo lost", "exec 0<&- 1>&- 2>&-"])
def test_code_that_redirects_its_streams_is_answered(bash: Runner, code: str) -> None:
    run = bash.run(code)
    assert run.out == ""
    assert run.status == "ok"
    assert bash.run("x=1; [[ $x == 1 ]]").status == "ok"


def test_a_run_that_closes_every_descriptor_ends(bash: Runner) -> None:
    assert bash.run('for i in {0..255}; do eval "exec $i>&-"; done').exit_code == 0


def test_redefined_builtins_do_not_change_the_protocol(bash: Runner) -> None:
    names = "printf read eval echo source trap shopt set unset declare disown local return"
    run = bash.run(f'for name in {names}; do builtin eval "$name() {{ :; }}"; done; builtin echo ok')
    assert run.out == "ok\n"
    assert bash.run("builtin echo still").out == "still\n"


def test_the_nonce_is_in_no_variable_and_no_descriptor(bash: Runner) -> None:
    run = bash.run("set; declare -p; env; export -p; ls -l /proc/self/fd /proc/$$/fd")
    assert bash.nonce not in run.out
    assert "script.sh" in run.out


def test_the_runner_ends_with_its_input(bash: Runner) -> None:
    bash.run("true")
    assert bash.end_input() == 0


def test_an_inherited_variable_cannot_run_code(tmp_path: Path) -> None:
    with start("bash", tmp_path, env={"BASH_ENV": os.devnull}) as bash:
        assert bash.run("echo ok").out == "ok\n"


ENDED = """{end}; echo no
if {end}; then echo no; fi; echo no
f() {{ {end}; echo no; }}; f; echo no
f() {{ while :; do {{ {end}; echo no; }} >>log; done; echo no; }}; for i in 1 2; do f; {{ echo no; }} >kept; done; echo no
for i in 1 2; do if true; then {end}; fi; {{ echo no; }} >kept; done; echo no
for ((i = 0; ; i++)); do {end}; echo no; done; echo no
while :; do while :; do {end}; done; done; echo no
until false; do {end}; done; echo no
case x in x) {end} ;; esac; echo no
select x in a b; do {end}; done <<<1 >log 2>&1; echo no
{{ {end}; }} >log; echo no >kept
eval '{end}; echo no'; echo no
eval 'for i in 1 2; do {end}; echo no; done'; echo no
source ./file; echo no
true && {end} || echo no; echo no
! {{ {end}; echo no; }}; echo no
shopt -s lastpipe; true | {{ {end}; echo no; }}; echo no
trap '{end}; echo no' USR1; kill -USR1 $$; echo no
x=$({end}; echo no) || {end}; echo no
[[ -n x ]] && {end}; echo no""".splitlines()


@pytest.mark.parametrize("form", ENDED)
def test_code_that_ends_early_leaves_whatever_it_is_in(bash: Runner, form: str) -> None:
    (bash.workdir / "kept").write_text("kept\n")
    in_condition = ("if {end}", "|| {end}", "&& {end} ||", "! {{", "select")
    for end, code in (("exit 3", 3), ("(exit 4)", 4), ("kill -INT $$", 130)):
        if code == 4 and any(part in form for part in in_condition):
            continue  # errors do not end these, or only after a line end
        (bash.workdir / "file").write_text(f"f() {{ {end}; echo no; }}; f; echo no")
        run = bash.run(f"set -e; k={code}; {form.format(end=end)}\necho no\n{{ echo no; }} >kept")
        assert (run.out, run.exit_code) == ("", code), run.err
        assert bash.run("cat kept; echo $k").out == f"kept\n{code}\n"
        (bash.workdir / "log").unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("code", "out", "err"),
    [
        ("set -x; echo hi; exit 3", "hi\n", "+ echo hi\n+ exit 3\n"),
        ("set -ex; echo hi; false; echo no", "hi\n", "+ echo hi\n+ false\n"),
        (
            "set -x; trap 'echo x' EXIT; trap - EXIT; trap 'echo u' USR1; kill -USR1 0; false",
            "u\n",
            "+ trap 'echo x' EXIT\n+ trap - EXIT\n+ trap 'echo u' USR1\n+ kill -USR1 0\n++ echo u\n+ false\n",
        ),
        ("trap 'echo E; exit 1' ERR; f() { false; echo f; }; f; x=$(false; echo v); echo $x", "f\nv\n", ""),
        ("set -e; trap 'echo E' ERR; f() { false; echo no; }; f; echo no", "", ""),
        ("set -Eeu; trap 'echo \"E$? $LINENO\"' ERR\nf() { false; }\nf", "E1 2\n", ""),
        (
            "trap 'a\nb' ERR; trap c USR1; trap; trap -p ERR; trap - ERR USR1; trap",
            "trap -- 'c' SIGUSR1\n" + 2 * "trap -- 'a\nb' ERR\n",
            "",
        ),
        ("trap 'echo D' DEBUG; echo a; trap - DEBUG; echo b", "D\na\nD\nb\n", ""),
        ("trap '[[ $BASH_COMMAND != *bad* ]] || exit 9' DEBUG; echo ok; echo bad >bad; echo no", "ok\n", ""),
        ("f() { trap 'echo ret' RETURN; echo in; }; f; trap - RETURN; g() { :; }; g", "in\nret\n", ""),
        ("trap x NOSUCH 2>/dev/null; echo $?; trap x USR1; echo $?", "1\n0\n", ""),
        ("[[ -v status ]] || readonly status=2; exit 3", "", ""),
        ("set -- -v -n 3; while getopts vn: o; do echo $o; done", "v\nn\n", ""),
        ("exit 1 2; echo $?; exit 08; echo no", "1\n", "./script.sh: line 1: exit: too many arguments\n"),
    ],
)
def test_traps_traces_and_options_are_those_of_a_script(bash: Runner, code: str, out: str, err: str) -> None:
    code = code.replace("kill -USR1 0", "kill -USR1 $BASHPID")
    for _ in range(2):
        run = bash.run(code)
        assert (run.out, re.sub(r"USR1 \d+", "USR1 0", run.err)) == (out, err)
    assert not (bash.workdir / "bad").exists()


def test_the_next_run_has_the_usual_output_again(bash: Runner) -> None:
    assert bash.run("exec > >(tee log) 2>&1; echo one; nosuch >&2").out.startswith("one\n./script.sh: line 1: nosuch: ")
    run = bash.run("echo two; cat log >&2")
    assert (run.out, run.err.count("one\n")) == ("two\n", 1)
    bash.run("exec 1>&- 2>&-")
    assert bash.run("echo three").out == "three\n"


@pytest.mark.parametrize(
    "code", ["echo $(date | tr 0-9 x", "diff <(echo a <(echo b)", "echo 'a", "if true; then", "x=(1 2"]
)
def test_what_is_not_closed_is_an_error_that_keeps_the_state(bash: Runner, code: str) -> None:
    run = bash.run(f"x=kept; echo before\n{code}\necho no")
    assert (run.out, run.status) == ("before\n", "error")
    assert "unexpected EOF" in run.err or "unexpected end of file" in run.err
    bash.run("x=kept")
    assert bash.run("echo $x").out == "kept\n"


def test_input_that_is_not_read_is_no_error(bash: Runner) -> None:
    run = bash.run("read -r first; echo $first", {"__stdin": "first\n" + "x" * 500_000})
    assert (run.out, run.err) == ("first\n", "")
