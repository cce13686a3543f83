"""What JavaScript keeps of the variables of a session that is saved, and what it names as lost."""

import re
from collections.abc import AsyncIterator

import pytest

from llm_sandbox_mcp import Sandboxes
from tests.engines import MIB, host_folder, need, small_profile

from .states import FOLDER, Report, Snippets, carry, move, opened, report, run, save

pytestmark = pytest.mark.anyio

STATE = Snippets.of("javascript")


@pytest.fixture
async def sandboxes(anyio_backend: str) -> AsyncIterator[Sandboxes]:
    await need("embedded")
    limits = {"memory": 1024 * MIB, "disk": 400 * MIB, "timeout": 60}
    with host_folder() as folder:
        async with Sandboxes(small_profile("embedded", folder, limits=limits)) as made:
            yield made


async def kept(sandboxes: Sandboxes, cell: str, looks: dict[str, str]) -> tuple[Report, Report]:
    """Moves what a cell made, all of it, and compares what other code sees of it there."""
    before, after, results = await move(sandboxes, STATE, [cell], list(looks))
    assert (before.lost, after.lost, before.kept) == ({}, {}, after.kept)
    assert [re.sub(r"\s+", " ", str(result)) for result in results] == list(looks.values())
    return before, after


async def lost(sandboxes: Sandboxes, cell: str) -> dict[str, tuple[str, str]]:
    """What is lost of what a cell made; what is good is kept beside it."""
    before, after, results = await move(sandboxes, STATE, ["const good = [1];", cell], ["good[0]"])
    assert (before.kept, after.kept, after.lost, results) == (1, 1, {}, ["1"])
    return before.lost


async def test_plain_values_are_the_same(sandboxes: Sandboxes) -> None:
    cell = """
const text = 'é\\u0000\\ud83d\\ude00', big = 2n ** 70n, none = null, minus = -0, when = new Date(5), match = /x\\/y/giu;
let nothing, list = [1, , NaN], nested = { a: { b: [Infinity] } }; var table = new Map([['k', new Set([1])]]);
const bytes = Buffer.from('hello'), view = new DataView(new ArrayBuffer(4), 1), boxed = Object('x'), bare = Object.create(null);
bare.key = 1;
"""
    await kept(
        sandboxes,
        cell,
        {
            "[text === 'é\\u0000\\ud83d\\ude00', big, none, minus, nothing]": "[ true, 1180591620717411303424n, null, -0, undefined ]",
            "[when.getTime(), match, list, nested]": "[ 5, /x\\/y/giu, [ 1, <1 empty item>, NaN ], { a: { b: [Array] } } ]",
            "[table.get('k').has(1), bytes, view.byteOffset, boxed]": "[ true, <Buffer 68 65 6c 6c 6f>, 1, [String: 'x'] ]",
            "[bare, Object.getPrototypeOf(bare)]": "[ [Object: null prototype] { key: 1 }, null ]",
        },
    )


async def test_what_is_one_object_stays_one_object(sandboxes: Sandboxes) -> None:
    cell = """
const a = { name: 'a' }, b = [a, a], map = new Map([[a, b]]); a.self = a; b.push(b);
const numbers = new Float64Array([1, 2]), inside = new Uint8Array(numbers.buffer, 8);
const key = Symbol('key'), keyed = { [key]: 1 }, registered = Symbol.for('r');
const f = () => 1, holder = { f, g: [f] };
"""
    await kept(
        sandboxes,
        cell,
        {
            "[b[0] === a, b[1] === a, b[2] === b, a.self === a, map.get(a) === b]": "[ true, true, true, true, true ]",
            "numbers[1] = 5; [inside.buffer === numbers.buffer, inside[7]]": "[ true, 64 ]",
            "[keyed[key], Object.getOwnPropertySymbols(keyed)[0] === key, registered === Symbol.for('r')]": "[ 1, true, true ]",
            "[holder.f === f, holder.g[0] === f]": "[ true, true ]",
        },
    )


