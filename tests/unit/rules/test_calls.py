"""Calls are found by their whole names, also under aliases that the file defines; patterns and lines are searched."""

import pytest

from .judges import LANGUAGES, found

FOUND = {
    "python": {
        "os.system": [
            "import os\nos.system('x')",
            "import os as o; o.system('x')",
            "from os import system",
            "from os import system as s; s('x')",
            "from os import *\nsystem('x')",
            "import os\nrun = os.system\nrun('x')",
            "import os\nlist(map(os.system, names))",
            "os . system ( 'x' )",
            "os.\\\n  system('x')",
            "(os).system('x')",
            "__import__('os').system('x')",
            "o = __import__('os')\no.system('x')",
            "import importlib\nm = importlib.import_module('os')\nm.system('x')",
            "if (o := os): o.system('x')",
            "import os\no = os\no.system('x')",
            "import os\nf'{os.system(1)}'",
        ],
        "subprocess.run": ["from subprocess import run as r; r()", "import subprocess as s\ns.run(['ls'])"],
        "eval": ["eval('1')", "import builtins\nbuiltins.eval('1')", "e = eval\ne('1')", "@eval\ndef f(): pass"],
        "exec": ["exec('1')", "exec '1'"],
        "make.run": ["x = make('1')\nx.run()", f"x = make('{'1' * 500}')\nx.run()"],
    },
    "javascript": {
        "eval": [
            "eval('1')",
            "globalThis.eval('1')",
            "const e = eval; e('1')",
            "window['eval']('1')",
            "ev\\u0061l('1')",
        ],
        "Function": ["new Function('x')", "Function('x')"],
        "child_process.exec": [
            "require('child_process').exec('x')",
            "const cp = require('child_process'); cp.exec('x')",
            "const { exec } = require('node:child_process'); exec('x')",
            "const { exec: run } = require('child_process'); run('x')",
            "import { exec as run } from 'child_process'; run('x')",
            "import * as cp from 'child_process'; cp?.exec('x')",
            "import cp from 'child_process'; cp['exec']('x')",
            "const cp = await import('child_process'); cp.exec('x')",
            "(await import('child_process')).exec('x')",
            "let cp; cp = require('child_process'); cp.exec('x')",
        ],
        "import": ["import(name)"],
    },
    "java": {
        "java.lang.Runtime.getRuntime.exec": [
            'class A { void f() throws Exception { Runtime.getRuntime().exec("ls"); } }',
            'class A { void f() throws Exception { java.lang.Runtime.getRuntime().exec("ls"); } }',
            'class A { void f() throws Exception { Runtime r = Runtime.getRuntime(); r.exec("ls"); } }',
            'class A { void f() throws Exception { Runtime\n .getRuntime()\n .exec("ls"); } }',
        ],
        "java.lang.ProcessBuilder": [
            'class A { void f() { new ProcessBuilder("ls"); } }',
            "class A { ProcessBuilder b; }",
        ],
        "java.lang.System.exit": ["class A { void f() { System.exit(1); } }"],
        "java.util.UUID.randomUUID": ["import java.util.UUID; class A { Object f() { return UUID.randomUUID(); } }"],
    },
    "cpp": {
        "system": [
            'int main() { system("ls"); }',
            'int main() { std::system("ls"); }',
            'int main() { ::system("ls"); }',
            'int main() { using namespace std; system("ls"); }',
            'using std::system; int main() { system("ls"); }',
            'int main() { auto f = &system; f("ls"); }',
            'int main() { auto f = std::system; f("ls"); }',
        ],
        "std::filesystem::remove_all": [
            'namespace fs = std::filesystem; int main() { fs::remove_all("x"); }',
            'int main() { std::filesystem::remove_all("x"); }',
            'using namespace std::filesystem; int main() { remove_all("x"); }',
        ],
        "asm": ['int main() { asm("nop"); }'],
    },
    "go": {
        "os/exec.Command": [
            'package main\nimport "os/exec"\nfunc main() { exec.Command("ls") }',
            'package main\nimport e "os/exec"\nfunc main() { e.Command("ls") }',
            'package main\nimport . "os/exec"\nfunc main() { Command("ls") }',
            'package main\nimport "os/exec"\nfunc main() { c := exec.Command; c("ls") }',
        ],
        "os.RemoveAll": ['package main\nimport "os"\nfunc main() { os.RemoveAll("x") }'],
    },
    "r": {
        "system": ["system('ls')", "base::system('ls')", "f <- system; f('ls')", "sapply(x, system)", "`system`('ls')"],
        "httr::GET": ["httr::GET('x')", "library(httr)\nGET('x')", "g = httr::GET\ng('x')"],
    },
    "ruby": {
        "system": [
            "system 'ls'",
            "system('ls')",
            "Kernel.system('ls')",
            "Kernel::system 'ls'",
            "send(:system, 'ls')",
            "method(:system).call('ls')",
        ],
        "`": ["`ls`", "%x(ls)", "x = `ls`.lines"],
        "Open3": ["Open3.capture2('ls')", "include Open3", "o = Open3\no.popen3('ls')"],
        "Process.spawn": ["Process.spawn('ls')", "P = Process\nP.spawn('ls')"],
        "fork": ["fork { }", "pid = fork"],
    },
    "bash": {
        "rm": [
            "rm x",
            "/bin/rm x",
            "'rm' x",
            "\\rm x",
            "r'm' x",
            "r\\m x",
            "$'\\x72m' x",
            "command rm x",
            "sudo rm x",
            "ls | xargs rm",
            "true && rm x",
            "$(rm x)",
            "(rm x)",
            "f() { rm x; }",
            "A=1 rm x",
            "cat <(rm x)",
        ],
    },
}

