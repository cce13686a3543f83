"""The R runner, started directly; the test speaks the server's protocol."""

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from .driver import HANDLERS, Runner, RunnerEnded, start


@pytest.fixture
def r(tmp_path: Path) -> Iterator[Runner]:
    with start("r", tmp_path) as runner:
        yield runner


def test_the_last_visible_value_is_the_result_and_earlier_values_are_printed(r: Runner) -> None:
    run = r.run("x <- 6\nx\n'text'\nx * 7")
    assert (run.out, run.result) == ('[1] 6\n[1] "text"\n', "[1] 42")
    assert r.run("x <- 1").result is None
    assert r.run("invisible(1)").result is None
    assert r.run("NULL").result == "NULL"
    assert r.run("# nothing").result is None
    assert r.run("data.frame(a = 1:2, b = c('x', 'y'))").result == "  a b\n1 1 x\n2 2 y"


def test_values_are_printed_by_their_own_methods(r: Runner) -> None:
    r.run("print.mine <- function(x, ...) cat('<mine>\\n')\nvalue <- structure(1, class = 'mine')")
    assert r.run("value").result == "<mine>"
    r.run(
        "setClass('Point', representation(x = 'numeric'))\nsetMethod('show', 'Point', function(object) cat('a point\\n'))"
    )
    assert r.run("new('Point', x = 1)").result == "a point"
    run = r.run("print.bad <- function(x, ...) stop('no text')\nstructure(1, class = 'bad')")
    assert (run.status, run.result) == ("error", None)
    assert "no text" in run.err
    assert r.run("print('back')").out == '[1] "back"\n'


def test_output_is_unchanged_complete_and_immediate(r: Runner) -> None:
    run = r.run("cat('out'); cat('err', file = stderr()); message('message')")
    assert (run.stdout, run.stderr) == (b"out", b"errmessage\n")
    assert r.run("invisible(system('echo child'))").stdout == b"child\n"
    assert len(r.run("cat(strrep('x', 1e7))").stdout) == 10_000_000
    r.send("cat('started'); Sys.sleep(60)")
    r.wait_for("started")
    r.interrupt()
    r.finish()


def test_state_is_kept_also_after_an_error(r: Runner) -> None:
    r.run("library(tools)\nkept <- 4\ndouble <- function(n) 2 * n\ndir.create('sub'); setwd('sub')\nstop('end')")
    assert r.run("list(double(kept), file_ext('a.b'), basename(getwd())) |> unlist()").result == '[1] "8"   "b"   "sub"'
    assert r.run("ls()").result == '[1] "double" "kept"  '


def test_a_cell_is_at_the_top_level_as_a_script_is(r: Runner) -> None:
    assert r.run("if (sys.nframe() == 0L) cat('main')\nprint(sys.nframe())").out == "main[1] 0\n"
    run = r.run(
        "sys.call()\nsys.calls()\nsys.frames()\nsys.parent()\nidentical(parent.frame(), globalenv())\nsys.function()\n"
        "do.call('sys.call', list())\nidentical(sys.frame(0), globalenv())\ntraceback()\n0"
    )
    assert run.out == ("NULL\nNULL\nNULL\n[1] 0\n[1] TRUE\nNULL\nNULL\n[1] TRUE\nNo traceback available \n")
    r.run("f <- function() sys.call(sys.nframe())\ng <- function() sys.function(sys.nframe())")
    assert r.run("f()").result == "f()"
    assert r.run("identical(g(), g)").result == "[1] TRUE"
    run = r.run(
        "h <- function() list(sys.nframe(), sys.parent(), sys.call(-1), sys.call(1), length(sys.calls()),\n"
        "  sys.parents(), identical(sys.frame(1), environment()), identical(sys.frame(-1), globalenv()),\n"
        "  length(sys.frames()))\n"
        "x <- h()\nidentical(x, list(1L, 0L, NULL, quote(h()), 1L, 0L, TRUE, TRUE, 1L))"
    )
    assert run.result == "[1] TRUE"
    assert r.run("k <- function(n) if (n) k(n - 1) else c(sys.nframe(), sys.parent(), sys.parent(2))\nk(3)").result == (
        "[1] 4 3 2"
    )
    assert r.run("m <- function(kind = c('a', 'b')) match.arg(kind)\nm()").result == '[1] "a"'
    assert r.run("writeLines('print(sys.nframe() > 0L)', 'part.R')\nsource('part.R')").out == "[1] TRUE\n"
    assert r.run("eval(quote(sys.nframe() > 0L), new.env())").result == "[1] TRUE"