async def test_constants_and_names_are_what_they_were(sandboxes: Sandboxes) -> None:
    cell = (
        "const fixed = 1; let free = 2; var URL = 3; globalThis.open = 4; implicit = 5; function fetch() { return URL }"
    )
    _, after, results = await move(
        sandboxes,
        STATE,
        [cell],
        [
            "var said = []; try { fixed = 9 } catch (error) { said.push(error.message) } free = 3; said",
            "[free, URL, globalThis.URL === URL, globalThis.open, implicit, fetch()]",
            "let fixed = 7; fixed = 8",
        ],
    )
    assert after.lost == {}
    assert results == ["[ 'Assignment to constant variable.' ]", "[ 3, 3, false, 4, 5, 3 ]", "8"]


async def test_functions_of_all_kinds_see_the_variables_of_the_session(sandboxes: Sandboxes) -> None:
    cell = """
let total = 1;
function count() { return ++total }
const arrow = (x = total) => x, later = async (x) => x + total, named = function inner(n) { return n ? inner(n - 1) : 'end' };
function* steps() { yield total; yield 2 }
const object = { method() { return total }, get now() { return total }, set now(x) { total = x }, async *[Symbol.asyncIterator]() { yield 1 },
  'odd name'() { return 1 } };
count.calls = [1]; function first() { return second() } function second() { return 's' }
const { method } = object;
"""
    await kept(
        sandboxes,
        cell,
        {
            "[count(), total, arrow(), await later(1), named(3)]": "[ 2, 2, 2, 3, 'end' ]",
            "[...steps()]": "[ 2, 2 ]",
            "object.now = 7; [total, object.method(), object.now, object['odd name'](), method === object.method]": "[ 7, 7, 7, 1, true ]",
            "const all = []; for await (const one of object) all.push(one); all": "[ 1 ]",
            "[count.calls, first(), count.name, arrow.name, method.name]": "[ [ 1 ], 's', 'count', 'arrow', 'method' ]",
        },
    )


async def test_classes_and_their_objects_are_kept(sandboxes: Sandboxes) -> None:
    cell = """
let defined = 0;
class Base { static made = [defined++]; static { defined += 10; console.log('defined') } static make(n) { return new this(n) } constructor(n) { this.n = n }
  get twice() { return 2 * this.n } *[Symbol.iterator]() { yield this.n } }
class Sub extends Base { field = () => this.n; hello() { return super.twice + 1 } }
const mixed = (Parent) => class extends Parent { mixed() { return 'mixed' } };
class Mixed extends mixed(Base) {}
const sub = new Sub(3), subs = [sub, { sub }], other = new Mixed(4), { hello } = Sub.prototype;
class Failure extends Error { code = 'E' } const failure = new Failure('bad', { cause: sub });
class Stack extends Array { top() { return this[this.length - 1] } } const stack = Stack.from([1, sub]);
class Names extends Map { has2() { return this.size } } const names = new Names([[1, 2]]);
function Old(x) { this.x = x } Old.prototype.get = function () { return this.x }; const old = new Old(sub);
Base.prototype.added = function () { return 'added' };
"""
    before, after, results = await move(
        sandboxes,
        STATE,
        [cell],
        [
            "[sub.hello(), sub.field(), [...sub], sub instanceof Base, sub.constructor === Sub, subs[1].sub === sub]",
            "[defined, Base.made, Sub.make(5) instanceof Sub, Sub.made === Base.made, hello === Sub.prototype.hello]",
            "[other.twice, other.mixed(), other.added()]",
            "[failure instanceof Failure, failure instanceof Error, failure.code, failure.message, failure.cause === sub]",
            "[stack.top() === sub, stack.length, stack instanceof Stack, names.get(1), names.has2()]",
            "[old.get() === sub, old instanceof Old, Object.keys(Old.prototype)]",
            "sub.n = 9; [sub.field(), Object.keys(sub)]",
            "Sub.toString()",
        ],
    )
    assert (before.lost, after.lost) == ({}, {})
    assert [re.sub(r"\s+", " ", str(result)) for result in results] == [
        "[ 7, 3, [ 3 ], true, true, true ]",
        "[ 11, [ 0 ], true, true, true ]",
        "[ 8, 'mixed', 'added' ]",
        "[ true, true, 'E', 'bad', true ]",
        "[ true, 2, true, 2, 1 ]",
        "[ true, true, [ 'get' ] ]",
        "[ 9, [ 'n', 'field' ] ]",
        "'class Sub extends Base { field = () => this.n; hello() { return super.twice + 1 } }'",
    ]


