"""The Ruby runner, started directly; the test speaks the server's protocol."""

import os
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from .driver import HANDLERS, Runner, RunnerEnded, start


@pytest.fixture
def ruby(tmp_path: Path) -> Iterator[Runner]:
    with start("ruby", tmp_path) as runner:
        yield runner


def test_the_value_of_the_last_statement_is_the_result(ruby: Runner) -> None:
    assert ruby.run("x = 6\nx * 7").result == "42"
    assert ruby.run("nil").result is None
    assert ruby.run("'text'").result == '"text"'
    assert ruby.run("").result is None
    assert ruby.run("_").result == '"text"'
    assert ruby.run("return 5\nraise").result == "5"


def test_output_is_unchanged_complete_and_immediate(ruby: Runner) -> None:
    run = ruby.run("print 'out'; $stderr.print 'err'; nil")
    assert (run.stdout, run.stderr) == (b"out", b"err")
    assert ruby.run("system('echo child'); nil").stdout == b"child\n"
    assert ruby.run("$stdout.write((0..255).to_a.pack('C*')); nil").stdout == bytes(range(256))
    assert len(ruby.run("print 'x' * 10_000_000; nil").stdout) == 10_000_000
    ruby.send("puts 'started'; sleep")
    ruby.wait_for("started")
    ruby.interrupt()
    ruby.finish()


def test_state_is_kept_also_after_an_error(ruby: Runner) -> None:
    ruby.run(
        "require 'set'\nLIMIT = 3\n$global = 4\nkept = 5\ndef double(n) = 2 * n\nDir.mkdir('sub'); Dir.chdir('sub')\nraise"
    )
    run = ruby.run("[double(kept), LIMIT, $global, Set[1].size, File.basename(Dir.pwd)]")
    assert run.result == '[10, 3, 4, 1, "sub"]'


def test_variables_become_locals_and_constants(ruby: Runner) -> None:
    variables = {
        "text": 'q"\n\\é\U0001f600},"code":"',
        "items": [1, 2.5, None, True],
        "Limit": {"a": {"b": []}},
        "code": "x",
    }
    run = ruby.run("[text, items, Limit, code]", variables)
    assert run.result == '["q\\"\\n\\\\é\U0001f600},\\"code\\":\\"", [1, 2.5, nil, true], {"a"=>{"b"=>[]}}, "x"]'
    assert ruby.run("Limit", {"Limit": 2}).result == "2"
    assert ruby.run("Limit", {"Limit": 3}).err == ""


def test_every_character_of_the_code_arrives(ruby: Runner) -> None:
    text = 'é漢🙂 \\\\ " % \t \x01 \x7f ]} {",'
    assert ruby.run(f"print %q~{text}~; nil").out == text.replace("\\\\", "\\")
    assert ruby.run(f"'{'é' * 300_000}'.size").result == "300000"


def test_the_inside_of_a_large_object_is_the_names_of_what_it_has(ruby: Runner) -> None:
    ruby.run("class Browser; def initialize(size) = (@history, @agent = ['page'] * size, 1); end")
    assert re.fullmatch(r"#<Browser:0x\w+ @history, @agent>", ruby.run("Browser.new(1000)").result or "")
    assert re.fullmatch(r'#<Browser:0x\w+ @history=\["page"\], @agent=1>', ruby.run("Browser.new(1)").result or "")
    shown = ruby.run("class Browser; def inspect = @history.inspect; end; Browser.new(1000)").result
    assert shown == "[" + ", ".join(['"page"'] * 1000) + "]"
    assert len(ruby.run("require 'delegate'; SimpleDelegator.new(['page'] * 1000)").result or "") == len(shown)


def test_a_result_is_at_most_20000_characters(ruby: Runner) -> None:
    for code in ("'x' * 10**7", "[0] * 10**7", "(0..10**5).to_h { |i| [i, i] }"):
        result = ruby.run(code).result
        assert result is not None
        assert len(result) == 20_000
        assert result.endswith("…")