def test_the_last_value_is_that_of_the_last_statement(r: Runner) -> None:
    assert r.run("5\n.Last.value + 1").result == "[1] 6"
    assert r.run("x <- .Last.value * 2\n.Last.value").result == "[1] 12"
    assert r.run("ls()").result == '[1] "x"'


def test_the_arguments_are_those_of_a_script(r: Runner) -> None:
    assert r.run("basename(commandArgs())").result == (
        '[1] "R"               "--no-echo"       "--no-restore"    "--file=<cell 1>"'
    )


def test_a_value_is_printed_by_a_call_that_packages_recognize(r: Runner) -> None:
    run = r.run(
        "print.calls <- function(x, ...) str(lapply(sys.calls(), class))\ny <- structure(1, class = 'calls')\ny"
    )
    assert run.result == 'List of 2\n $ : chr "call"\n $ : chr "call"'
    assert r.run(
        "print.own <- function(x, ...) cat(identical(sys.call(1)[[1]], print))\nstructure(1, class = 'own')"
    ).result == ("TRUE")


def test_data_table_prints_a_table_as_a_script_does(r: Runner) -> None:
    if r.run("nzchar(system.file(package = 'data.table'))").result != "[1] TRUE":
        pytest.skip("data.table is not installed")
    r.run("suppressPackageStartupMessages(library(data.table))\ndt <- data.table(a = 1:2)")
    table = "   a c\n1: 1 1\n2: 2 1"
    assert r.run("dt[, c := 1]\nprint(dt)").out == f"{table}\n"
    assert r.run("dt[, c := 1]").result is None
    assert r.run("dt[, c := 1][]").result == table
    assert r.run("dt").result == table
    assert r.run("f <- function(x) x[, c := 1]\nf(dt)\ndt[]").out == ""


def test_variables_become_values_of_r(r: Runner) -> None:
    variables = {
        "text": 'q"\n\\é\U0001f600},"code":"\x01\x1f',
        "numbers": [1, 2.5, -3e4],
        "gap": ["a", None],
        "table": {"a": {"b": []}, "c": [1, "x"]},
        "none": None,
    }
    run = r.run(
        "identical(text, paste0('q\"\\n\\\\é', intToUtf8(128512), '},\"code\":\"\\001\\037'))\n"
        "identical(numbers, c(1, 2.5, -30000))\nidentical(gap, c('a', NA))\n"
        "identical(table, list(a = list(b = list()), c = list(1, 'x')))\nis.null(none)",
        variables,
    )
    assert (run.out, run.result) == ("[1] TRUE\n" * 4, "[1] TRUE")


def test_every_character_of_the_code_arrives(r: Runner) -> None:
    text = 'é漢🙂 " % \t \x01\x02\x03 \x7f ]} {", \\'
    assert r.run(f'cat(r"---({text})---")').out == text
    assert r.run("nchar('" + "é" * 300_000 + "')").result == "[1] 300000"
    run = r.run("x <- 'a\0b'")
    assert run.status == "error"
    assert "NUL" in run.err


def test_a_result_is_at_most_20000_characters(r: Runner) -> None:
    for code in ("strrep('é', 1e6)", "seq_len(1e6)", "as.list(1:20000)"):
        result = r.run(code).result
        assert result is not None
        assert len(result) == 20_000
        assert result.endswith("…")


def test_text_that_utf8_cannot_represent_stays_visible(r: Runner) -> None:
    assert r.run("'a\\xff\\001\"'").result == '[1] "a\\xff\\001\\""'
    assert r.run("print.odd <- function(x, ...) cat('a\\xff')\nstructure(1, class = 'odd')").result == "a<ff>"


