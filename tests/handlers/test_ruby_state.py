"""What a Ruby session has is saved, and made again in another sandbox."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from .states import Pair, pair

pytestmark = pytest.mark.anyio


@pytest.fixture
async def rubies(anyio_backend: str, folder: Path) -> AsyncIterator[Pair]:
    async with pair("ruby", folder) as opened:
        yield opened


async def test_values_of_all_kinds_are_kept_and_what_is_shared_is_shared(rubies: Pair) -> None:
    await rubies.run("""require 'set'
require 'json'
number = 3; text = "é\\xff"; list = [1, 2.5, nil, :a]; same = list; inside = {list: list, set: Set[1]}
$global = list; @main = list
LIMIT = list
range = (1..3); at = Time.at(0.5); big = 2**100; frozen = 'x'.freeze; again = /a+/; rational = 1r/3
ENV['GIVEN'] = 'yes'; ENV.delete('LANG')
Dir.mkdir('sub'); Dir.chdir('sub'); $LOAD_PATH.unshift('/sandbox/lib')
nil""")
    saved, opened = await rubies.move()
    assert (saved.lost, saved.notes, opened.lost) == ({}, [], {})
    assert opened.notes == ["the working directory /sandbox/sub does not exist"]
    assert saved.kept == opened.kept
    after = await rubies.then(
        "[number, text.bytes.last, list, same.equal?(list), inside[:list].equal?(list), inside[:set].class,"
        " $global.equal?(list), @main.equal?(list), LIMIT.equal?(list), range, at.to_f, big == 2**100, frozen,"
        " again, rational, ENV['GIVEN'], ENV['LANG'], $LOAD_PATH.first, JSON.generate([1])]"
    )
    assert after.result == (
        '[3, 255, [1, 2.5, nil, :a], true, true, Set, true, true, true, 1..3, 0.5, true, "x", /a+/, (1/3), "yes", nil,'
        ' "/sandbox/lib", "[1]"]'
    )


async def test_definitions_are_made_again_without_other_statements(rubies: Pair) -> None:
    await rubies.run("""File.write('/sandbox/ran', 'once')
BASE = Class.new(StandardError)
SIZE = 3
class Box
  LIMIT = SIZE * 2
  @@made = 0
  attr_accessor :inside
  def self.made = @@made
  def initialize(inside); @inside = inside; @@made += 1; end
  class Small < Box; end
  class << self; attr_accessor :named; end
end
Box.named = 'boxes'
module Loud; def loud = "#{self}!"; end
String.include(Loud)
class Failed < BASE; end
Point = Struct.new(:x, :y) do
  def sum = x + y
end
def double(n) = n * $factor
private def hidden = 1
def self.own = :own
$factor = 2
first = Box.new(Box::Small.new(1))
point = Point.new(1, 2)
File.write('/sandbox/ran', 'once')""")
    await rubies.run("class Box; def extra = 'extra'; end")
    saved, opened = await rubies.move()
    assert (saved.lost, opened.lost) == ({}, {})
    after = await rubies.then(
        "[File.exist?('/sandbox/ran'), first.inside.class, Box.made, Box.named, Box::LIMIT, 'a'.loud, point.sum, double(4),"
        " own, hidden, first.extra, Failed.superclass, Box.new(1) && Box.made]"
    )
    assert after.result == '[false, Box::Small, 2, "boxes", 6, "a!", 3, 8, :own, 1, "extra", BASE, 3]'
    shown = await rubies.second.run("class Box\n  def fails\n    raise 'x'\n  end\nend\nnil")
    assert shown.status == "ok"


async def test_blocks_that_use_only_the_session_are_kept(rubies: Pair) -> None:
    await rubies.run("""count = 1
add = ->(n) do
  count += n
