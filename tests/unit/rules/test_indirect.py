"""A name in a string counts as a name only where the language uses the string as a name; elsewhere it is just text."""

import pytest

from .judges import found
from .test_calls import cases

MODULES = {
    "python": {
        "os": [
            "import sys\nsys.modules['os'].getcwd()",
            "name = 'os'\n__import__(name)",
            "import importlib\nfor name in ['json', 'os']: importlib.import_module(name)",
            "list(map(__import__, ['os']))",
            "exec('import os')",
            "exec 'import os'",
            "exec('x = 1\\nimport os\\n')",
            "eval(\"__import__('os')\")",
            'exec("""\nif x:\n    import os\n""")',
            "exec(\"exec('import os')\")",
        ],
    },
    "javascript": {
        "fs": [
            "import { createRequire } from 'module'; const r = createRequire(import.meta.url); r('fs')",
            "const m = require('node:module'); m.createRequire('/')('fs')",
            "globalThis['require']('fs')",
            "(0, require)('fs')",
            "require(/* files */ 'fs')",
            "await import(/* webpackChunkName: 'x' */ 'fs')",
            "process.mainModule.require('fs')",
            "require.main.require('fs')",
            "const name = 'fs'; require(name)",
            "await Promise.all(['fs'].map(name => import(name)))",
            "['fs'].map(require)",
            "eval(\"require('fs')\")",
            "new Function('x', \"return require('fs')\")",
        ],
    },
    "java": {
        "java.net": [
            'class A { Object f() throws Exception { return getClass().getClassLoader().loadClass("java.net.URI"); } }',
            'class A { Object f() throws Exception { String n = "java.net.URI"; return Class.forName(n); } }',
        ],
    },
    "cpp": {
        "sys/socket.h": [
            "struct A {\n#include <sys/socket.h>\n};",
            "enum A {\n# include <sys/socket.h>\n};",
            "#include_next <sys/socket.h>\n",
            "#import <sys/socket.h>\n",
        ],
    },
    "r": {
        "httr": [
            "pacman::p_load(dplyr, httr)",
            "p_load('httr')",
            "lapply(c('dplyr', 'httr'), library, character.only = TRUE)",
            "packages <- c('httr')\nsapply(packages, require, character.only = TRUE)",
            "x <- 'httr'; library(x, character.only = TRUE)",
            "for (p in c('httr')) library(p, character.only = TRUE)",
            "do.call('library', list('httr'))",
            "do.call(library, list('httr'))",
            "box::use(httr[GET])",
            "import::from(httr, GET)",
            "eval(parse(text = 'library(httr)'))",
        ],
    },
    "ruby": {
        "socket": [
            "self.require 'socket'",
            "send(:require, 'socket')",
            "Kernel.send('require', 'socket')",
            "method(:require).call('socket')",
            "%w[json socket].each { |name| require name }",
            "['socket'].each(&method(:require))",
            "name = 'socket'; require name",
            "require %q(socket)",
            "require 'socket'.freeze",
            "gem 'socket'",
            "eval \"require 'socket'\"",
        ],
    },
    "bash": {
        "lib.sh": ["bash -c '. lib.sh'", 'eval "source lib.sh"'],
    },
}
CALLS = {
    "python": {
        "os.system": [
            "import os\ngetattr(os, 'system')('ls')",
            "import os\nrun = getattr(os, 'system')",
            "import os as o\ngetattr(o, 'system')",
            "import os\nos.__dict__['system']('ls')",
            "import sys\nsys.modules['os'].system('ls')",
            "import os\na = b = os\na.system('ls')",
            "exec('import os; os.system(1)')",
        ],
        "eval": ["map(eval, lines)", "exec('eval(x)')"],
    },
    "javascript": {
        "eval": ["(0, eval)('1')", "lines.map(eval)"],
        "fetch": ["urls.map(fetch)", "setTimeout(fetch, 1, 'x')"],
        "child_process.exec": [
            "import('child_process').then(cp => cp.exec('ls'))",
            "import('child_process').then(({ exec }) => exec('ls'))",
            "var exec = require('child_process')['exec']; exec('ls')",
            "let exec; ({ exec } = require('child_process')); exec('ls')",
            "const { exec = null } = require('child_process'); exec('ls')",
            "const cp = (await import('child_process')).default; cp.exec('ls')",
        ],
    },
    "java": {
        "java.lang.Runtime.getRuntime.exec": [
            'class A { void f() throws Exception { Runtime r; r = Runtime.getRuntime(); r.exec("ls"); } }',
        ],
        "java.lang.ProcessBuilder": ["class A { Object f = ProcessBuilder::new; }"],
    },
    "cpp": {
        "system": [
            "#define RUN system\nint main() { RUN(x); }",
            "#define RUN(x) system(x)\nint main() { RUN(y); }",
            "int main() { F f; f = system; f(x); }",
            "int main() { auto& f = system; f(x); }",
        ],
    },
    "go": {
        "math/rand/v2.IntN": ['package main\nimport "math/rand/v2"\nfunc main() { rand.IntN(3) }'],
        "gopkg.in/yaml.v3.Unmarshal": ['package main\nimport "gopkg.in/yaml.v3"\nfunc main() { yaml.Unmarshal(a, b) }'],
        "github.com/go-git/go-git/v5.Clone": [
            'package main\nimport "github.com/go-git/go-git/v5"\nfunc main() { git.Clone(a, b) }'
        ],
    },
    "r": {
        "system": [
            "do.call('system', list('ls'))",
            "get('system')('ls')",
            "match.fun('system')('ls')",
            "sapply(x, 'system')",
            "'system'('ls')",
            "system -> f; f('ls')",
            "eval(parse(text = 'system(1)'))",
        ],
    },
    "ruby": {
        "system": [
            "self.system('ls')",
            "send('system', 'ls')",
            "Kernel.send(:system, 'ls')",
            "Kernel&.system('ls')",
            "alias run system\nrun 'ls'",
            "alias_method :run, :system",
            "eval \"system('ls')\"",
        ],
        "`": ["open('|ls')", 'open("|ls") { |out| out.read }'],
        "IO.popen": ["IO.send(:popen, 'ls')", "IO.method('popen').call('ls')", "IO&.popen('ls')"],
        "Net::HTTP": ["Net.const_get(:HTTP).get(x)"],
        "fork": [
            "fork && exit",
            "fork while true",
            "loop { x = fork }",
            "[fork]",
            "wait(fork)",
            "fork ? 1 : 2",
            "case fork when nil then 1 end",
            "begin\n  fork\nend",
            '"#{fork}"',
        ],
        "gets": ["name = gets.chomp", "puts gets"],
    },
    "bash": {
        "curl": [
            "bash -c 'curl x'",
            'sh -c "curl x"',
            "sudo bash -c 'curl x'",
            "bash <<E\ncurl x\nE\n",
            'eval "curl x"',
            "eval curl x",
            "trap 'curl x' EXIT",
            "find . -exec curl {} \\;",
            "CURL=/usr/bin/curl; $CURL x",
            'CURL=curl; "${CURL}" x',
            "setsid curl x",
            "stdbuf -oL curl x",
            '"/usr/bin/curl" x',
        ],
    },
}
NOT_MODULES = {
    "python": {
        "os": [
            "print('import os')",
            "x.exec('import os')",
            "names = {'os': 1}\nnames['os']",
            "sys.path['os']",
            "import importlib\nimportlib.import_module('json')\nprint('os')",
            "name = 'https://os/x'\n__import__(name)",
            "name = 'os is a module'\n__import__(name)",
        ]
    },
    "javascript": {
        "http": [
            "const site = 'http://a.example'; require(name)",
            "require('x'); log('http')",
            "const s = \"eval('http')\"",
        ]
    },
    "cpp": {"sys/socket.h": ['#define A "#include <sys/socket.h>"\n', "#error <sys/socket.h>\n"]},
    "r": {"httr": ["c('httr')", "lapply(c('httr'), print)", "print('library(httr)')"]},
    "ruby": {"socket": ["%w[socket]", "%w[socket].each { |name| puts name }", "x.send(:puts, 'socket')"]},
    "bash": {"lib.sh": ["echo '. lib.sh'", "bash -x '. lib.sh.txt'"]},
}
NOT_CALLS = {
    "python": {"os.system": ["getattr(x, 'system')", "print('os.system(1)')"]},
    "javascript": {"eval": ["log('eval(1)')", "new Function2('eval(1)')"]},
    "cpp": {"system": ['#define A "system(1)"\n', "#define A 1\nint main() { A; }"]},
    "r": {"url": ["sapply(pages, '[[', 'url')", "x[['url']]"]},
    "ruby": {
        "fork": ["x.fork", ":fork", "'fork'", "{ fork: 1 }"],
        "system": ["send(:puts, 'system')"],
        "`": ["open('a|b')"],
    },
    "bash": {"curl": ["cat <<E\ncurl x\nE\n", "echo 'curl x'", "find . -name curl", "CURL=curl"]},
}


@pytest.mark.parametrize(("language", "module", "code"), cases(MODULES))
def test_a_module_that_is_named_by_a_string_is_found(language: str, module: str, code: str) -> None:
    assert found(language, code, modules=[module])


@pytest.mark.parametrize(("language", "call", "code"), cases(CALLS))
def test_a_call_that_does_not_use_the_plain_name_is_found(language: str, call: str, code: str) -> None:
    assert found(language, code, calls=[call])


@pytest.mark.parametrize(("language", "module", "code"), cases(NOT_MODULES))
def test_text_that_no_import_uses_is_not_a_module(language: str, module: str, code: str) -> None:
    assert not found(language, code, modules=[module])


@pytest.mark.parametrize(("language", "call", "code"), cases(NOT_CALLS))
def test_text_that_nothing_runs_is_not_a_call(language: str, call: str, code: str) -> None:
    assert not found(language, code, calls=[call])


def test_the_reported_line_is_that_of_the_text() -> None:
    assert found("python", "x = 1\n\nexec('''\n\nimport os''')", modules=["os"]) == [(3, "imports os")]
    assert found("r", "p <- c(\n'dplyr',\n'httr')\nlapply(p, library)", modules=["httr"]) == [(3, "imports httr")]