@pytest.mark.parametrize(
    ("code", "err"),
    [
        ("f <- function() {\n  stop('deep')\n}\nf()", "Error in f() (from <cell 1>#2) : deep\n"),
        ("x <- 1\nx + 'a'", 'Error in x + "a" (from <cell 1>#2) : \n  non-numeric argument to binary operator\n'),
        ("\nnowhere", "Error (from <cell 1>#2): object 'nowhere' not found\n"),
        ("for (i in 1) {\n  log(-1)\n  stop('here')\n}", None),
        ("x <- 1\ny ) 2", "Error: <cell 1>:2:3: unexpected ')'\n1: x <- 1\n2: y )\n     ^\n"),
    ],
)
def test_errors_have_the_lines_of_the_code(r: Runner, code: str, err: str | None) -> None:
    run = r.run(code)
    assert (run.status, run.exit_code, run.interrupted) == ("error", 1, False)
    assert err is None or run.err == err
    assert "<cell 1>" in run.err
    assert r.run("1").result == "[1] 1"


def test_warnings_are_printed_after_their_statement(r: Runner) -> None:
    run = r.run("f <- function() warning('careful')\nf()\ncat('next', file = stderr())")
    assert run.err == "Warning message:\nIn f() : careful\nnext"
    run = r.run("for (i in 1:12) warning(i)")
    assert run.err == "There were 12 warnings (use warnings() to see them)\n"
    assert "12: 12" in (r.run("warnings()").result or "")
    assert r.run("suppressWarnings(as.integer('a'))").err == ""
    assert "careful" in r.run("tryCatch(f(), warning = conditionMessage)").result  # type: ignore[operator]
    assert "converted from warning" in r.run("options(warn = 2)\nf()").err
    assert "careful" in r.run("options(warn = 1)\nf()").err
    run = r.run("as.numeric('x')\nwarning('top')\nf()\nwarning('in call', call. = FALSE)")
    assert run.err == (
        "Warning: NAs introduced by coercion\nWarning: top\nWarning in f() : careful\nWarning: in call\n"
    )


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [
        ("quit(status = 3)", 3),
        ("q('no')", 0),
        ("base::quit(status = 4L)", 4),
        ("f <- function() { on.exit(cat('left')); q(status = 5) }; f()", 5),
    ],
)
def test_quit_gives_its_code_and_keeps_the_state(r: Runner, code: str, exit_code: int) -> None:
    run = r.run(f"kept <- 1\n{code}\ncat('no')")
    assert (run.out, run.err) == ("left" if "left" in code else "", "")
    assert (run.exit_code, run.status) == (exit_code, "error" if exit_code else "ok")
    assert r.run("kept").result == "[1] 1"


def test_input_is_empty_and_there_are_no_arguments(r: Runner) -> None:
    assert r.run("c(length(readLines('stdin')), length(commandArgs(TRUE)), interactive())").result == "[1] 0 0 0"
    assert r.run("readline('name? ')").result == '[1] ""'


@pytest.mark.parametrize("first", ["readLines(file('stdin'), 1)", "readLines('/dev/stdin')", "system('cat')", "1"])
def test_each_run_reads_its_own_input_from_its_start(r: Runner, first: str) -> None:
    for path in ("readLines('/dev/stdin')", "readLines(file('stdin'))", "scan('stdin', '', quiet = TRUE)"):
        r.run(first, {"__stdin": "earlier\nmore\n"})
        assert r.run(path, {"__stdin": "q\n"}).result == '[1] "q"', path
        assert r.run(path).result == "character(0)", path
    r.run(first, {"__stdin": "earlier\n"})
    assert r.run("read.table('/dev/stdin')[[2]]", {"__stdin": "1 2\n"}).result == "[1] 2"
    assert r.run("system('cat')", {"__stdin": "é\r\nno end"}).out == "é\r\nno end"