def test_text_that_utf8_cannot_represent_stays_visible(ruby: Runner) -> None:
    assert ruby.run('class Odd; def inspect = "a\\xff\\0\\"".b; end; Odd.new').result == 'a\ufffd\0"'
    assert ruby.run('class Odd; def inspect = "a\\xff"; end; Odd.new').result == "a\\xFF"


@pytest.mark.parametrize(
    "code",
    [
        "class Bad; def inspect = raise('no text'); end; Bad.new",
        "BasicObject.new",
        "raise Class.new(StandardError) { def message = raise }",
    ],
)
def test_a_value_that_cannot_be_shown_is_an_error_of_the_run(ruby: Runner, code: str) -> None:
    run = ruby.run(code)
    assert (run.status, run.exit_code, run.result) == ("error", 1, None)
    assert str(HANDLERS) not in run.err
    assert ruby.run("1").result == "1"


def test_errors_have_the_lines_of_the_code_and_no_frames_of_the_runner(ruby: Runner) -> None:
    ruby.run("def fail\n  raise TypeError, 'deep'\nend")
    run = ruby.run("\nbegin\n  fail\nrescue TypeError\n  raise KeyError, 'later'\nend")
    assert run.err == (
        "<cell 2>:5:in `rescue in <main>': later (KeyError)\n\tfrom <cell 2>:2:in `<main>'\n"
        "<cell 1>:2:in `fail': deep (TypeError)\n\tfrom <cell 2>:3:in `<main>'\n"
    )
    assert (run.status, run.exit_code, run.interrupted) == ("error", 1, False)
    assert ruby.run("'a'.upcas").err.endswith("Did you mean?  upcase\n               upcase!\n")


def test_a_syntax_error_has_the_line_of_the_code(ruby: Runner) -> None:
    run = ruby.run("x = 1\ny ) = 2")
    assert run.err.startswith("<cell 1>:2: syntax error, unexpected ')'")
    assert str(HANDLERS) not in run.err


@pytest.mark.parametrize(
    ("code", "exit_code", "err"),
    [
        ("exit 3", 3, ""),
        ("exit", 0, ""),
        ("abort 'bye'", 1, "bye\n"),
        ("raise SystemExit.new(-1)", 255, ""),
        ("Thread.new { exit 4 }; sleep", 4, ""),
    ],
)
def test_exit_gives_its_code_and_keeps_the_state(ruby: Runner, code: str, exit_code: int, err: str) -> None:
    run = ruby.run(f"kept = 1\n{code}")
    assert (run.exit_code, run.err, run.status) == (exit_code, err, "error" if exit_code else "ok")
    assert ruby.run("puts 'again'; kept").result == "1"


def test_input_is_empty_and_the_code_is_the_program(ruby: Runner) -> None:
    assert ruby.run("[gets, $stdin.read, ARGV, __FILE__ == $0]").result == '[nil, "", [], true]'


@pytest.mark.parametrize(
    "code",
    [
        "puts 'started'; loop {}",
        "puts 'started'; sleep",
        "system('echo started; exec sleep 60')",
        "puts 'started'; `sleep 60`",
        "puts 'started'; Thread.new { sleep }.join",
        "puts 'started'; IO.pipe[0].read",
        "class Slow; def inspect = (puts 'started'; sleep); end; Slow.new",
    ],
)
def test_an_interrupt_stops_the_code_and_keeps_the_state(ruby: Runner, code: str) -> None:
    ruby.run("kept = 1")
    ruby.send(code)
    ruby.wait_for("started")
    ruby.interrupt()
    run = ruby.finish()
    assert (run.status, run.exit_code, run.interrupted) == ("error", 130, True)
    assert f"<cell {ruby.cell}>:1" in run.err
    assert str(HANDLERS) not in run.err
    assert ruby.run("kept").result == "1"


def test_an_interrupt_that_the_code_handles_does_not_end_the_run(ruby: Runner) -> None:
    ruby.send("begin\n  puts 'started'; sleep\nrescue Interrupt\n  'caught'\nend")
    ruby.wait_for("started")
    ruby.interrupt()
    run = ruby.finish()
    assert (run.status, run.result, run.interrupted) == ("ok", '"caught"', False)