async def test_properties_keep_what_they_allow(sandboxes: Sandboxes) -> None:
    cell = """
const frozen = Object.freeze({ a: [1] }), sealed = Object.seal([1]), hidden = Object.defineProperty({}, 'x', { value: 1 });
const list = Object.assign([1, 2], { name: 'list' }), error = Object.assign(new TypeError('bad'), { code: 'E' });
"""
    await kept(
        sandboxes,
        cell,
        {
            "[Object.isFrozen(frozen), Object.isSealed(sealed), Object.keys(hidden), hidden.x]": "[ true, true, [], 1 ]",
            "[list.name, list.length, Object.keys(error), error instanceof TypeError, error.message]": "[ 'list', 2, [ 'code' ], true, 'bad' ]",
            "error.stack.split('\\n')[0]": "'TypeError: bad'",
        },
    )


async def test_modules_are_loaded_again(sandboxes: Sandboxes) -> None:
    async with (
        sandboxes.session(language="javascript") as one,
        sandboxes.session(language="javascript") as other,
    ):
        for session in (one, other):
            await session.write(
                "own.js", "exports.Own = class { constructor(x) { this.x = x } get() { return this.x } };"
            )
            await session.write("own.mjs", "export const answer = () => helper(); const helper = () => 42;")
        await run(
            one,
            """
import path, { join as put } from 'node:path'; import * as os from 'os'; import { answer } from './own.mjs';
const fs = require('fs'), { readFileSync, promises } = fs, { Own } = require('./own.js'), own = new Own(5), { max } = Math, math = Math;
const Emitter = require('events'); class Bus extends Emitter {} const bus = new Bus(); const show = console.log;
""",
        )
        before = await save(one, STATE)
        await carry(one, other)
        after = await opened(other, STATE)
        assert (before.lost, after.lost) == ({}, {})
        assert await run(other, "[path === require('path'), put === path.join, os.cpus === require('os').cpus]") == (
            "[ true, true, true ]"
        )
        look = "[fs === require('fs'), readFileSync === fs.readFileSync, promises === fs.promises, max === Math.max, show === console.log, math === Math]"
        assert await run(other, look) == "[ true, true, true, true, true, true ]"
        assert await run(other, "[own.get(), own instanceof Own, Own === require('./own.js').Own, answer()]") == (
            "[ 5, true, true, 42 ]"
        )
        assert await run(
            other, "var heard; bus.on('x', (y) => (heard = y)); bus.emit('x', 1); [heard, bus instanceof Emitter]"
        ) == ("[ 1, true ]")


async def test_a_module_that_is_not_there_costs_only_what_needs_it(sandboxes: Sandboxes) -> None:
    async with (
        sandboxes.session(language="javascript") as one,
        sandboxes.session(language="javascript") as other,
    ):
        await one.write("own.js", "exports.f = () => 1;")
        await run(one, "const own = require('./own.js'), holds = [own], good = 1;")
        await save(one, STATE)
        await carry(one, other)
        after = await opened(other, STATE)
        assert after.kept == 1
        assert set(after.lost) == {"own", "holds"}
        assert "Cannot find module '/sandbox/own.js'" in after.lost["own"][1]
        assert await run(other, "good") == "1"