def test_a_last_run_ends_as_r_does(r: Runner) -> None:
    run = r.run(
        ".Last <- function() cat('last ')\nreg.finalizer(globalenv(), function(e) cat('finalizer'), onexit = TRUE)\n5",
        last=True,
    )
    assert (run.out, run.result, run.exit_code, run.report["waits"]) == ("NULL\nlast finalizer", "[1] 5", 0, False)
    assert r.end_input() == 0


@pytest.mark.parametrize(
    ("code", "exit_code", "out", "err"),
    [
        ("q(status = 3)", 3, "last ", ""),
        ("q(status = 3, runLast = FALSE)", 3, "", ""),
        ("stop('error')", 1, "", "Error (from <cell 1>#2): error\n"),
        (".Last <- function() stop('late')", 1, "", "Error in .Last() (from <cell 1>#2) : late\n"),
        (".Last <- function() q(status = 4, runLast = FALSE)", 4, "", ""),
        ("plot(1); .Last <- function() cat(names(dev.cur()))", 0, "png", ""),
    ],
)
def test_the_function_last_is_called_as_r_does(r: Runner, code: str, exit_code: int, out: str, err: str) -> None:
    run = r.run(f".Last <- function() cat('last ')\n{code}", last=True)
    assert (run.out, run.exit_code, run.err) == (out, exit_code, err)


@pytest.mark.parametrize(
    "code", [".Last <- function() cat('no')", "invisible(reg.finalizer(globalenv(), print, onexit = TRUE))"]
)
def test_a_session_says_once_that_something_waits_for_the_exit(r: Runner, code: str) -> None:
    assert not r.run("reg.finalizer(globalenv(), print)").report["waits"]
    assert r.run(code).report["waits"]
    run = r.run(f"{code}\nq()")
    assert (run.report["waits"], run.out) == (False, "")


@pytest.mark.parametrize(
    "code",
    [
        "cat('started'); repeat {}",
        "cat('started'); Sys.sleep(60)",
        "system('echo started; exec sleep 60'); cat('no')",
        "system2('sh', c('-c', shQuote('echo started; exec sleep 60'))); cat('no')",
        "system('echo started >&2; exec sleep 60', intern = TRUE); cat('no')",
        "cat('started'); tryCatch(repeat {}, error = function(e) NULL, finally = cat('')); cat('no')",
    ],
)
def test_an_interrupt_stops_the_code_and_keeps_the_state(r: Runner, code: str) -> None:
    r.run("kept <- 1")
    r.send(code)
    r.wait_for("started", "stderr" if ">&2" in code else "stdout")
    r.interrupt()
    run = r.finish()
    assert (run.status, run.exit_code, run.interrupted) == ("error", 130, True)
    assert (run.out + run.err).strip() == "started"
    assert r.run("kept").result == "[1] 1"


def test_an_interrupt_while_a_value_is_printed_leaves_no_sink(r: Runner) -> None:
    r.send(
        "print.slow <- function(x, ...) { cat('started', file = stderr()); repeat {} }\nstructure(1, class = 'slow')"
    )
    r.wait_for("started", "stderr")
    r.interrupt()
    assert r.finish().interrupted
    assert r.run("cat('seen')").out == "seen"


def test_an_interrupt_that_the_code_handles_does_not_end_the_run(r: Runner) -> None:
    r.send("tryCatch({ cat('started'); repeat {} }, interrupt = function(e) 'caught')")
    r.wait_for("started")
    r.interrupt()
    run = r.finish()
    assert (run.status, run.result, run.interrupted) == ("ok", '[1] "caught"', False)


def test_no_interrupt_at_any_moment_loses_a_report(r: Runner) -> None:
    """Sends many interrupts during short runs, so that they hit every step at the end of a run."""
    process = r.run("cat(Sys.getpid())").out
    interrupts = "import os, sys, time\nwhile True: os.kill(int(sys.argv[1]), 2); time.sleep(0.0005)"
    with subprocess.Popen([sys.executable, "-Sc", interrupts, process]) as sender:
        try:
            for number in range(60):
                assert r.run("stop()" if number % 3 else "plot(1); 1").exit_code in (0, 1, 130)
        finally:
            sender.kill()
    assert r.run("1").result == "[1] 1"