end
twice = lambda { |n| n * 2 }
plain = proc { |n| [n, count] }
def inner(n) = ->(m) { n + m }
closed = inner(1)
a = -> { 1 }; b = -> { 2 }
sent = :upcase.to_proc
nil""")
    saved, opened = await rubies.move()
    assert {name: kind for name, (kind, _) in saved.lost.items()} == dict.fromkeys(["closed", "a", "b", "sent"], "Proc")
    assert saved.lost["closed"][1] == "it uses local variables that are not those of the session"
    assert saved.lost["a"][1] == "its source is not unique in its line"
    assert opened.lost == {}
    assert (await rubies.then("add.(4); [count, twice.(3), plain.(1), add.lambda?]")).result == "[5, 6, [1, 5], true]"


async def test_what_cannot_be_saved_is_named(rubies: Pair) -> None:
    await rubies.run("""file = File.open('x', 'w')
thread = Thread.new { sleep }
lock = Mutex.new
steps = [1].each
fiber = Fiber.new { 1 }
single = Object.new; def single.own = 1
table = Hash.new { |hash, key| hash[key] = 1 }
unnamed = Class.new
held = [File.open('y', 'w')]
bound = method(:puts)
here = binding
kept = 1
nil""")
    saved, opened = await rubies.move()
    assert {name: kind for name, (kind, _) in saved.lost.items()} == {
        "file": "File",
        "thread": "Thread",
        "lock": "Thread::Mutex",
        "steps": "Enumerator",
        "fiber": "Fiber",
        "single": "Object",
        "table": "Hash",
        "unnamed": "Class",
        "held": "Array",
        "bound": "Method",
        "here": "Binding",
    }
    assert saved.lost["file"][1] == "an open file does not move"
    assert "singleton" in saved.lost["single"][1]
    assert (saved.kept, opened.kept, opened.lost) == (1, 1, {})
    assert (await rubies.then("[kept, defined?(file) && file]")).result == "[1, nil]"
    assert (await rubies.run("[thread.alive?, file.closed?]")).result == "[true, false]"


async def test_what_runs_is_named(rubies: Pair) -> None:
    await rubies.run("Thread.new { sleep }.name = 'reader'; spawn('sleep 60'); nil")
    saved = await rubies.save()
    assert saved.lost == {
        "reader": ("Thread", "a thread does not move"),
        "sleep 60": ("process", "a process does not move"),
    }


async def test_definitions_inside_of_other_statements_are_named(rubies: Pair) -> None:
    await rubies.run("if true\n  class Hidden; end\n  def unseen = 1\nend\nnil")
    saved = await rubies.save()
    reason = "its source is not a statement of the top level"
    assert saved.lost == {"Hidden": ("Class", reason), "unseen": ("Method", reason)}


async def test_another_version_is_noted(rubies: Pair) -> None:
    await rubies.run("a = 1; nil")
    await rubies.save()
    await rubies.run(
        "state = Marshal.load(File.binread('saved/state'))\nstate[:version] = '2.7.0'\n"
        "File.binwrite('saved/state', Marshal.dump(state)); nil"
    )
    await rubies.carry()
    assert "saved by Ruby 2.7.0, opened by 3." in (await rubies.open()).notes[0]


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("raise 'no'", "RuntimeError: no"),
        ("exit!(3)", "saving it ends the interpreter"),
        ("exit(3)", "SystemExit: exit"),
        ("Process.kill(:KILL, Process.pid)", "saving it ends the interpreter"),
        ("sleep", "saving it does not end"),
        ("loop { puts 'x' * 100_000 }", "saving it does not end"),
        ("$kept = 2; raise Exception", "Exception: Exception"),
        ("'x' * 1_000_000_000", None),
        ("deep = []; 100_000.times { deep = [deep] }; deep", None),
    ],
)
async def test_a_hostile_object_costs_only_itself(rubies: Pair, code: str, reason: str | None) -> None:
    await rubies.run(
        f"class Bad; def marshal_dump; {code}; end; def marshal_load(x); end; end\n$kept = 1; bad = Bad.new; nil"
    )
    saved, _ = await rubies.move()
    assert list(saved.lost) == ["bad"]
    assert saved.lost["bad"][0] == "Bad"
    assert reason is None or saved.lost["bad"][1] == reason
    assert (await rubies.then("$kept")).result == "1"
    assert (await rubies.run("[$kept, bad.class]")).result == "[1, Bad]"


async def test_what_ends_the_interpreter_is_not_opened_again(rubies: Pair) -> None:
    await rubies.run("""class Deadly; def marshal_dump = 1; def marshal_load(_) = Process.kill(:KILL, Process.pid); end