NOT_FOUND = {
    "python": {
        "os.system": [
            "os.systems('x')",
            "# os.system('x')",
            "'os.system()'",
            "import json as os\nos.system()",
            "my.os.system()",
            "x.system()",
        ],
        "eval": ["pandas.eval('1')", "df.eval('a + b')", "evaluate()", "'eval(1)'"],
    },
    "javascript": {
        "eval": ["x.eval('1')", "evaluate('1')", "'eval(1)'", "// eval(1)"],
        "child_process.exec": ["/a/.exec('a')", "const { exec } = require('x'); exec()"],
    },
    "java": {
        "java.lang.ProcessBuilder": ["// ProcessBuilder\nclass A {}", "class A { Builder b; }"],
        "java.lang.Runtime.getRuntime.exec": ["class A { void f() { my.exec(1); } }"],
    },
    "cpp": {
        "system": ["int main() { x.system(); }", "int main() { my::system(); }", "// system()", 'auto s = "system()";']
    },
    "go": {"os/exec.Command": ['package main\nfunc main() { my.Command("ls") }']},
    "r": {"system": ["# system('ls')", "'system()'", "system.time(1)", "x$system(1)", "other::system(1)"]},
    "ruby": {
        "system": ["x.system('ls')", "'system()'", "# system", "system_name"],
        "`": ["'`ls`'", "# `ls`"],
        "fork": ["forked", "x.fork"],
    },
    "bash": {"rm": ["# rm x", "echo rm", "echo 'rm x'", "rmdir x", "cat <<E\nrm x\nE\n", "rm=1", "ls rm"]},
}


def cases(table: dict[str, dict[str, list[str]]]) -> list[tuple[str, str, str]]:
    return [(language, call, code) for language, by in table.items() for call, codes in by.items() for code in codes]


@pytest.mark.parametrize(("language", "call", "code"), cases(FOUND))
def test_a_call_is_found(language: str, call: str, code: str) -> None:
    assert found(language, code, calls=[call])


@pytest.mark.parametrize(("language", "call", "code"), cases(NOT_FOUND))
def test_a_call_is_not_found_here(language: str, call: str, code: str) -> None:
    assert not found(language, code, calls=[call])


def test_the_tables_cover_every_language() -> None:
    assert set(FOUND) == set(NOT_FOUND) == set(LANGUAGES)


def test_patterns_search_code_without_strings_and_lines_search_code_with_strings() -> None:
    code = "# get('a')\nget('b')\nput('c')"
    assert not found("python", code, patterns=[r"get\(.b"])
    assert found("python", code, patterns=[r"put\("]) == [(3, r"matches put\(")]
    assert found("python", code, lines=[r"get\(.b"]) == [(2, r"matches get\(.b")]
    assert not found("python", code, lines=[r"get\(.a"])