def test_a_restart_that_would_end_r_ends_only_the_run(r: Runner) -> None:
    """An interrupt does the same if it arrives while R makes the condition of another; no test can time that."""
    run = r.run("kept <- 1; f <- function() { on.exit(cat('left')); invokeRestart('abort') }; f(); cat('no')")
    assert (run.out, run.err, run.status, run.exit_code) == ("left", "", "error", 130)
    assert r.run("kept").result == "[1] 1"


def test_interrupts_between_runs_are_ignored(r: Runner) -> None:
    r.run("kept <- 1")
    for _ in range(50):
        r.interrupt()
    r.run("1")
    assert r.run("kept").result == "[1] 1"


def test_a_forked_child_never_answers(r: Runner) -> None:
    run = r.run("unlist(parallel::mclapply(1:3, function(i) i^2, mc.cores = 2))")
    assert run.result == "[1] 1 4 9"
    for ending in ("cat('')", "stop('in the child')", "quit(status = 5)"):
        run = r.run(
            f"child <- parallel:::mcfork(TRUE)\nif (inherits(child, 'masterProcess')) {{ {ending} }} else 'mine'"
        )
        assert run.status == "ok"


def test_streams_that_the_code_redirects_are_restored(r: Runner) -> None:
    for code in (
        "sink('taken.txt'); sink('more.txt'); print(1)",
        "sink(stdout(), type = 'message'); message('here')",
        "con <- file('log.txt', 'w'); sink(con, type = 'message'); message('there')",
        "closeAllConnections()",
        "con <- file('left.txt', 'w'); sink(con); close(con)",
    ):
        r.run(code)
        run = r.run("cat('out'); message('err')")
        assert (run.out, run.err) == ("out", "err\n"), code
    assert (r.workdir / "taken.txt").read_text() == ""


def test_output_that_looks_like_frames_changes_nothing(r: Runner) -> None:
    fake = "\x1e" + "0" * 32 + ".2\n{}"
    run = r.run(f"cat('{fake}'); cat('{fake}', file = stderr()); 1")
    assert (run.out, run.err, run.result) == (fake, fake, "[1] 1")


def test_code_cannot_reach_the_nonce_and_the_servers_pipes(r: Runner) -> None:
    run = r.run(
        "Sys.getenv(); ls(all.names = TRUE); commandArgs(); system('cat /proc/self/environ; ls -l /proc/self/fd')"
    )
    assert r.nonce not in run.out
    assert r.run("ls(all.names = TRUE)").result in ("character(0)", '[1] ".Random.seed"')
    listed = r.run("system('exec readlink /proc/self/fd/0 /proc/self/fd/3', intern = TRUE)")
    assert listed.result is not None
    assert "pipe" not in listed.result
    with pytest.raises(RunnerEnded, match="exit code 137"):
        r.run("tools::pskill(Sys.getpid(), 9); Sys.sleep(60)")


def test_files_created_and_changed_are_reported(r: Runner) -> None:
    (r.workdir / "old.txt").write_text("old")
    (r.workdir / "same.txt").write_text("same")
    code = (
        "dir.create('sub/.hidden', recursive = TRUE); dir.create('node_modules')\n"
        "for (name in c('new.txt', 'sub/é \"q\"', '.dot', 'sub/.hidden/x', 'node_modules/y', 'old.txt')) cat('changed', file = name)\n"
        "file.symlink('/etc/passwd', 'link'); file.symlink('/etc', 'folder'); setwd('/')"
    )
    assert r.run(code).files == ["new.txt", "old.txt", 'sub/é "q"']
    assert r.run("1").files == []
    run = r.run(
        "setwd(Sys.getenv('SANDBOX_WORKDIR')); for (i in 1:250) cat('', file = paste0(i)); file.create('a\\xff')"
    )
    assert (len(run.files), run.report["files_omitted"]) == (200, 50)


def test_a_deleted_working_directory_breaks_nothing(r: Runner) -> None:
    assert r.run("unlink(Sys.getenv('SANDBOX_WORKDIR'), recursive = TRUE)").files == []
    assert r.run("1").result == "[1] 1"