def test_no_interrupt_at_any_moment_loses_a_report(ruby: Runner) -> None:
    """Sends many interrupts during short runs, so that they hit every step at the end of a run.

    There is a pause between them, because without a pause the interpreter would only handle signals.
    """
    while ruby.run("defined?(sender) ? sender : nil").result is None:
        ruby.run(
            "sender = spawn('ruby', '--disable-gems', '-e', \"loop { Process.kill(:INT, #{$$}); sleep 0.0001 }\", pgroup: true)"
        )
    hits = number = 0
    while hits < 100:
        run = ruby.run("raise" if number % 3 else "puts 'x'; 1")
        assert run.exit_code in (0, 1, 130)
        hits += run.exit_code == 130
        number += 1
    while ruby.run("Process.kill(:KILL, sender); Process.wait(sender); 'ended'").result != '"ended"':
        if "ESRCH" in ruby.run("Process.kill(0, sender)").err:
            break
    assert ruby.run("1").result == "1"


@pytest.mark.parametrize("handler", ["'IGNORE'", "proc { puts 'mine' }", "proc { raise 'mine' }"])
def test_a_signal_handler_of_the_code_lasts_one_run(ruby: Runner, handler: str) -> None:
    run = ruby.run(f"trap('INT', {handler}); Process.kill('INT', $$); sleep 0.001")
    assert not run.interrupted
    ruby.interrupt()
    ruby.send("puts 'started'; sleep")
    ruby.wait_for("started")
    ruby.interrupt()
    assert ruby.finish().interrupted


@pytest.mark.parametrize(("ending", "exit_code"), [("nil", 0), ("raise 'in the child'", 1), ("exit 5", 5)])
def test_a_forked_child_never_answers(ruby: Runner, ending: str, exit_code: int) -> None:
    run = ruby.run(f"if (child = fork) then Process.wait(child) else {ending} end\n'mine'")
    assert run.result == '"mine"'
    assert ruby.run("$?.exitstatus").result == str(exit_code)
    run = ruby.run(f"fork {{ {ending} }}\nProcess.wait\n$?.exitstatus")
    assert run.result == str(exit_code)
    assert str(HANDLERS) not in run.err


def test_the_servers_streams_are_restored_for_the_next_run(ruby: Runner) -> None:
    for code in (
        "require 'stringio'; $stdout = $stderr = StringIO.new",
        "STDOUT.close; STDERR.close; STDIN.close",
        "[0, 1, 2].each { |number| IO.for_fd(number).close }",
        "(3..999).each { |number| IO.for_fd(number).close rescue nil }; [$stdout, $stderr].each(&:close)",
        "$stdout.reopen('file', 'w'); puts 'into the file'; nil",
        "$stdout.write_nonblock('')",
        "$stdout.sync = false; $stdout.set_encoding('UTF-16LE')",
        "Object.__send__(:remove_const, :STDOUT); STDOUT = nil",
    ):
        ruby.run(code)
        run = ruby.run("puts 'é out'; warn 'err'; system('echo child'); gets")
        assert (run.out, run.err, run.result) == ("é out\nchild\n", "err\n", None), code
    assert (ruby.workdir / "file").read_text() == "into the file\n"


def test_output_that_looks_like_frames_changes_nothing(ruby: Runner) -> None:
    fake = "\x1e" + "0" * 32 + ".2\n{}"
    run = ruby.run(f"print '{fake}'; $stderr.print '{fake}'; 1")
    assert (run.out, run.err, run.result) == (fake, fake, "1")


def test_code_cannot_reach_the_nonce_and_the_input(ruby: Runner) -> None:
    run = ruby.run(
        "p ENV.to_h, global_variables, TOPLEVEL_BINDING.local_variables, $0; puts File.read('/proc/self/environ')"
    )
    assert ruby.nonce not in run.out
    assert ruby.run("puts `ls /proc/self/fd`.split.size; nil").out in ("3\n", "4\n")
    assert ruby.run("local_variables - [:_]").result == "[]"


