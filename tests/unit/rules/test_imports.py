"""Modules are found in every spelling of an import, and nowhere else."""

import pytest

from .judges import LANGUAGES, found

FOUND = {
    "python": {
        "os": [
            "import os",
            "import os,sys",
            "import sys, os",
            "import os.path",
            "import json; import os as o",
            "from os import path as p",
            "from os.path import (join,\n split)",
            "from os import *",
            "if x:\n    import os",
            "def f():\n  from os import system\n",
            "__import__('os')",
            '__import__("os").system("ls")',
            "x = __import__('os', globals())",
            "import importlib\nimportlib.import_module('os')",
            "import importlib as i\ni.import_module(name='os')",
            "from importlib import import_module as load\nload('os.path')",
            "import builtins\nbuiltins.__import__('os')",
            "import \\\n  os",
            "import \uff4fs",
            "__import__('o\\x73')",
            "import os # why not",
            "await f(); import os",
            "try: import os\nexcept: pass",
        ],
        "os.path": ["from os import path", "import os\nos.path.join('a')", "import os as o\no.path.join('a')"],
        "matplotlib.pyplot": ["from matplotlib import pyplot as plt", "import matplotlib.pyplot as plt"],
    },
    "javascript": {
        "fs": [
            "import fs from 'fs'",
            'import * as f from "node:fs"',
            "import { readFile as r, stat } from 'fs/promises';",
            "import 'fs'",
            "export * from 'fs'",
            "const f = require('fs')",
            "const { readFile } = require('node:fs')",
            "require(`fs`).readFileSync('x')",
            "await import('fs')",
            "const f = await import(\n  'fs/promises')",
            "import('fs').then(f => f)",
            "module . require ( 'fs' )",
            "globalThis.require('fs')",
            "process.getBuiltinModule('fs')",
            "const r = require; r('fs')",
            "import { createRequire } from 'module'; const require = createRequire(x); require('fs')",
            "require('\\x66s')",
        ],
        "@scope/tool": ["import t from '@scope/tool'", "require('@scope/tool/part')"],
    },
    "java": {
        "java.net": [
            "import java.net.Socket; class A {}",
            "import java.net.*; class A {}",
            "import static java.net.URI.create; class A {}",
            "import java . net . Socket; class A {}",
            "import java.net./* the class */Socket; class A {}",
            'class A { void f() throws Exception { new java.net.Socket("a", 1); } }',
            "class A { java.net.URI uri; }",
            "class A { void f(java.net.URI uri) {} }",
            'class A { Object f() { return java.net.URI.create("x"); } }',
            "class A { Object f() { return java.net.http.HttpClient.newHttpClient(); } }",
            'class A { Class<?> f() throws Exception { return Class.forName("java.net.Socket"); } }',
            "class A extends java.net.URLClassLoader {}",
            "class A { java.util.List<java.net.URI> all; }",
        ],
        "java.net.Socket": [
            "import java.net.*; class A { Socket s; }",
            "import java.net.*; class A { Object o = new Socket(); }",
        ],
    },
    "cpp": {
        "sys/socket.h": [
            "#include <sys/socket.h>\n",
            '#include "sys/socket.h"',
            "#  include<sys/socket.h>",
            "#if 1\n#include <sys/socket.h>\n#endif\n",
        ],
        "boost": ["#include <boost/asio.hpp>"],
    },
    "go": {
        "os/exec": [
            'package main\nimport "os/exec"',
            'package main\nimport (\n\t"fmt"\n\t"os/exec"\n)',
            'package main\nimport e "os/exec"',
            'package main\nimport . "os/exec"',
            "package main\nimport _ `os/exec`",
        ],
        "net": ['package main\nimport "net/http"'],
        "C": ['package main\n// int x;\nimport "C"'],
    },
    "r": {
        "httr": [
            "library(httr)",
            'library("httr")',
            "library ( 'httr' )",
            "require(httr)",
            "suppressMessages(library(httr))",
            "httr::GET('x')",
            "httr:::f()",
            "x <- httr::GET",
            "lapply(urls, httr::GET)",
            "requireNamespace('httr', quietly = TRUE)",
            'loadNamespace("httr")',
            "base::library(httr)",
            "library(package = httr)",
        ]
    },
    "ruby": {
        "socket": [
            "require 'socket'",
            'require("socket")',
            "require 'socket.rb'",
            "require 'socket.so'",
            "Kernel.require 'socket'",
            "load 'socket.rb'",
            "begin; require 'socket'; rescue LoadError; end",
            "autoload :Socket, 'socket'",
            "require 'json' if require 'socket'",
        ],
        "net": ["require 'net/http'"],
        "tool": ["require_relative 'tool'"],
    },
    "bash": {
        "lib.sh": [
            "source ./lib.sh",
            ". lib.sh",
            "cd x && . 'lib.sh'",
            'source "lib.sh"',
            "if true; then . /opt/lib.sh; fi",
        ],
    },
}