def test_every_drawn_page_is_a_figure_and_an_empty_device_is_not(r: Runner, tmp_path: Path) -> None:
    run = r.run("plot(1)\nplot(2)\ndev.new(width = 3, height = 2)\nplot(3)")
    assert run.report["figures"] == ["figure-1.png", "figure-2.png", "figure-3.png"]
    assert run.files == []
    for name, size in (("figure-1.png", (840, 600)), ("figure-3.png", (360, 240))):
        head = (tmp_path / "figures" / name).read_bytes()[:24]
        assert (int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big")) == size
    assert r.run("dev.new(); invisible(dev.off())").report["figures"] == []
    assert r.run("1").report["figures"] == []
    assert r.run("plot(4); stop('after')").report["figures"] == ["figure-4.png"]
    assert not (r.workdir / "Rplots.pdf").exists()


def test_only_new_files_are_figures_of_a_run(r: Runner) -> None:
    r.run("folder <- Sys.getenv('SANDBOX_FIGURES')\ninvisible(file.create(file.path(folder, 'a.svg')))")
    run = r.run(
        "made <- file.create(paste0(folder, '/', c('b10.svg', 'b9.svg', '.hidden', 'x\\xff')))\n"
        "dir.create(file.path(folder, 'more'))\nmade <- file.symlink('/etc/passwd', file.path(folder, 'link'))\n"
        "gone <- file.remove(file.path(folder, 'a.svg'))"
    )
    assert (run.err, run.report["figures"]) == ("", ["b9.svg", "b10.svg"])
    run = r.run("unlink(folder, recursive = TRUE)")
    assert (run.status, run.report["figures"]) == ("ok", [])


def test_pages_of_a_device_that_the_code_opened_are_files_and_not_figures(r: Runner) -> None:
    run = r.run("png('a.png'); plot(1); invisible(dev.off()); pdf('b.pdf'); plot(1)")
    assert (run.files, run.report["figures"]) == (["a.png", "b.pdf"], [])
    assert (r.workdir / "b.pdf").read_bytes().rstrip().endswith(b"%%EOF")


@pytest.mark.parametrize(
    ("package", "code"),
    [
        ("lattice", "lattice::xyplot(mpg ~ wt, mtcars)"),
        ("ggplot2", "library(ggplot2)\nggplot(mtcars, aes(wt, mpg)) + geom_point()"),
        ("ggplot2", "library(ggplot2)\nplot <- ggplot(mtcars, aes(wt, mpg)) + geom_point()\nplot\ncat('done')"),
    ],
)
def test_plots_that_are_values_are_drawn_when_they_are_shown(r: Runner, package: str, code: str) -> None:
    if r.run(f"nzchar(system.file(package = '{package}'))").result != "[1] TRUE":
        pytest.skip(f"{package} is not installed")
    run = r.run(code)
    assert (run.status, run.result, run.report["figures"]) == ("ok", None, ["figure-1.png"])


def test_a_widget_becomes_a_page_that_needs_no_other_files(r: Runner, tmp_path: Path) -> None:
    if r.run("nzchar(system.file(package = 'htmlwidgets'))").result != "[1] TRUE":
        pytest.skip("htmlwidgets is not installed")
    run = r.run("htmlwidgets::createWidget('none', list(a = 'é'), package = 'htmlwidgets')")
    assert run.report["figures"] == ["figure-1.html"]
    page = (tmp_path / "figures/figure-1.html").read_text()
    assert "é" in page
    assert "HTMLWidgets" in page
    assert not re.search(r'(src|href)="(?!data:)', page)


class Page(HTMLParser):
    """A page as a browser parses it: the addresses that it would fetch, and the texts and types of its scripts."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.scripts: list[tuple[str, str]] = []
        self._type: str | None = None
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.fetched += [value for key in ("src", "href") if (value := given.get(key))]
        self._type = (given.get("type") or "") if tag == "script" else None

    def handle_data(self, data: str) -> None:
        if self._type is not None:
            self.scripts.append((self._type, data))

    def handle_endtag(self, tag: str) -> None:
        self._type = None


@pytest.mark.parametrize(
    ("code", "figures"),
    [
        ("plot_ly(mtcars, x = ~wt, y = ~mpg, type = 'scatter', mode = 'markers')", ["figure-1.html"]),
        ("p <- ggplotly(ggplot(mtcars, aes(wt, mpg)) + geom_point())\np\ncat('')", ["figure-1.html"]),
        ("for (y in c('mpg', 'hp')) print(plot_ly(x = mtcars$wt, y = mtcars[[y]], type = 'bar'))", None),
    ],
)
def test_a_plotly_figure_becomes_a_page_that_needs_no_network(
    r: Runner, tmp_path: Path, code: str, figures: list[str] | None
) -> None:
    if r.run("nzchar(system.file(package = 'plotly'))").result != "[1] TRUE":
        pytest.skip("plotly is not installed")
    assert r.run("suppressPackageStartupMessages(library(plotly))").report["figures"] == []
    run = r.run(code)
    assert (run.status, run.result, run.out, run.err, run.files) == ("ok", None, "", "", [])
    assert run.report["figures"] == (figures or ["figure-1.html", "figure-2.html"])
    page = Page(tmp_path / "figures/figure-1.html")
    assert page.fetched == []
    [library] = [text for _, text in page.scripts if "plotly.js v" in text]
    [figure] = [json.loads(text)["x"] for kind, text in page.scripts if kind == "application/json"]
    assert len(figure["data"][0]["x"]) == 32
    names = [button for button in figure["config"]["modeBarButtonsToAdd"] if isinstance(button, str)]
    # Version 1 of the script does not accept the names of buttons: it raises an error and draws nothing.
    assert bool(names) is ("plotly.js v1." not in library)


def test_an_error_after_a_plotly_figure_has_the_line_of_the_code(r: Runner) -> None:
    if r.run("nzchar(system.file(package = 'plotly'))").result != "[1] TRUE":
        pytest.skip("plotly is not installed")
    run = r.run("print(plotly::plot_ly(x = 1:3, y = 1:3, type = 'bar'))\n\nstop('after')")
    assert "<cell 2>#3" in run.err
    assert run.report["figures"] == ["figure-1.html"]


def test_libraries_installed_later_are_found(r: Runner, tmp_path: Path) -> None:
    (tmp_path / "libraries").rmdir()
    assert r.run("'libraries' %in% basename(.libPaths())").result == "[1] FALSE"
    (tmp_path / "libraries").mkdir()
    assert r.run("'libraries' %in% basename(.libPaths())[1]").result == "[1] TRUE"


@pytest.mark.parametrize(
    "code",
    [
        "f <- function(n) f(n + 1); f(1)",
        "x <- numeric(1e15)",
        "stop(structure(class = c('own', 'error', 'condition'), list()))",
    ],
)
def test_any_error_is_reported_and_the_runner_continues(r: Runner, code: str) -> None:
    r.run("kept <- 1")
    run = r.run(code)
    assert run.status == "error"
    assert run.err.startswith("Error")
    assert r.run("kept").result == "[1] 1"


def test_functions_that_the_code_redefines_do_not_affect_the_runner(r: Runner) -> None:
    r.run("c <- function(...) stop('mine'); paste <- print <- answer <- json_quote <- file <- c; T <- FALSE")
    assert r.run("1 + 1").result == "[1] 2"


def test_the_runner_ends_with_its_input(r: Runner) -> None:
    r.run("1")
    assert r.end_input() == 0


@pytest.mark.parametrize("example", tomllib.loads((HANDLERS / "r/handler.toml").read_text())["examples"])
def test_the_examples_run(r: Runner, example: dict[str, str]) -> None:
    run = r.run(example["code"])
    assert (run.status, run.err) == ("ok", "")
    assert run.result is not None


def test_code_can_have_the_line_ends_of_windows(r: Runner) -> None:
    assert r.run("f <- function(a) {\r\n a + 1 }\r\ncat(f(1), '\\n')\r\n").out == "2 \n"