def test_files_created_and_changed_are_reported(ruby: Runner) -> None:
    (ruby.workdir / "old.txt").write_text("old")
    (ruby.workdir / "same.txt").write_text("same")
    code = (
        "require 'fileutils'\nFileUtils.mkdir_p(%w[sub/.hidden node_modules])\n"
        "%w[new.txt sub/deep.txt .dot sub/.hidden/x node_modules/y old.txt].each { |name| File.write(name, 'changed') }\n"
        "File.symlink('/etc/passwd', 'link'); Dir.chdir('/')"
    )
    assert ruby.run(code).files == ["new.txt", "old.txt", "sub/deep.txt"]
    assert ruby.run("1").files == []
    run = ruby.run(
        "Dir.chdir(ENV['SANDBOX_WORKDIR']); 250.times { |i| File.write(\"#{i}\", '') }; File.write(\"\\xff\", '')"
    )
    assert (len(run.files), run.report["files_omitted"]) == (200, 51)


def test_gems_that_were_installed_later_are_also_found_by_children(ruby: Runner, tmp_path: Path) -> None:
    assert "LoadError" in ruby.run("require 'latecomer'").err
    gem = tmp_path / "libraries/gems/latecomer-1.0.0/lib"
    gem.mkdir(parents=True)
    (gem / "latecomer.rb").write_text("module Latecomer; WHERE = 'libraries'; end")
    (tmp_path / "libraries/specifications").mkdir()
    (tmp_path / "libraries/specifications/latecomer-1.0.0.gemspec").write_text(
        "Gem::Specification.new('latecomer', '1.0.0') { |gem| gem.summary = gem.author = 'none' }"
    )
    assert ruby.run("require 'latecomer'; Latecomer::WHERE").result == '"libraries"'
    assert ruby.run("`ruby -e 'gem %q(latecomer); puts Gem.loaded_specs.size'`").status == "ok"
    assert "Could not find 'latecomer' (= 2.0)" in ruby.run("gem 'latecomer', '2.0'").err


def test_rubygems_is_loaded_only_when_it_is_needed(ruby: Runner) -> None:
    assert ruby.run("require 'json'; $LOADED_FEATURES.grep(/rubygems/)").result == "[]"
    assert ruby.run("Gem::Version.new('1.10') > Gem::Version.new('1.9')").result == "true"


def test_files_of_the_working_directory_never_shadow_the_standard_library(ruby: Runner) -> None:
    for name in ("json", "set", "helper"):
        (ruby.workdir / f"{name}.rb").write_text(f"Local = '{name}'")
    assert ruby.run("require 'json'; JSON.generate([1])").result == '"[1]"'
    assert ruby.run("require 'helper'; Local").result == '"helper"'
    assert ruby.run("require_relative 'set'").result == "true"


def test_a_last_run_ends_as_ruby_does(ruby: Runner) -> None:
    run = ruby.run(
        "at_exit { puts 'registered first'; p $!.class }\nEND { puts 'END' }\ntrap('EXIT') { puts 'trap' }\n"
        "ObjectSpace.define_finalizer(Object, proc { puts 'finalizer' })\n"
        "Thread.new { begin; sleep; ensure; puts 'thread'; end }\nThread.pass\nat_exit { at_exit { puts 'nested' } }\n"
        "raise IOError, 'error'",
        last=True,
    )
    assert run.out.split() == ["trap", "nested", "END", "registered", "first", "IOError", "thread", "finalizer"]
    assert (run.err, run.exit_code) == ("<cell 1>:8:in `<main>': error (IOError)\n", 1)
    assert not run.report["waits"]


@pytest.mark.parametrize(
    ("code", "exit_code", "out", "err"),
    [
        ("at_exit { exit 7 }", 7, "", ""),
        ("at_exit { print $!.status }\nexit 4", 4, "4", ""),
        ("at_exit { print 'end' }\nabort 'bye'", 1, "end", "bye\n"),
        ("at_exit { raise 'late' }", 1, "", "<cell 1>:1:in `block in <main>': late (RuntimeError)\n"),
        ("Thread.new { sleep }\nat_exit { p $! }", 0, "nil\n", ""),
        (
            "at_exit { print $$ == PARENT ? 'parent' : 'child' }\nPARENT = $$\nfork\nProcess.wait rescue nil",
            0,
            "childparent",
            "",
        ),
    ],
)
def test_the_exit_code_of_a_last_run_is_the_one_that_ruby_ends_with(
    ruby: Runner, code: str, exit_code: int, out: str, err: str
) -> None:
    run = ruby.run(f"$stdout.sync = true\n{code}".replace("\n", ";", 1), last=True)
    assert (run.exit_code, run.out, run.err, run.status) == (exit_code, out, err, "error" if exit_code else "ok")
    assert ruby.end_input() == 0