async def test_the_folder_and_the_environment_are_kept(sandboxes: Sandboxes) -> None:
    async with (
        sandboxes.session(language="javascript") as one,
        sandboxes.session(language="javascript") as other,
    ):
        await other.make_folder("sub")
        await run(
            one,
            "require('fs').mkdirSync('sub'); process.chdir('sub'); process.env.ADDED = 'é'; delete process.env.LANG;",
        )
        await save(one, STATE)
        await carry(one, other)
        await opened(other, STATE)
        assert (
            await run(other, "[process.cwd(), process.env.ADDED, process.env.LANG]")
            == "[ '/sandbox/sub', 'é', undefined ]"
        )
        assert "SANDBOX" not in (await one.read("saved/values")).decode("latin-1")


@pytest.mark.parametrize(
    ("cell", "name", "kind", "reason"),
    [
        ("const x = Promise.resolve(1);", "x", "Promise", "a promise belongs to work of this interpreter"),
        ("const x = new WeakMap();", "x", "WeakMap", "its contents cannot be listed"),
        ("const x = new WeakSet();", "x", "WeakSet", "its contents cannot be listed"),
        ("const x = new WeakRef({});", "x", "WeakRef", "a WeakRef cannot be made anew from outside"),
        ("const x = new Proxy({}, {});", "x", "Proxy", "what is behind a proxy cannot be read"),
        ("const x = (function* () {})();", "x", "Generator", "where it is in its function cannot be read"),
        ("const x = [1].values();", "x", "Array Iterator", "where it is cannot be read"),
        (
            "const x = (() => { let n = 0; return () => ++n })();",
            "x",
            "function",
            "it uses n of the function that made it",
        ),
        (
            "const x = (function () { return () => this })();",
            "x",
            "function",
            "it uses `this` of the function that made it",
        ),
        ("const x = Math.max.bind(null);", "x", "function", "it is bound, or belongs to Node, and has no source"),
        ("const x = require('fs').createReadStream('/etc/hostname');", "x", "ReadStream", "it belongs to this process"),
        ("const x = new (require('net').Socket)();", "x", "Socket", "it belongs to this process: a Socket of net"),
        ("const x = require('crypto').createSecretKey(Buffer.from('k'));", "x", "SecretKeyObject", ""),
        ("const x = new SharedArrayBuffer(8);", "x", "SharedArrayBuffer", "its memory is shared with other threads"),
        (
            "const x = { deep: [new Map([[1, Promise.resolve()]])] };",
            "x",
            "Object",
            "it contains a value of the type Promise",
        ),
        ("const x = (function () { return arguments })(1);", "x", "Arguments", "it belongs to a call"),
        ("const x = new Intl.NumberFormat('en');", "x", "NumberFormat", "NumberFormat"),
        ("const x = new (require('worker_threads').MessageChannel)();", "x", "MessageChannel", ""),
        ("globalThis.x = { get [Symbol.iterator]() { for (;;); }, p: Promise.resolve() };", "x", "Object", "Promise"),
    ],
)
async def test_what_cannot_be_kept_is_named(sandboxes: Sandboxes, cell: str, name: str, kind: str, reason: str) -> None:
    found = await lost(sandboxes, cell)
    assert set(found) - {"(running)"} == {name}
    assert found[name][0] == kind
    assert reason in found[name][1]


async def test_an_object_with_private_fields_is_lost_and_its_class_is_kept(sandboxes: Sandboxes) -> None:
    before, after, results = await move(
        sandboxes,
        STATE,
        ["class Hidden { #x = 1; get() { return this.#x } } const hidden = new Hidden(), all = [hidden];"],
        ["new Hidden().get()"],
    )
    assert before.lost["hidden"] == ("Hidden", "its private #x cannot be read")
    assert before.lost["all"] == ("Array", "it contains a value of the type Hidden: its private #x cannot be read")
    assert (before.kept, after.kept, results) == (1, 1, ["1"])


