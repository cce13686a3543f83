"""The JavaScript runner, started directly; the test speaks the server's protocol."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.effort import EFFORT

from .driver import Runner, start


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Runner]:
    with start("javascript", tmp_path) as runner:
        yield runner


def test_it_prints(node: Runner) -> None:
    run = node.run("console.log('hello'); console.error('problem')")
    assert (run.out, run.err, run.status, run.exit_code, run.result) == ("hello\n", "problem\n", "ok", 0, None)


@pytest.mark.parametrize(
    ("code", "result"),
    [
        ("6 * 7", "42"),
        ("({a: [1, 'x']})", "{ a: [ 1, 'x' ] }"),
        ("undefined", None),
        ("1; const x = 2", None),
        ("const y = 3; y;", "3"),
        ("await Promise.resolve(4)", "4"),
        ("(async () => 5)()", "5"),
        ("'\\ud800'", "'\\ud800'"),
    ],
)
def test_the_last_expression_is_the_result(node: Runner, code: str, result: str | None) -> None:
    assert node.run(code).result == result


def test_a_long_result_is_cut(node: Runner) -> None:
    assert len(node.run("Array.from({length: 90}, () => 'é'.repeat(900))").result or "") == 20_000


def test_a_value_that_cannot_be_shown_is_an_error_of_the_run(node: Runner) -> None:
    run = node.run("({[Symbol.for('nodejs.util.inspect.custom')]() { throw new Error('hidden') }})")
    assert (run.status, run.result) == ("error", None)
    assert "hidden" in run.err
    assert node.run("1").result == "1"


def test_declarations_are_kept_and_can_be_repeated(node: Runner) -> None:
    code = "const a = 1; let b = 2, c; class D { n() { return 4 } }; function f() { return a + b }\nvar {e, ...r} = {e: 5, g: 6}"
    for _ in range(2):
        assert node.run(code).status == "ok"
    assert node.run("[a, b, c, new D().n(), f(), e, r.g]").result == "[ 1, 2, undefined, 4, 3, 5, 6 ]"


def test_declarations_in_code_with_await_are_kept_and_can_be_repeated(node: Runner) -> None:
    code = (
        "const {a, b: [c = 3]} = await Promise.resolve({a: 1, b: []})\nlet d; class E {}\nfunction f() { return a + c }\n"
        "for (var i = 0; i < 2; i++) { var j = await i }\nfor await (const k of [1]) d = k"
    )
    for _ in range(2):
        run = node.run(code)
        assert (run.status, run.err) == ("ok", "")
    assert node.run("[a, c, d, typeof E, f(), i, j]").result == "[ 1, 3, 1, 'function', 4, 2, 1 ]"


@pytest.mark.parametrize(
    "code",
    [
        "fixed = 2",
        "fixed++",
        "fixed += 1n",
        "[fixed] = [2]",
        "({fixed} = {fixed: 2})",
        "for (fixed of [2]);",
        "fixed &&= 2",
    ],
)
@pytest.mark.parametrize("first", ["", "await 0; "])
def test_a_constant_cannot_be_assigned_to(node: Runner, code: str, first: str) -> None:
    check = f"{first}const change = () => {{ {code} }}\ntry {{ change() }} catch (e) {{ e.message }}\nfixed"
    for declared in ("const fixed = 1n; ", ""):
        assert "TypeError: Assignment to constant variable." in node.run(f"{declared}{first}{code}").err
        assert node.run(check).result == "1n"


def test_what_is_no_assignment_to_a_constant_is_none(node: Runner) -> None:
    code = "const fixed = {}; fixed.x = 1; fixed ||= 2; { let fixed; fixed = 3 }; ((fixed) => { fixed = 4 })(); fixed"
    assert node.run(code).result == "{ x: 1 }"


def test_only_later_code_can_declare_a_name_again_and_functions_see_it(node: Runner) -> None:
    node.run("const x = 1; function seen() { return x }")
    for declared in ("let x = 2", "var x = 2", "const x = 2", "const {x} = {x: 2}", "await 0; let x = 2"):
        assert node.run(f"{declared}; [x, seen()]").result == "[ 2, 2 ]"
    assert node.run("function x() {}; [x, seen()]").result == "[ [Function: x], [Function: x] ]"
    assert node.run("class x {}; [x, seen()]").result == "[ [class x], [class x] ]"
    assert node.run("let x; [x, seen()]").result == "[ undefined, undefined ]"
    assert "'twice' has already been declared" in node.run("let twice; const twice = 1").err


@pytest.mark.parametrize("first", ["", "await 0; "])
def test_a_name_has_no_value_before_its_declaration_and_a_function_has(node: Runner, first: str) -> None:
    early = "try { early } catch (e) { console.log(e.message) }\nlet early = 1"
    run = node.run(f"{first}{early}\nf()\nfunction f() {{ console.log('hoisted') }}")
    assert run.out == "Cannot access 'early' before initialization\nhoisted\n"


def test_names_replace_no_globals(node: Runner) -> None:
    node.run(
        "const setTimeout = (ms) => new Promise((done) => globalThis.setTimeout(done, ms))\n"
        "const URL = 'x', module = {own: 1}; class Map {}; function Event() {}; var crypto = require('crypto')"
    )
    run = node.run(
        "await setTimeout(1); [{ URL }, module.own, new Map(), Event.name, typeof crypto.createHash, (URL => URL)(1)]"
    )
    assert run.result == "[ { URL: 'x' }, 1, Map {}, 'Event', 'function', 1 ]"
    # Node's own fetch uses some of them.
    run = node.run(
        "const server = require('http').createServer((_, r) => r.end('served'))\n"
        "await new Promise((listens) => server.listen(0, '127.0.0.1', listens))\n"
        "const answer = await (await fetch(`http://127.0.0.1:${server.address().port}/`)).text()\n"
        "server.close(); answer"
    )
    assert run.result == "'served'"


@pytest.mark.parametrize(
    ("code", "result"),
    [
        ("const n = await 2;\n({ n, twice: n * 2 })", "{ n: 2, twice: 4 }"),
        ("import { sep } from 'path'\n(sep)", "'/'"),
        ("const n = await 2\nn // the end", "2"),
        ("if (0) var mode = 'on'; else var mode = 'off';\nawait mode", "'off'"),
        ("if (0) var mode\nelse var mode = 1\nmode", "1"),
        ("let a\n/x/.test('x') && (a = 1)\nlet b = a, c\n;[b, c]", "[ 1, undefined ]"),
        ("export function add(a, b) { return a + b }\nadd(1, 2)", "3"),
        (
            "export const p = 1, q = 2; export class K {}; export default class L {}\nexport { p as z }\n[p, q, K, L]",
            "[ 1, 2, [class K], [class L] ]",
        ),
        ("export * from 'fs'; export { join } from 'path'; export * as ns from 'os'; export default 5;\n7", "7"),
        ("export default (1, 2)\nexport async function f() {}\ntypeof f", "'function'"),
        (
            "import.meta.dirname === process.cwd() && require('url').fileURLToPath(import.meta.url) === process.argv[1]",
            "true",
        ),
        ("import.meta.resolve('./x.js') === import.meta.url.replace(/[^/]*$/, 'x.js')", "true"),
        ("import.meta.resolve('fs')", "'node:fs'"),
        ("#!/usr/bin/env node\nawait 3", "3"),
        ("'use strict'; await 0; function f() { return this }; f() === undefined", "true"),
    ],
)
def test_the_syntax_of_modules_and_scripts_is_understood(node: Runner, code: str, result: str) -> None:
    run = node.run(code)
    assert (run.err, run.result) == ("", result)


def test_the_state_is_kept_after_an_error(node: Runner) -> None:
    assert node.run("const kept = 1; throw new Error('x')").status == "error"
    assert node.run("kept").result == "1"


@pytest.mark.parametrize("prefix", ["", "await 1; "])
def test_an_error_has_the_lines_of_the_code_and_no_others(node: Runner, prefix: str) -> None:
    run = node.run(f"{prefix}function f() {{\n  throw new TypeError('bad')\n}}\n\nf()")
    assert (run.status, run.exit_code) == ("error", 1)
    assert "TypeError: bad\n    at f (<cell 1>:2:9)\n    at" in run.err
    assert "<cell 1>:5:" in run.err
    assert "runner" not in run.err
    assert "node:" not in run.err


@pytest.mark.parametrize("code", ["const a = 1\nlet = = 2", "await 1\nlet = = 2"])
def test_a_syntax_error_has_the_line_of_the_code(node: Runner, code: str) -> None:
    run = node.run(code)
    assert run.err.startswith("<cell 1>:2\nlet = = 2\n")
    assert "SyntaxError: Unexpected token '='" in run.err
    assert "    at" not in run.err


def test_an_error_shows_the_line_of_the_code(node: Runner) -> None:
    for code in ("const a = 1; a = 2", "await 0; const a = 1; a = 2"):
        caret = " " * code.rindex("=") + "^"
        assert node.run(code).err.startswith(f"<cell {node.cell}>:1\n{code}\n{caret}\n\nTypeError: Assignment")


@pytest.mark.parametrize("module", ["import fs from 'fs'", "export const a = 1"])
def test_an_import_or_export_is_not_the_mistake(node: Runner, module: str) -> None:
    run = node.run(f"{module}\nlet = = 2")
    assert run.err == "<cell 1>:2\nlet = = 2\n      ^\n\nSyntaxError: Unexpected token\n"


def test_a_thrown_value_that_is_not_an_error_is_shown(node: Runner) -> None:
    assert node.run("throw {a: 1}").err == "Uncaught { a: 1 }\n"


@pytest.mark.parametrize(
    "code",
    [
        "process.exit(3)",
        "process.exitCode = 3",
        "await 1; process.exit(3)",
        "setTimeout(() => process.exit(3), 1); await new Promise(() => {})",
    ],
)
def test_exit_ends_the_run_and_keeps_the_state(node: Runner, code: str) -> None:
    node.run("const kept = 1")
    run = node.run(code)
    assert (run.err, run.status, run.exit_code) == ("", "error", 3)
    run = node.run("kept")
    assert (run.result, run.exit_code) == ("1", 0)


@pytest.mark.parametrize(
    "code",
    [
        "try { process.exit(3) } catch { console.log('caught') } finally { console.log('finally') }",
        "main().then(() => process.exit(3)).catch(() => process.exit(1)); async function main() { console.log('work') }",
        "await 0; try { process.exit(3) } catch { console.log('caught') }",
        "queueMicrotask(() => { try { process.exit(3) } catch { console.log('caught') } }); Promise.resolve().then(() => console.log('x'))",
        "setImmediate(() => process.exit(3)); setImmediate(() => console.log('x')); 0",
        "new (require('events'))().on('e', () => process.exit(3)).emit('e'); console.log('x')",
        "require('./leaves')",
    ],
)
@pytest.mark.parametrize("last", [False, True])
def test_an_exit_cannot_be_caught(node: Runner, code: str, last: bool) -> None:
    (node.workdir / "leaves.js").write_text("try { process.exit(3) } finally { console.log('finally') }")
    node.run("const kept = 1")
    run = node.run(code, last=last)
    assert (run.out, run.err, run.exit_code) == ("work\n" if "work" in code else "", "", 3)
    if not last:
        assert node.run("kept").result == "1"


@pytest.mark.parametrize(
    ("code", "out", "exit_code"),
    [
        ("process.on('exit', c => console.log('bye', c)); console.log('a')", "a\nbye 0\n", 0),
        ("process.on('exit', c => console.log('bye', c)); process.exit(3)", "bye 3\n", 3),
        ("process.on('exit', c => console.log('bye', c)); throw 1", "bye 1\n", 1),
        ("process.on('exit', () => { process.exitCode = 4 })", "", 4),
        ("process.on('exit', () => process.exit(5))", "", 5),
        ("process.exitCode = 6; setTimeout(() => console.log('late'), 1)", "late\n", 6),
        ("process.once('beforeExit', () => setTimeout(() => console.log('more'), 1))", "more\n", 0),
        ("await new Promise(() => {})", "", 13),
        ("process.on('exit', () => { throw new Error('x') })", "", 1),
    ],
)
def test_the_last_run_ends_as_node_does(node: Runner, code: str, out: str, exit_code: int) -> None:
    run = node.run(code, last=True)
    assert (run.out, run.exit_code) == (out, exit_code)


def test_the_last_run_can_be_interrupted_when_its_code_is_done(node: Runner) -> None:
    node.send("require('http').createServer().listen(0, () => console.log('ready'))", last=True)
    node.wait_for("ready\n")
    node.interrupt()
    assert node.finish().interrupted


def test_what_a_session_does_not_do_at_its_end_is_reported_once(node: Runner) -> None:
    runs = [node.run(code) for code in ("1", "process.on('exit', () => console.log('bye')); 1", "process.exit(0)")]
    assert ["waits" in run.report for run in runs] == [False, True, False]
    assert [run.out for run in runs] == ["", "", ""]


@pytest.mark.parametrize(
    "code",
    [
        "new Worker('parentPort.postMessage(42)', own).on('message', (m) => console.log('done'))",
        "new Worker('setTimeout(() => {}, 20)', own).on('exit', () => console.log('done'))",
        "const { port1, port2 } = new MessageChannel(); port1.on('message', (m) => { console.log(m); port1.close() }).ref()\n"
        "port2.postMessage('done')",
        "require('zlib').gzip('x', () => console.log('done'))",
        "require('crypto').scrypt('a', 'b', 8, () => console.log('done'))",
    ],
)
def test_the_run_waits_for_what_node_waits_for(node: Runner, code: str) -> None:
    node.run(
        "const { MessageChannel } = require('worker_threads')\nclass Worker extends require('worker_threads').Worker {\n"
        "  constructor(text) { super(`const { parentPort } = require('worker_threads'); ${text}`, { eval: true }) }\n}\nconst own = 0"
    )
    assert node.run(f"{code}; 0").out == "done\n"
    assert node.run("new Worker('setInterval(() => {}, 1000)', own).unref(); 0").result == "0"


def test_the_run_does_not_wait_for_what_cannot_come(node: Runner) -> None:
    node.run("const kept = 1")
    run = node.run("await new Promise(() => {})")
    assert (run.err, run.exit_code) == ("Warning: Detected unsettled top-level await\n", 13)
    run = node.run("(async () => { await new Promise(() => {}) })()")
    assert (run.err, run.exit_code, run.result) == ("", 0, None)
    assert node.run("kept").result == "1"


@pytest.mark.parametrize(
    "code",
    [
        "process.on('x', () => {})",
        "setTimeout(() => {}, 1)",
        "require('readline').createInterface({ input: process.stdin })",
        "require('net').createServer()",
        "Promise.resolve(new (require('net').Socket)())",
        "new AbortController().signal",
    ],
)
def test_the_inside_of_a_machine_is_no_result(node: Runner, code: str) -> None:
    assert node.run(code).result is None


@pytest.mark.parametrize(
    ("code", "result"),
    [
        ("({ server: require('net').createServer(), port: 1 })", "{ server: [Server], port: 1 }"),
        ("[new (require('net').Socket)()]", "[ [Socket] ]"),
        ("new Map([['in', process.stdin.on('x', () => {})]])", "Map(1) { 'in' => [ReadStream] }"),
        ("({ a: { b: require('crypto').createHash('md5') } })", "{ a: { b: [Hash] } }"),
        ("({ child: require('child_process').spawn('true') })", "{ child: [ChildProcess] }"),
    ],
)
def test_a_machine_in_a_result_is_one_word(node: Runner, code: str, result: str) -> None:
    assert node.run(code).result == result


def test_code_sees_machines_as_node_shows_them(node: Runner) -> None:
    code = "class Own extends require('events') { balance = 3 }; const own = new Own(); console.log(own); [own]"
    run = node.run(code)
    assert (run.out.startswith("Own {\n  _events:"), "balance: 3" in run.out, run.result) == (True, True, "[ [Own] ]")
    assert "  _eventsCount: 0," in node.run("console.log({ server: require('net').createServer() })").out


def test_an_import_of_a_name_that_does_not_exist_is_an_error(node: Runner) -> None:
    run = node.run("import { readFileSync, readFileSynk } from 'fs'; console.log(typeof readFileSynk)")
    error = "SyntaxError: The requested module 'fs' does not provide an export named 'readFileSynk'\n    at import\n"
    assert (run.out, run.err, run.exit_code) == ("", error, 1)


def test_output_that_the_code_has_ended_is_there_in_the_next_run(node: Runner) -> None:
    code = "const { Readable } = require('stream')\nawait require('stream/promises').pipeline(Readable.from(['a\\n']), process.stdout)"
    for _ in range(2):
        assert node.run(code).out == "a\n"
    assert node.run("process.stdout.end('b', () => console.log('ended')); 0").out == "bended\n"
    assert node.run("console.log('c')").out == "c\n"


def test_the_run_lasts_until_the_work_that_it_started_is_done(node: Runner) -> None:
    run = node.run(
        "setTimeout(() => console.log('timer'), 20)\n"
        "require('child_process').exec('echo child', (error, out) => console.log(out.trim()))\n"
        "async function main() { await null; console.log('main') }\nmain(); undefined"
    )
    assert sorted(run.out.split()) == ["child", "main", "timer"]


def test_the_run_does_not_wait_for_a_server_that_listens(node: Runner) -> None:
    code = "const server = require('http').createServer((_, r) => r.end('served')); await new Promise(d => server.listen(0, '127.0.0.1', d))"
    assert node.run(code).status == "ok"
    run = node.run("await (await fetch(`http://127.0.0.1:${server.address().port}/`)).text()")
    assert run.result == "'served'"


@pytest.mark.parametrize(
    "code",
    [
        "Promise.reject(new Error('lost')); undefined",
        "setTimeout(() => { throw new Error('lost') }, 1); await new Promise(() => {})",
    ],
)
def test_an_unhandled_error_ends_the_run_but_not_the_runner(node: Runner, code: str) -> None:
    node.run("const kept = 1")
    run = node.run(code)
    assert "Error: lost" in run.err
    assert (run.status, run.exit_code) == ("error", 1)
    assert node.run("kept").result == "1"


@pytest.mark.parametrize(
    "code", ["throw new Error('x')", "await 0; throw new Error('x')", "Promise.reject(new Error('x'))"]
)
@pytest.mark.parametrize("last", [False, True])
def test_the_code_can_handle_what_nothing_catches(node: Runner, code: str, last: bool) -> None:
    handler = "process.once('uncaughtException', (e) => { console.log('handled', e.message) })"
    run = node.run(f"{handler}; setTimeout(() => console.log('goes on'), 1); {code}", last=last)
    assert (run.out, run.err, run.exit_code) == ("handled x\ngoes on\n", "", 0)


def test_modules_come_from_the_working_directory(node: Runner) -> None:
    (node.workdir / "local.js").write_text("exports.n = 1")
    (node.workdir / "local.mjs").write_text("export default 2")
    run = node.run(
        "import two, * as all from './local.mjs'\nimport { sep } from 'node:path'\n[require('./local').n, two, all.default, sep]"
    )
    assert run.result == "[ 1, 2, 2, '/' ]"


def test_modules_come_from_the_installed_libraries(node: Runner) -> None:
    package = node.workdir.parent / "libraries" / "node_modules" / "sample"
    package.mkdir(parents=True)
    exports = {"import": "./index.mjs", "require": "./index.cjs"}
    (package / "package.json").write_text(json.dumps({"name": "sample", "exports": exports}))
    (package / "index.mjs").write_text("export const kind = 'module'")
    (package / "index.cjs").write_text("exports.kind = 'script'")
    run = node.run("[require('sample').kind, (await import('sample')).kind]")
    assert run.result == "[ 'script', 'module' ]"


def test_every_character_of_the_code_arrives(node: Runner) -> None:
    assert node.run("console.log('é漢🙂 \\\\ \"')").out == 'é漢🙂 \\ "\n'


def test_variables_become_globals(node: Runner) -> None:
    run = node.run("[x, y.z]", {"x": 1, "y": {"z": ["é", None]}})
    assert run.result == "[ 1, [ 'é', null ] ]"
    assert node.run("x").result == "1"


def test_standard_input_is_empty(node: Runner) -> None:
    assert node.run("require('fs').readFileSync(0, 'utf8')").result == "''"
    assert node.run("let text = ''; for await (const part of process.stdin) text += part; text").result == "''"


def test_large_output_is_complete_before_the_frame(node: Runner) -> None:
    assert len(node.run("console.log('x'.repeat(10_000_000))").stdout) == 10_000_001


def test_output_without_a_newline_is_kept_as_it_is(node: Runner) -> None:
    run = node.run("process.stdout.write(Buffer.from([0xff, 0x1e])); process.stderr.write('e'); undefined")
    assert (run.stdout, run.stderr) == (b"\xff\x1e", b"e")


@pytest.mark.parametrize(
    "loop",
    [
        "while (true) {}",
        "await 1; while (true) {}",
        "await new Promise(r => setTimeout(r, 1)); while (true) {}",
        "setTimeout(() => { while (true) {} }, 1)",
        "while (true) await null",
        "setInterval(() => {}, 1)",
        "while (true) await new Promise(r => setTimeout(r, 1))",
        "Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0)",
    ],
)
def test_an_interrupt_stops_the_code_and_keeps_the_state(node: Runner, loop: str) -> None:
    node.run("const kept = 1")
    for _ in range(2):
        node.send(f"console.log('ready')\n{loop}")
        node.wait_for("ready\n")
        node.interrupt()
        run = node.finish()
        assert (run.out, run.status, run.exit_code, run.interrupted) == ("ready\n", "error", 130, True)
        run = node.run("kept")
        assert (run.result, run.out) == ("1", "")


def test_an_interrupt_that_the_main_thread_answers_late_keeps_the_state(node: Runner) -> None:
    # Each callback takes as long as the runner waits for an answer, so that the thread is often terminated just when it
    # begins to answer.
    late = "const last = Date.now(); while (Date.now() - last < 20) {}"
    node.run("const kept = 1")
    for _ in range(100 * EFFORT):
        node.send(f"setInterval(() => {{ {late} }}, 1); console.log('ready'); await new Promise(() => {{}})")
        node.wait_for("ready\n")
        node.interrupt()
        run = node.finish()
        assert (run.status, run.exit_code, run.interrupted) == ("error", 130, True)
        assert node.run("kept").result == "1"


def test_an_interrupt_stops_a_child_and_the_code_that_waits_for_it(node: Runner) -> None:
    node.send("const kept = 1; require('child_process').execSync('echo ready; exec sleep 100', {stdio: 'inherit'})")
    node.wait_for("ready\n")
    node.interrupt()
    run = node.finish()
    assert (run.status, run.exit_code, run.interrupted) == ("error", 130, True)
    assert node.run("kept").result == "1"


def test_an_interrupt_between_runs_does_not_end_the_runner(node: Runner) -> None:
    node.run("const kept = 1")
    node.interrupt()
    node.run("0")  # Another thread of Node receives the signal, perhaps only during this run.
    run = node.run("kept")
    assert (run.result, run.interrupted) == ("1", False)


def test_files_created_and_changed_are_reported_once(node: Runner) -> None:
    run = node.run(
        "const fs = require('fs'); for (const d of ['d', 'node_modules']) fs.mkdirSync(d)\n"
        "for (const f of ['a', 'd/é', '.hidden', 'node_modules/c']) fs.writeFileSync(f, '1')\nfs.symlinkSync('a', 'link')"
    )
    assert run.files == ["a", "d/é"]
    assert node.run("1").files == []
    (node.workdir / "copied").write_text("1")
    assert node.run("fs.appendFileSync('a', '2')").files == ["a"]


def test_at_most_two_hundred_files_are_named(node: Runner) -> None:
    run = node.run("for (let i = 0; i < 250; i++) require('fs').writeFileSync('f' + i, '')")
    assert (len(run.files), run.report["files_omitted"]) == (200, 50)


def test_figures_are_reported_by_name(node: Runner) -> None:
    run = node.run("require('fs').writeFileSync(process.env.SANDBOX_FIGURES + '/plot.svg', '<svg/>')")
    assert run.report["figures"] == ["plot.svg"]


def test_a_child_inherits_only_the_standard_streams(node: Runner) -> None:
    run = node.run(
        "require('child_process').spawnSync('sh', ['-c', 'echo child; ls /proc/self/fd'], {stdio: 'inherit'}); undefined"
    )
    assert run.out.split() == ["child", "0", "1", "2", "3"]  # Descriptor 3 is the folder that ls reads.


@pytest.mark.parametrize("descriptors", ["[0, 1, 2]", "[1]"])
def test_code_that_closes_its_streams_is_answered(node: Runner, descriptors: str) -> None:
    run = node.run(f"for (const fd of {descriptors}) require('fs').closeSync(fd); undefined")
    assert run.status == "ok"
    assert node.run("2").result == "2"


def test_a_frame_with_another_nonce_is_output(node: Runner) -> None:
    frame = "\x1e" + "0" * 32 + ".2\n{}"
    assert node.run(f"process.stdout.write({json.dumps(frame)}); undefined").out == frame


def test_code_that_replaces_everything_is_answered(node: Runner) -> None:
    run = node.run(
        "console.log = null; JSON.stringify = 1; JSON.parse = 1; Array.prototype.push = null; Array.prototype.toJSON = () => 1\n"
        "Buffer.from = Buffer.concat = null; Uint8Array.prototype.subarray = null; Buffer.prototype.toString = null\n"
        "String.prototype.slice = String.prototype.split = null; RegExp.prototype.exec = null\n"
        "Promise.prototype.then = null; Map.prototype.get = null; Object.keys = null; setImmediate = null; Atomics.store = null\n"
        "require('fs').writeSync = require('fs').read = null; process.exit = null; Array.prototype[Symbol.iterator] = null\n"
        "require('fs').writeFileSync('a', '1')"
    )
    assert (run.status, run.files) == ("ok", ["a"])
    assert node.run("1 + 1").result == "2"
    assert "Error: still" in node.run("throw new Error('still')").err


def test_the_runner_ends_with_its_input(node: Runner) -> None:
    node.run("1")
    assert node.end_input() == 0