def test_an_interrupt_is_printed_once(ruby: Runner) -> None:
    run = ruby.run("Process.kill('INT', $$); sleep", last=True)
    assert (run.err.count("Interrupt"), run.exit_code, run.interrupted) == (1, 130, True)


def test_an_interrupt_stops_an_exit_block(ruby: Runner) -> None:
    ruby.send("at_exit { print 'next' }\nat_exit { puts 'started'; sleep }", last=True)
    ruby.wait_for("started")
    ruby.interrupt()
    run = ruby.finish()
    assert (run.out, run.exit_code, run.interrupted) == ("started\nnext", 130, True)
    assert run.err.count("Interrupt") == 1


@pytest.mark.parametrize("code", ["at_exit { }", "END { }", "trap('EXIT') { }"])
def test_a_session_says_once_that_something_waits_for_the_exit(ruby: Runner, code: str) -> None:
    assert not ruby.run("text = 'END { }'").report["waits"]
    assert ruby.run(f"kept = 1\n{code}").report["waits"]
    run = ruby.run(f"{code}\nkept")
    assert (run.report["waits"], run.result, run.out) == (False, "1", "")


MINITEST = "require 'minitest/autorun'\nclass T < Minitest::Test\n"
TEST_UNIT = "require 'test/unit'\nclass T < Test::Unit::TestCase\n"


@pytest.mark.parametrize("frame", [MINITEST, TEST_UNIT])
@pytest.mark.parametrize("asked", [{"last": True}, {}])
def test_the_outcome_of_tests_is_the_outcome_of_the_run(ruby: Runner, frame: str, asked: dict[str, bool]) -> None:
    run = ruby.run(f"{frame}  def test_bad; assert_equal 1, 2; end\nend", None, **asked)
    assert (run.status, run.exit_code, run.result, run.err) == ("error", 1, None, "")
    assert "1 failures, 0 errors" in run.out
    assert "<cell 1>:3" in run.out
    assert str(HANDLERS) not in run.out
    assert not run.report["waits"]


@pytest.mark.parametrize("frame", [MINITEST, TEST_UNIT])
def test_a_cell_of_a_session_runs_the_tests_that_it_defines(ruby: Runner, frame: str) -> None:
    assert "Finished" not in ruby.run(frame + "end").out
    run = ruby.run("class T\n  def test_a; print '<a>'; end\n  def test_b; assert false; end\nend")
    assert ("<a>" in run.out, "1 failures" in run.out, run.exit_code) == (True, True, 1)
    assert (ruby.run("6 * 7").out, ruby.run("6 * 7").result) == ("", "42")
    run = ruby.run("class T\n  def test_b; print '<b>'; end\nend")
    assert ("<a>" in run.out, "<b>" in run.out, run.exit_code, run.result) == (False, True, 0, None)
    assert "Finished" not in ruby.run("class U < T.superclass\n  def test_c; end\nend\nraise").out


def test_minitest_on_request_runs_all_tests_of_a_session(ruby: Runner) -> None:
    ruby.run(MINITEST + "  def test_a; fork { puts 'child' }; Process.wait; end\nend")
    run = ruby.run("Minitest.run")
    assert ("1 runs, 0 assertions" in run.out, run.out.count("child"), run.result) == (True, 1, "true")


def test_tests_that_the_code_itself_ran_do_not_run_again(ruby: Runner) -> None:
    for number in (1, 2):
        run = ruby.run(f"{TEST_UNIT}  def test_{number}; end\nend\nTest::Unit::AutoRunner.run")
        assert run.out.count("Finished") == 1