class Broken; def marshal_dump = 1; def marshal_load(_) = raise('no'); end
a = 1; bad = Deadly.new; broken = Broken.new; c = 3; nil""")
    await rubies.save()
    await rubies.carry()
    for _ in range(2):
        ended = await rubies.second.run(
            "::Kernel.require('/opt/handlers/ruby/state.rb'); ::Sandbox::State.open('/sandbox/saved')"
        )
        assert ended.session_state == "fresh"
    opened = await rubies.open()
    assert opened.lost == {
        "bad": ("local", "opening it ended the interpreter"),
        "broken": ("local", "RuntimeError: no"),
    }
    assert (await rubies.then("[a, bad, c, Deadly]")).result == "[1, nil, 3, Deadly]"


async def test_whatever_code_has_replaced(rubies: Pair) -> None:
    await rubies.run("""class Empty < BasicObject; end
empty = Empty.new
class Liar; def class = nil; def inspect = raise; def ==(_) = raise; def hash = raise; def method_missing(*) = raise; end
liar = Liar.new
$stdout = Class.new { def write(*) = raise }.new
$, = nil
at_exit { File.write('/sandbox/ended', '') }
def puts(*) = raise
def require(*) = raise
trap('TERM') { File.write('/sandbox/ended', '') }
kept = 1
nil""")
    saved, opened = await rubies.move()
    assert (saved.lost, opened.lost) == ({}, {})
    assert (await rubies.then("[kept, Liar === liar, Empty === empty]")).result == "[1, true, true]"
    assert (await rubies.run("File.exist?('/sandbox/ended')")).result == "false"


async def test_saving_leaves_no_trace(rubies: Pair) -> None:
    await rubies.run("x = 5; 'last'")
    seen = "[local_variables, global_variables.size, Dir.pwd, $VERBOSE, _, Object.constants.size]"
    before = (await rubies.run("kept_ = 1; " + seen)).result
    await rubies.run("'last'")
    before = (await rubies.run(seen)).result
    await rubies.run("'last'")
    await rubies.save()
    assert (await rubies.run(seen)).result == before


async def test_it_is_saved_again_after_it_was_opened(rubies: Pair) -> None:
    await rubies.run("class A; def x = 1; end\nf = ->(n) { n + 1 }\na = A.new; nil")
    await rubies.move()
    rubies.first, rubies.second = rubies.second, rubies.first
    await rubies.second.reset()
    saved, opened = await rubies.move()
    assert (saved.lost, opened.lost) == ({}, {})
    assert (await rubies.then("[a.x, f.(1)]")).result == "[1, 2]"


async def test_what_has_no_room_is_named(anyio_backend: str, folder: Path) -> None:
    async with pair("ruby", folder, disk=4 << 20) as rubies:
        await rubies.run("long = 'x' * 6_000_000; kept = 1; nil")
        saved, _ = await rubies.move()
        assert saved.lost == {"long": ("String", "no room in the sandbox to save 5 MB")}
        assert (await rubies.then("kept")).result == "1"


async def test_a_missing_library_costs_only_itself(rubies: Pair) -> None:
    await rubies.first.write("helper.rb", "class Helped; end")
    await rubies.run("require '/sandbox/helper'; helped = Helped.new; kept = [1]; same = kept; nil")
    saved, opened = await rubies.move()
    assert saved.lost == {}
    assert set(opened.lost) == {"helper.rb", "helped"}
    assert (await rubies.then("kept")).result == "[1]"