async def test_what_still_runs_is_named(sandboxes: Sandboxes) -> None:
    async with sandboxes.session(language="javascript") as session:
        await run(
            session,
            """
const server = require('net').createServer().listen(0), child = require('child_process').spawn('sleep', ['60'], { stdio: 'ignore' });
const timer = setInterval(() => {}, 1e6); child.unref(); timer.unref();
const worker = new (require('worker_threads').Worker)('setInterval(() => {}, 1e6)', { eval: true }); worker.unref();
""",
        )
        found = await save(session, STATE)
        assert {"server", "child", "timer", "worker"} <= set(found.lost)
        assert [found.lost[name][0] for name in ("server", "child", "timer", "worker")] == [
            "Server",
            "ChildProcess",
            "Timeout",
            "Worker",
        ]
        lines = (await session.read("saved/report")).decode()
        assert "lost\t(running)\tTCPServerWrap\tit goes on in the session only" in lines
        assert "lost\t(running)\tWorker\tit goes on in the session only" in lines
        await run(session, "server.close(); child.kill(); clearInterval(timer); await worker.terminate()")


async def test_hostile_objects_cost_nothing_and_see_nothing(sandboxes: Sandboxes) -> None:
    cell = """
let calls = 0; const hang = () => { calls++; for (;;); };
const getter = { get x() { return hang() } }, json = { toJSON() { return hang() } }, custom = { [Symbol.toPrimitive]() { return hang() } };
class Tag { get [Symbol.toStringTag]() { return hang() } static [Symbol.hasInstance]() { return hang() } } const tag = new Tag();
const proxy = new Proxy({}, { get: hang, ownKeys: hang, getPrototypeOf: hang, getOwnPropertyDescriptor: hang });
const inherits = Object.create(proxy); const error = new Error('x'); Error.prepareStackTrace = hang;
for (const one of [Array, Map, Set, Object, Reflect, JSON, Buffer, require('fs')]) {
  for (const name of ['ownKeys', 'entries', 'keys', 'getOwnPropertyDescriptor', 'writeFileSync', 'serialize', 'stringify']) if (one[name]) one[name] = hang;
}
Array.prototype.filter = Array.prototype.find = Array.prototype.join = Object.fromEntries = hang;
"""
    before, after, results = await move(
        sandboxes, STATE, ["const good = 1;", cell], ["[good, calls, tag instanceof Object]"]
    )
    assert set(before.lost) == {"proxy", "inherits"}
    assert (after.lost, results) == ({}, ["[ 1, 0, true ]"])


async def test_saving_leaves_no_trace(sandboxes: Sandboxes) -> None:
    async with sandboxes.session(language="javascript") as session:
        await run(
            session, "var names = Object.getOwnPropertyNames(globalThis), count = 0; const f = () => count++, m = [f];"
        )
        first = await save(session, STATE)
        assert await run(
            session, "[Object.getOwnPropertyNames(globalThis).filter((x) => !names.includes(x)), count, m[0] === f]"
        ) == ("[ [], 0, true ]")
        assert await run(session, "Object.keys(import.meta)") == "[ 'dirname', 'filename', 'main', 'resolve', 'url' ]"
        assert (await save(session, STATE)).kept == first.kept


async def test_an_interrupt_ends_saving_and_keeps_the_session(sandboxes: Sandboxes) -> None:
    async with sandboxes.session(language="javascript") as session:
        await run(session, "const many = Array.from({ length: 400000 }, (_, i) => ({ i, s: [i] })); let x = 1;")
        await session.make_folder("saved")
        ended = await session.run(STATE.filled(STATE.save), timeout=0.3)
        assert (ended.status, ended.session_state) == ("timeout", "kept")
        assert (
            await run(session, f"[x, many.length, require('fs').existsSync('{FOLDER}/report')]")
            == "[ 1, 400000, false ]"
        )
        await run(session, "many.length = 1")
        assert (await save(session, STATE)).kept == 2