def test_examples_of_rspec_run_once(ruby: Runner) -> None:
    if ruby.run("require 'rspec/autorun'").status == "error":
        pytest.skip("rspec is not installed")
    run = ruby.run("RSpec.describe('a') { it { expect(1).to eq 2 } }")
    assert ("1 example, 1 failure" in run.out, run.exit_code, run.result) == (True, 1, None)
    run = ruby.run("RSpec.describe('b') { it { expect(1).to eq 1 } }")
    assert ("1 example, 0 failures" in run.out, run.exit_code, run.result) == (True, 0, None)


def test_the_last_run_of_a_session_also_runs_its_tests(ruby: Runner) -> None:
    ruby.run(MINITEST + "end\nat_exit { puts 'end' }")
    run = ruby.run("class T; def test_a = flunk; end", last=True)
    assert ("1 runs, 1 assertions, 1 failures" in run.out, run.exit_code) == (True, 1)
    assert run.out.endswith("end\n")


def test_each_cell_has_its_own_data(ruby: Runner) -> None:
    run = ruby.run("text = <<A\n__END__\nA\nputs DATA.gets, DATA.class\n__END__\né one\n((")
    assert (run.out, run.err) == ("é one\nFile\n", "")
    assert ruby.run("DATA.read\n__END__\ntwo").result == '"two"'
    assert ruby.run("DATA.rewind; DATA.gets").result == '"DATA.read\\n"'
    assert ruby.run("DATA.read\r\n__END__\r\nthree").result == '"three"'


def test_code_that_looks_at_the_stack_sees_none_of_the_runner(ruby: Runner) -> None:
    (ruby.workdir / "part.rb").write_text("WHERE = [__dir__, caller.size > 0]")
    run = ruby.run(
        "def f = [caller, caller(0, 1), caller_locations(1..1).map(&:lineno), Kernel.caller(2)]\n"
        "p f, caller, caller_locations\nbegin; raise 'x'; rescue => e; p e.backtrace, e.backtrace_locations.size; end\n"
        "require_relative 'part'\np __dir__ == Dir.pwd, WHERE[0] == Dir.pwd"
    )
    main = '"<cell 1>:2:in `<main>\'"'
    assert run.out == (
        f'[[{main}], ["<cell 1>:1:in `f\'"], [2], []]\n[]\n[]\n["<cell 1>:3:in `<main>\'"]\n1\ntrue\ntrue\n'
    )


@pytest.mark.parametrize("asked", [{"last": True}, {}])
@pytest.mark.parametrize("code", ["Process.kill('TERM', $$); sleep", "raise SignalException, 'HUP'"])
def test_a_signal_ends_the_interpreter(ruby: Runner, code: str, asked: dict[str, bool]) -> None:
    with pytest.raises(RunnerEnded, match=r"exit code -(15|1);.*'bye\\n'" if asked else r"exit code -(15|1);"):
        ruby.run(f"$stdout.sync = true; at_exit {{ puts 'bye' }}; {code}", None, **asked)


def test_bundler_finds_rubygems(ruby: Runner) -> None:
    assert (
        ruby.run("require 'bundler'; defined?(Bundler::VERSION) && Gem::Specification.respond_to?(:each)").result
        == "true"
    )


def test_the_runner_ends_with_its_input_even_if_threads_still_run(ruby: Runner) -> None:
    ruby.run("Thread.new { sleep }; at_exit { sleep }; nil")
    assert ruby.end_input() == 0


def test_a_runner_that_lost_every_descriptor_ends_with_status_71(ruby: Runner) -> None:
    with pytest.raises(RunnerEnded, match="exit code 71"):
        ruby.run("(3..1100).each { |number| IO.for_fd(number).close rescue nil }")


@pytest.mark.parametrize("example", tomllib.loads((HANDLERS / "ruby/handler.toml").read_text())["examples"])
def test_the_examples_run(ruby: Runner, example: dict[str, str]) -> None:
    run = ruby.run(example["code"])
    assert (run.status, run.err) == ("ok", "")
    assert run.result is not None


def test_an_inherited_option_of_ruby_changes_nothing(tmp_path: Path) -> None:
    with start("ruby", tmp_path, env={"RUBYLIB": os.devnull}) as ruby:
        assert ruby.run("1").result == "1"