NOT_FOUND = {
    "python": {
        "os": [
            "import oslo",
            "import macos, posix",
            "from oslo.os import x",
            "from . import os",
            "from .os import x",
            "# import os",
            "'import os'",
            '"""\nimport os\n"""',
            "x = 'import os'  # import os",
            "os = 1; os + 1",
            "self.os.path",
            "f(os=1)",
            "def os(): pass",
            "import importlib\nimportlib.import_module('oslo')",
            "print('__import__(\"os\")')",
            "x.import_module('os')",
        ],
        "socket": ["def f(socket): socket.close()"],
        "os.path": ["import os\nos.getcwd()", "from pathos import path"],
    },
    "javascript": {
        "fs": [
            "// import fs from 'fs'",
            "/* require('fs') */",
            "const s = \"require('fs')\"",
            "`import 'fs'`",
            "import x from 'fs-extra'",
            "import x from './fs'",
            "require('fss')",
            "x.require('fs')",
            "const fs = 1; fs.x()",
            "/require('fs')/.test('x')",
        ]
    },
    "java": {
        "java.net": [
            "// import java.net.Socket;\nclass A {}",
            "/* java.net.Socket */ class A {}",
            'class A { String s = "java.net.Socket"; }',
            "import java.network.Socket; class A {}",
            "import java.util.*; class A {}",
            'class A { String s = """\n java.net.URI\n"""; }',
        ]
    },
    "cpp": {
        "sys/socket.h": [
            "// #include <sys/socket.h>",
            "/*\n#include <sys/socket.h>\n*/",
            'auto s = "#include <sys/socket.h>";',
            "#include <my/sys/socket.h>",
            'auto s = R"(\n#include <sys/socket.h>\n)";',
        ]
    },
    "go": {
        "os/exec": [
            'package main\n// import "os/exec"',
            'package main\nvar s = "os/exec"',
            'package main\nvar s = `\nimport "os/exec"\n`',
            'package main\nimport "my/os/exec"',
            'package main\nimport "os/execute"',
            'package main\nimport "os"',
        ]
    },
    "r": {
        "httr": [
            "# library(httr)",
            "x <- 'library(httr)'",
            "library(httr2)",
            "httr <- 1; httr + 1",
            "f(httr = 1)",
            "library2(httr)",
        ]
    },
    "ruby": {
        "socket": [
            "# require 'socket'",
            "=begin\nrequire 'socket'\n=end",
            "x = \"require 'socket'\"",
            "require 'sockets'",
            "socket = 1",
            "x.require 'socket'",
            "<<~E\nrequire 'socket'\nE\n",
        ]
    },
    "bash": {
        "lib.sh": [
            "# source lib.sh",
            "echo 'source lib.sh'",
            "cat <<E\nsource lib.sh\nE\n",
            "source mylib.sh",
            "lib.sh",
        ]
    },
}


def cases(table: dict[str, dict[str, list[str]]]) -> list[tuple[str, str, str]]:
    return [
        (language, module, code) for language, by in table.items() for module, codes in by.items() for code in codes
    ]


@pytest.mark.parametrize(("language", "module", "code"), cases(FOUND))
def test_a_module_is_found_in_this_spelling(language: str, module: str, code: str) -> None:
    assert found(language, code, modules=[module])


@pytest.mark.parametrize(("language", "module", "code"), cases(NOT_FOUND))
def test_a_module_is_not_found_here(language: str, module: str, code: str) -> None:
    assert not found(language, code, modules=[module])


def test_the_tables_cover_every_language() -> None:
    assert set(FOUND) == set(NOT_FOUND) == set(LANGUAGES)


def test_the_reported_line_is_the_first_that_names_the_module() -> None:
    assert found("python", "x = 1\n\nimport json, os\nimport os.path\n", modules=["os"]) == [(3, "imports os")]