async def test_opening_again_skips_what_ended_the_interpreter(sandboxes: Sandboxes) -> None:
    async with (
        sandboxes.session(language="javascript") as one,
        sandboxes.session(language="javascript") as other,
    ):
        await one.write("bad.js", "exports.f = () => 1;")
        await other.write("bad.js", "process.kill(process.pid, 'SIGKILL');")
        await run(one, "const good = [1], bad = require('./bad.js'), also = { good, f: () => good };")
        await save(one, STATE)
        await carry(one, other)
        ended = await other.run(STATE.filled(STATE.open))
        assert ended.status != "ok"
        assert await other.read("saved/opening") == b"bad\n"
        after = await opened(other, STATE)
        assert after.lost == {"bad": ("module", "opening it ended the interpreter")}
        assert await other.read("saved/deadly") == b"bad\n"
        assert (
            await run(other, f"[also.f() === good, require('fs').existsSync('{FOLDER}/opening')]") == "[ true, false ]"
        )


async def test_what_has_no_room_is_lost_by_name(sandboxes: Sandboxes) -> None:
    async with sandboxes.session(language="javascript") as session:
        await run(session, "const huge = Buffer.alloc(500 * 2 ** 20, 1), good = new Uint8Array(2 ** 21);")
        found = await save(session, STATE)
        assert found.lost == {"huge": ("Buffer", "no room in the sandbox to save 500 MB")}
        assert found.kept == 1
        await run(session, "const text = ['x'.repeat(3e8)];")
        assert "no room in the sandbox to save" in (await save(session, STATE)).lost["text"][1]


async def test_large_arrays_are_kept(sandboxes: Sandboxes) -> None:
    cell = (
        "const a = new Float64Array(500000).fill(1.5), b = a.subarray(1), c = Buffer.alloc(3 << 20, 'x'), all = { a };"
    )
    await kept(
        sandboxes,
        cell,
        {
            "[a[499999], b.buffer === a.buffer, b.length, c.toString('latin1', 0, 2), c.length, all.a === a]": "[ 1.5, true, 499999, 'xx', 3145728, true ]"
        },
    )


async def test_a_part_of_a_function_can_be_lost_alone(sandboxes: Sandboxes) -> None:
    before, after, results = await move(
        sandboxes,
        STATE,
        ["class Cache { static waiting = Promise.resolve(); static size = 3 } const c = new Cache();"],
        ["[Cache.size, 'waiting' in Cache, c instanceof Cache]"],
    )
    assert before.lost == {"Cache.waiting": ("Promise", "a promise belongs to work of this interpreter")}
    assert (after.lost, results) == ({}, ["[ 3, false, true ]"])


async def test_another_version_is_noted(sandboxes: Sandboxes) -> None:
    async with sandboxes.session(language="javascript") as session:
        await run(session, "const f = (x) => x + 1;")
        await save(session, STATE)
        await run(
            session,
            f"const fs = require('fs'), v8 = require('v8'), file = '{FOLDER}/values'; fs.writeFileSync(file, v8.serialize({{ ...v8.deserialize(fs.readFileSync(file)), node: 'v18.0.0' }}))",
        )
        await session.restart()
        after = await opened(session, STATE)
        assert after.notes[0].startswith("saved by Node v18.0.0, opened by v")
        assert await run(session, "f(1)") == "2"
        await session.write("saved/values", b"\xff\x7f not these")
        await session.restart()
        after = await opened(session, STATE)
        assert (after.kept, list(after.lost)) == (0, ["(all variables)"])


async def test_only_five_hundred_lost_variables_are_listed(sandboxes: Sandboxes) -> None:
    async with sandboxes.session(language="javascript") as session:
        await run(session, "for (let i = 0; i < 510; i++) globalThis[`p\\t${i}`] = Promise.resolve();")
        await session.make_folder("saved")
        await run(session, STATE.filled(STATE.save))
        found = await report(session)
        assert (len(found.lost), found.notes) == (500, ["10 more are lost"])
        assert "p 0" in found.lost
