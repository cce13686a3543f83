"""Java, C++ and Go with the whole server: difficult cases, in addition to the selftests in their folders.

It takes long because each of its programs is compiled, and those in Java start a JVM twice.
"""

import re
import shutil
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from llm_sandbox_mcp.base.errors import InstallFailed, InvalidArgument
from llm_sandbox_mcp.base.results import Execution, Installation
from llm_sandbox_mcp.languages.languages import load_languages
from llm_sandbox_mcp.profile.sections import LanguageSection
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.testing.asking import execute, install, open_session
from llm_sandbox_mcp.wiring import open_service
from tests.engines import MIB, host_folder, need, small_profile
from tests.handlers.indexes import pages
from tests.local_index import LocalIndex, Page, local_index

pytestmark = pytest.mark.anyio

_LIMITS = {"memory": 1024 * MIB, "pids": 256, "disk": 256 * MIB, "cpus": 2.0}
_BOUND = 60.0
"""Seconds for a single test: a compiler on a busy machine is slow."""


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def indexes() -> Iterator[dict[str, LocalIndex]]:
    """An index for each language, empty until `serve` fills it for a language whose toolchain is installed."""
    with local_index() as cpp, local_index() as go, local_index() as java:
        yield {"cpp": cpp, "go": go, "java": java}


@pytest.fixture
def serve(indexes: dict[str, LocalIndex]) -> Callable[[str], LocalIndex]:
    def serve(language: str) -> LocalIndex:
        need_toolchain(language)
        index = indexes[language]
        if not index.pages:
            index.pages.update(pages(language))
        return index

    return serve


def need_toolchain(language: str) -> None:
    requires = load_languages()[language].handler.requires
    missing = [command for command in requires.commands if shutil.which(command) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} is not installed: {requires.install}")


@asynccontextmanager
async def serving(
    indexes: Mapping[str, str],
    env: Mapping[str, Mapping[str, str]] | None = None,
    bound: float | None = _BOUND,
) -> AsyncIterator[Service]:
    """A service whose compiled languages install from these indexes."""
    await need("embedded")
    env = env or {}
    languages = {name: LanguageSection(index=url, env=env.get(name, {})) for name, url in indexes.items()}
    with host_folder() as folder, anyio.fail_after(bound):
        profile = small_profile("embedded", folder, limits=_LIMITS)
        async with open_service(profile.model_copy(update={"languages": languages})) as service:
            yield service


@pytest.fixture
async def service(indexes: dict[str, LocalIndex]) -> AsyncIterator[Service]:
    async with serving({name: f"{index.url}/" for name, index in indexes.items()}) as service:
        yield service


@pytest.fixture(scope="module")
async def java(anyio_backend: str) -> AsyncIterator[Callable[..., Any]]:
    """Runs one program after another in one session, so that the handler's build tool is compiled only once."""
    need_toolchain("java")
    async with serving({}, bound=None) as service:
        session = open_session(service)

        async def run(code: str, language: str = "java") -> Execution:
            with anyio.fail_after(_BOUND):
                return await execute(service, code, language=language, session_id=session)

        await run(";")
        yield run


EACH = """\
import java.io.*;
import java.net.*;
import java.nio.file.*;
import java.util.*;
import java.util.stream.*;

class Each {
    public static void main(String[] args) throws Exception {
        Path home = Path.of(System.getenv("HOME"), "build/java/build");
        Class<?> tool = Class.forName("Main", true, new URLClassLoader(new URL[] {home.toUri().toURL()}));
        var build = tool.getDeclaredMethod("build", String.class, Path.class);
        build.setAccessible(true);
        for (int number = 0; Files.exists(Path.of("codes/" + number)); number++) {
            System.setErr(new PrintStream("said/" + number));
            build.invoke(null, Files.readString(Path.of("codes/" + number)), Path.of("built/" + number));
        }
    }
}
"""
"""Builds the programs in a folder with the handler's own tool, in one JVM: a JVM for each would take most of the time."""

STARTS = """\
for number in $(ls codes | sort -n); do
  cat said/$number
  if [ -f built/$number/start ]; then %s 2>&1; else echo "not built"; fi
  echo "=== $number: $?"
done
"""


@pytest.fixture(scope="module")
async def each(java: Callable[..., Any]) -> Mapping[str, str]:
    """What each of the programs below prints, or why it cannot be built."""
    codes = [code for code, _ in (*PROGRAMS.values(), *MISTAKES.values())]
    made = f"import os\nfor folder in ('codes', 'said'): os.mkdir(folder)\nfor number, code in enumerate({codes!r}):\n"
    assert (await java(f"{made}    open(f'codes/{{number}}', 'w').write(code)\n", "python")).status == "ok"
    built = await java(EACH)
    assert built.status == "ok", built
    build = load_languages()["java"].handler.build
    assert build is not None
    start = " ".join(build.run).replace("{build}", "built/$number")
    said = re.split("=== [0-9]+: 0\n", (await java(STARTS % start, "bash")).stdout.text)
    return dict(zip(codes, said[:-1], strict=True))


@pytest.fixture(scope="module")
async def maven(anyio_backend: str, indexes: dict[str, LocalIndex]) -> AsyncIterator[Callable[..., Any]]:
    """Installs libraries of Java into one session, so that the handler's installer is compiled only once."""
    need_toolchain("java")
    indexes["java"].pages.update(pages("java"))
    async with serving({"java": f"{indexes['java'].url}/"}, bound=None) as service:
        session = open_session(service)

        async def run(*libraries: str) -> Installation:
            with anyio.fail_after(_BOUND):
                return await install(service, list(libraries), language="java", session_id=session)

        await run("org.example:words:1.5")
        yield run


PROGRAMS = {
    "a class that is not public": (
        "class Any {\n  public static void main(String[] args) { System.out.print(Any.class.getName()); }\n}",
        "Any",
    ),
    "main in the second of several classes": (
        "class First {}\nclass Second {\n  public static void main(String... args) { System.out.print(new First() != null); }\n}",
        "true",
    ),
    "the public one of two classes with main": (
        "class First { public static void main(String[] args) { System.out.print(1); } }\n"
        "public class Second { public static void main(String[] args) { System.out.print(2); } }",
        "2",
    ),
    "a package": (
        "package a.b;\nclass Inside { public static void main(String[] args) { System.out.print(Inside.class.getName()); } }",
        "a.b.Inside",
    ),
    "an interface, an enum and a record": (
        "interface Shape { double area(); }\nenum Unit { CM { void f() {} }, M }\n"
        "record Square(double side) implements Shape { public double area() { return side * side; } }\n"
        'class Main { public static void main(String[] args) { System.out.print(new Square(3).area() + " " + Unit.M); } }',
        "9.0 M",
    ),
    "main in an interface": (
        "interface Runs { static void main(String[] args) { System.out.print(1); } }",
        "1",
    ),
    "statements with imports and a comment at the end": (
        'import java.util.*;\nList<String> names = new ArrayList<>(List.of("b", "a"));\nCollections.sort(names);\n'
        "System.out.print(names); // done",
        "[a, b]",
    ),
    "statements with methods, fields and types": (
        "import java.util.*;\nSystem.out.print(twice(new Point(counter, 2)));\n"
        "private static int counter = 1;\n"
        "List<Point> twice(Point point) throws Exception {\n  return List.of(point, point);\n}\n"
        "record Point(int x, int y) {}\n"
        "<T> T same(T value) { return value; }\n"
        "for (int i = 0; i < 2; i++) { System.out.print(same(i)); }\n",
        "[Point[x=1, y=2], Point[x=1, y=2]]01",
    ),
    "statements with braces in strings": (
        'String text = "}{" + \'}\' + """\n  void f() {\n  "x" }""";\nSystem.out.print(text.length()); /* } */',
        "19",
    ),
    "statements after a character of two units": (
        'String globe = "🌍";\nint units(String text) { return text.length(); }\nSystem.out.print(units(globe));',
        "2",
    ),
    "statements of every kind": (
        "int n = 0;\nif (n == 0) { n++; } else { n--; }\ntry { n += 1; } finally { n *= 2; }\n"
        "do { n--; } while (n > 3);\nsynchronized (Main.class) { n += 10; }\nint[] list = {1, 2};\n"
        "switch (n) { case 13: n = 0; break; default: n = list[1]; }\n"
        'Runnable r = new Runnable() { public void run() { System.out.print("ran"); } };\nr.run();\n'
        "class Local { int value = 5; }\nSystem.out.print(new Local().value + n);",
        "ran5",
    ),
    "methods without a class": (
        'void main() {\n  greet("world");\n}\nvoid greet(String name) { System.out.print("hello " + name); }',
        "hello world",
    ),
    "statements in a package that throw checked exceptions": (
        "package a;\nThread.sleep(1);\nSystem.out.print(Thread.currentThread().getStackTrace()[1].getClassName());",
        "a.Main",
    ),
    "statements and methods that share variables": (
        "import java.util.*;\nint x = 5, list[] = {1, 2}, sum;\nint square() { return x * x; }\n"
        "void add() { for (int n : list) sum += n; }\nx = 6; add();\n"
        'System.out.print(square() + " " + sum);',
        "36 3",
    ),
    "variables that a method uses, with types that the compiler finds": (
        "import java.util.*;\nvar memo = new HashMap<Integer, Long>();\nvar mixed = List.of(1, names());\n"
        "var hello = new Runnable() { public void run() { System.out.print(memo.size()); } };\n"
        "long fib(int n) {\n  if (n < 2) return n;\n  Long known = memo.get(n);\n  if (known != null) return known;\n"
        "  memo.put(n, fib(n - 1) + fib(n - 2));\n  return memo.get(n);\n}\n"
        "List<? extends CharSequence> names() { return new ArrayList<>(List.of()); }\n"
        "void greet() { hello.run(); }\nint all() { return mixed.size(); }\n"
        'System.out.print(fib(50) + " " + all() + " "); greet();',
        "12586269025 2 49",
    ),
    "a variable that a record and a switch use": (
        "final int LIMIT = 3;\nrecord Point(int x) { boolean far() { return x > LIMIT; } }\n"
        'String size(int n) { switch (n) { case LIMIT: return "limit"; default: return "other"; } }\n'
        "System.out.print(size(3) + size(4) + new Point(9).far());",
        "limitothertrue",
    ),
    "variables that nothing shares have the rules of local ones": (
        "import java.util.function.*;\nint n = 2;\nint twice(int n) { return 2 * n; }\n"
        "IntSupplier later = () -> twice(n);\nint late;\nif (n > 1) late = 1; else late = 2;\n"
        "System.out.print(later.getAsInt() + late);",
        "5",
    ),
    "fields of methods without a class": (
        'int count = 2;\nString name = "n";\nvoid main() { count++; System.out.print(name + count); }',
        "n3",
    ),
    "statements and a class named Main": (
        "class Main { static int x = 4; }\nSystem.out.print(Main.x);",
        "4",
    ),
}


@pytest.mark.parametrize(("code", "printed"), PROGRAMS.values(), ids=PROGRAMS)
async def test_java_runs(each: Mapping[str, str], code: str, printed: str) -> None:
    assert each[code] == printed


MISTAKES = {
    "an expression": ("int a = 1;\n\n  int b = c + a;", "Main.java:3: error: cannot find symbol\n  int b = c + a;\n          ^"),
    "the first line": ('String s = 1;', "Main.java:1: error: incompatible types"),
    "a line that begins with tabs": ("class A {\n\t\tint x = y;\n}", "A.java:2: error: cannot find symbol\n\t\tint x = y;\n\t\t        ^"),
    "a method among statements": ("f();\nvoid f() {\n  return 1;\n}", "Main.java:3: error: incompatible types"),
    "a missing brace": ("int a = 1;\nif (a > 0) {\n  a++;\n", "Main.java:3: error: reached end of file"),
    "a shared variable": ('int f() { return x; }\nf();\nint x =\n  "a";', "Main.java:4: error: incompatible types"),
    "the type of a shared variable": ("int f() { return x.n; }\n\nFoo x = null;", "Main.java:3: error: cannot find symbol\nFoo x = null;\n^"),
    "a variable before it is declared": ("f(n);\nvoid f(int m) {}\nint n = 1;", "Main.java:1: error: cannot find symbol"),
    "a lambda's variable": ("int n = 0;\n\nRunnable r = () -> n++;", "Main.java:3: error: local variables referenced from a lambda"),
    "a variable without a value": ("int n;\nint f() { return 1; }\nf(n);", "Main.java:3: error: "),
    "a brace too many": ("int a = 1;\n}\n", "Main.java:2: error: "),
    "an import that does not exist": ("import no.such.Thing;\nSystem.out.println();", "Main.java:1: error: package no.such does not exist"),
    "no main": ("class A {}", "error: the program has no main method"),
}  # fmt: skip


@pytest.mark.parametrize(("code", "message"), MISTAKES.values(), ids=MISTAKES)
async def test_java_reports_a_mistake_at_its_line(each: Mapping[str, str], code: str, message: str) -> None:
    assert message in each[code]
    assert each[code].endswith("not built\n")
    assert each[code].count("error:") == 1, each[code]


async def test_a_stack_trace_has_the_lines_of_methods_among_statements(java: Callable[..., Any]) -> None:
    result = await java('first();\nvoid first() {\n  throw new IllegalStateException("no");\n}')
    assert "IllegalStateException: no" in result.stderr.text
    assert ".first(Main.java:3)" in result.stderr.text
    assert "at Main.main(Main.java:1)" in result.stderr.text


async def test_the_heap_of_java_is_limited_to_the_memory_of_the_sandbox(java: Callable[..., Any]) -> None:
    result = await java("long[][] all = new long[1 << 20][];\nfor (int i = 0; ; i++) all[i] = new long[1 << 17];")
    assert (result.status, result.exit_code, result.session_state) == ("error", 1, "kept"), result
    assert "OutOfMemoryError: Java heap space" in result.stderr.text
    assert "Main.java:2" in result.stderr.text


@pytest.mark.parametrize(
    ("language", "library"),
    [
        ("cpp", "--help"), ("cpp", "../x"), ("cpp", "lib dev"), ("cpp", "LibEigen"),
        ("go", "-u"), ("go", "./x"), ("go", "a/../b"), ("go", "a@b@c"), ("go", "https://a.b/c"),
        ("java", "org.example"), ("java", "a:b"), ("java", "a:b:c:d:e"), ("java", "../a:b:1"), ("java", "a:..:1"), ("java", "a:b:${x}"),
    ],
)  # fmt: skip
async def test_anything_but_a_library_name_is_refused(service: Service, language: str, library: str) -> None:
    with pytest.raises(InvalidArgument, match="is not a plain name"):
        await install(service, [library], language=language)


async def test_a_damaged_jar_is_refused(maven: Callable[..., Any], serve: Callable[[str], LocalIndex]) -> None:
    index = serve("java")
    for path, page in pages("java").items():
        if "words-1.5" in path:
            index.pages[path.replace("words", "harmed")] = Page(b"something else") if path.endswith(".jar") else page
    with pytest.raises(InstallFailed, match=r"org\.example:harmed:1\.5: the file in the index is damaged"):
        await maven("org.example:harmed:1.5")


async def test_libraries_are_downloaded_once_and_earlier_ones_are_kept(
    maven: Callable[..., Any], serve: Callable[[str], LocalIndex]
) -> None:
    index = serve("java")
    jar = "/org/example/words/1.5/words-1.5.jar"
    downloads = [path for path, _ in index.requests].count(jar)
    both = await maven("org.example:greeting:1.0")
    assert [library.name for library in both.libraries] == ["org.example:greeting", "org.example:words"]
    assert [path for path, _ in index.requests].count(jar) == downloads == 1


async def test_a_program_is_built_again_with_another_version_of_a_library(
    service: Service, serve: Callable[[str], LocalIndex]
) -> None:
    serve("go")
    code = 'package main\n\nimport "example.com/greeting"\n\nfunc main() { print(greeting.Version) }\n'
    session, seen = "", []
    for version in ("v1.0.0", "v1.1.0"):
        library = f"example.com/greeting@{version}"
        result = await execute(service, code, language="go", session_id=session, libraries=[library])
        session = result.session_id
        seen.append(result.stderr.text)
    assert seen == ["v1.0.0", "v1.1.0"]


async def test_a_module_that_is_not_installed_is_named_at_its_line(
    service: Service, serve: Callable[[str], LocalIndex]
) -> None:
    serve("go")
    result = await execute(
        service, 'package main\n\nimport _ "example.com/greeting"\n\nfunc main() {}\n', language="go"
    )
    assert result.status == "error"
    assert "main.go:3:8:" in result.stderr.text
    assert "example.com/greeting" in result.stderr.text


async def test_a_package_that_is_not_main_is_an_error(service: Service, serve: Callable[[str], LocalIndex]) -> None:
    serve("go")
    result = await execute(service, "package other\n\nfunc F() {}\n", language="go")
    assert result.status == "error"
    assert "no main packages" in result.stderr.text


async def test_a_note_names_the_signal_that_ended_a_program_but_not_an_exit_code_that_it_chose(
    service: Service,
) -> None:
    need_toolchain("cpp")
    code = "#include <cstdlib>\nint main() { if (std::getenv(%s)) return 139; int* volatile p = nullptr; *p = 1; }"
    crashed = await execute(service, code % '"NONE"', language="cpp")
    assert (crashed.status, crashed.exit_code) == ("error", 139)
    (note,) = crashed.notes
    assert note.startswith("the program ended with signal SIGSEGV; the usual cause is ")
    chosen = await execute(service, code % '"HOME"', language="cpp", session_id=crashed.session_id)
    assert (chosen.status, chosen.exit_code, chosen.notes) == ("error", 139, ())


async def test_the_profile_sets_the_standard_of_cpp() -> None:
    need_toolchain("cpp")
    async with serving({"cpp": ""}, {"cpp": {"CPP_STANDARD": "c++17"}}) as service:
        result = await execute(service, '#include <cstdio>\nint main() { printf("%ld", __cplusplus); }', language="cpp")
    assert result.stdout.text == "201703", result


async def test_cpp_includes_files_of_the_working_directory(service: Service) -> None:
    need_toolchain("cpp")
    run = await in_folder(service, "cpp", {"mine.hpp": "#define MINE 7", "sub/more.cpp": "int more() { return MINE; }"})
    code = '#include <cstdio>\n#include "mine.hpp"\n#include "sub/more.cpp"\nint main() { printf("%d", more()); }'
    assert await run(code) == "7"
    assert await run(code, {"mine.hpp": "#define MINE 8"}) == "8"


async def test_cpp_names_the_file_that_only_another_build_would_link(service: Service) -> None:
    need_toolchain("cpp")
    files = {
        "sub/stats.cpp": "double mean(double a, double b) { return (a + b) / 2; }",
        "program.cpp": "double mean(double, double);\nint main() { return mean(1, 2); }",
        "other.cpp": "double means() { return 0; }",
    }
    run = await in_folder(service, "cpp", files)
    declared = "namespace a { int more(int); }\ndouble mean(double, double);\n"
    assert r"'\n' + nothing" in await run(r"int main() { return '\n' + nothing; }")
    printed = await run(declared + "int main() { return mean(1, 2); }")
    assert "main.cpp:(.text" in printed
    assert printed.endswith(
        '\nmain.cpp: note: only this code is linked, and not sub/stats.cpp, which has "mean"; add #include "sub/stats.cpp", '
        "or run g++ with both in language bash\n"
    )
    assert "note: only" not in await run(declared + "int main() { return a::more(1); }")
    added = {"more.cc": "namespace a { int more(int x) { return x; } }"}
    assert "not more.cc, which" in await run(declared + "int main() { return a::more(1); }", added)
    assert "note: only" not in await run("int main() { return mean(1, 2); }")


async def test_java_finds_classes_of_the_working_directory_as_javac_does(service: Service) -> None:
    need_toolchain("java")
    files = {
        "Helper.java": "public class Helper { static int three() { return 3; } }",
        "org/tools/Tool.java": "package org.tools;\npublic class Tool { public static int four() { return 4; } }",
        "Broken.java": "class Broken {\n  nothing",
        **{f"Helper.{end}": "broken" for end in ("c", "cpp", "go", "kt")},
    }
    run = await in_folder(service, "java", files)
    code = (
        "import org.tools.Tool;\n"
        "class Uses { public static void main(String[] args) { System.out.print(Helper.three() + Tool.four()); } }"
    )
    assert await run(code) == "7"
    assert await run(code, {"Helper.java": files["Helper.java"].replace("3;", "5;")}) == "9"
    assert "/Broken.java:2: error: " in await run("new Broken();")


async def test_java_finds_compiled_classes_of_the_working_directory(java: Callable[..., Any]) -> None:
    compiled = "echo 'public class Made { static int five() { return 5; } }' > Made.java; javac Made.java; rm Made.java"
    assert (await java(compiled, "bash")).status == "ok"
    assert (await java("System.out.print(Made.five());")).stdout.text == "5"


GO = 'package main\n\nimport "example.com/app/util"\n\nfunc main() { println(util.Two() + helper()) }\n'


async def test_go_finds_what_go_run_finds_in_the_working_directory(service: Service) -> None:
    need_toolchain("go")
    files = {
        "go.mod": "module example.com/app\n",
        "util/util.go": "package util\n\nfunc Two() int { return 2 }",
        "helper.go": "package main\n\nfunc helper() int { return 40 }",
        "other.go": "package main\n\nfunc main() {}\n\nfunc helper() {}",
        "doc.go": "package doc",
        # Go refuses these beside its own files.
        **{f"other.{end}": "" for end in ("c", "cc", "cpp", "cxx", "f90", "m", "s", "swig", "syso")},
    }
    run = await in_folder(service, "go", files)
    assert await run(GO) == "42\n"
    assert await run(GO, {"util/util.go": files["util/util.go"].replace("2 }", "3 }")}) == "43\n"
    wrong = await run(GO.replace("helper()", "helpr()"))
    assert "main.go:5:36: undefined: helpr\n" in wrong
    assert "main.go:3:8: " in await run(GO.replace("util", "nothing"))


async def test_files_in_the_working_directory_do_not_keep_a_program_from_being_built(service: Service) -> None:
    need_toolchain("go")
    run = await in_folder(service, "go", {"go.mod": "module a b c", "helper.go": "package main\n\nfunc helper() {"})
    assert await run("package main\n\nfunc helper() { println(1) }\n\nfunc main() { helper() }\n") == "1\n"


IN_BASH = {
    "cpp": "printf '#include <greeting.hpp>\\n#include <cstdio>\\nint main() { puts(GREETING); }' > a.cpp; g++ a.cpp && ./a.out",
    "java": "echo 'class A { public static void main(String[] a) { System.out.println(org.example.Greeting.to(\"\")); } }' > A.java; javac A.java && java A",
    "go": "mkdir a; cd a; go mod init a; printf 'package main\\nimport (\\n\"fmt\"\\n\"example.com/greeting/polite\"\\n)\\nfunc main() { fmt.Println(polite.To(\"\")) }' > a.go; go mod tidy; go run .",
}  # fmt: skip


@pytest.mark.parametrize(
    ("language", "library"),
    [("cpp", "libgreeting-dev"), ("java", "org.example:greeting:1.0"), ("go", "example.com/greeting")],
)
async def test_bash_finds_the_libraries_of_compiled_languages(
    service: Service, serve: Callable[[str], LocalIndex], language: str, library: str
) -> None:
    serve(language)
    session = open_session(service)
    before = await execute(service, IN_BASH[language], language="bash", session_id=session)
    assert any(note.startswith("code asked for '") for note in before.notes), before
    await install(service, [library], language=language, session_id=session)
    after = await execute(service, f"rm -rf a; {IN_BASH[language]}", language="bash", session_id=session)
    assert after.stdout.text == "hello, \n", after


async def in_folder(service: Service, language: str, files: Mapping[str, str]) -> Callable[..., Any]:
    """Runs code in one session with these files, of which some change; returns what it prints."""
    session = open_session(service)

    async def run(code: str, changed: Mapping[str, str] = files) -> str:
        for path, text in changed.items():
            await service.files.copy_in(session, path, text.encode())
        done = await execute(service, code, language=language, session_id=session)
        return done.stdout.text + done.stderr.text

    return run


FLOOD = (
    "#define A #error\n"
    + "".join(f"#include <no_{number}>\n" for number in range(3))
    + "int main() {"
    + "x;" * 90_000
    + "}"
)
BOMBS = {
    "templates": "template<int N> struct A { A<N - 1> a; A<N - 2> b; };\ntemplate<int N, int M> struct B : B<N - 1, M>, B<N - 1, M + 1> {};\n"
    "template<int M> struct B<0, M> {};\nB<40, 0> bomb;\nint main() {}",
    "constant evaluation": "constexpr int f(int n) { return n < 2 ? n : f(n - 1) + f(n - 2); }\nconstexpr int n = f(60);\nint main() {}",
    "an endless file": '#include "/dev/zero"\nint main() {}',
}  # fmt: skip


@pytest.mark.parametrize("code", BOMBS.values(), ids=BOMBS)
async def test_a_compiler_that_does_not_end_is_stopped(service: Service, code: str) -> None:
    need_toolchain("cpp")
    result = await execute(service, code, language="cpp", timeout=1.0)
    assert result.status in ("timeout", "out_of_memory", "error"), result
    assert result.duration < 3
    after = await execute(service, "int main() {}", language="cpp", session_id=result.session_id)
    assert after.status == "ok", after


async def test_the_number_of_compiler_errors_is_limited(service: Service) -> None:
    need_toolchain("cpp")
    result = await execute(service, FLOOD, language="cpp")
    assert result.status == "error"
    assert result.stderr.text.count("error:") <= 20 + 1


async def test_an_unchanged_program_is_not_built_again(service: Service) -> None:
    need_toolchain("cpp")
    code = '#include <sys/stat.h>\n#include <cstdio>\nint main() { struct stat s; stat("/proc/self/exe", &s); printf("%ld", s.st_mtim.tv_nsec + s.st_ino); }'
    first = await execute(service, code, language="cpp")
    again = await execute(service, code, language="cpp", session_id=first.session_id)
    assert first.stdout.text == again.stdout.text
    elsewhere = await execute(service, code, language="cpp")
    assert elsewhere.stdout.text != first.stdout.text


HELLO = {
    "cpp": '#include <cstdio>\nint main() { std::puts("hello"); }',
    "go": 'package main\n\nimport "fmt"\n\nfunc main() { fmt.Println("hello") }',
    "java": 'System.out.println("hello");',
}


@pytest.mark.parametrize("language", HELLO)
async def test_a_second_run_uses_the_program_that_the_first_built(service: Service, language: str) -> None:
    need_toolchain(language)
    first = await execute(service, HELLO[language], language=language)
    built = f"find $HOME/build/{language} -type f -printf '%p %i %C@\\n' | sort"
    before = await execute(service, built, language="bash", session_id=first.session_id)
    again = await execute(service, HELLO[language], language=language, session_id=first.session_id)
    after = await execute(service, built, language="bash", session_id=first.session_id)
    assert first.stdout.text == again.stdout.text == "hello\n"
    assert before.stdout.text
    assert before.stdout.text == after.stdout.text
    await execute(service, HELLO[language] + "\n", language=language, session_id=first.session_id)
    other = await execute(service, built, language="bash", session_id=first.session_id)
    assert other.stdout.text != after.stdout.text


async def test_a_program_that_ignores_the_interrupt_is_killed_and_files_are_kept(service: Service) -> None:
    need_toolchain("cpp")
    first = await execute(service, '#include <fstream>\nint main() { std::ofstream("kept") << 1; }', language="cpp")
    stubborn = "#include <csignal>\n#include <unistd.h>\nint main() { std::signal(SIGINT, SIG_IGN); for (;;) pause(); }"
    result = await execute(service, stubborn, language="cpp", session_id=first.session_id, timeout=2.0)
    assert (result.status, result.session_state) == ("timeout", "kept"), result
    assert (await service.files.copy_out(first.session_id, "kept")).size == 1


async def test_a_program_that_was_removed_is_built_again(service: Service) -> None:
    need_toolchain("cpp")
    first = await execute(service, "int main() { return 5; }", language="cpp")
    remove = '#include <cstdlib>\nint main() { return std::system("rm -rf $HOME/build"); }'
    await execute(service, remove, language="cpp", session_id=first.session_id)
    again = await execute(service, "int main() { return 5; }", language="cpp", session_id=first.session_id)
    assert again.exit_code == 5, again


async def test_the_number_of_programs_that_a_session_keeps_is_limited(service: Service, tmp_path: Path) -> None:
    need_toolchain("cpp")
    session = ""
    for number in range(34):
        result = await execute(service, f"int main() {{ return {number}; }}", language="cpp", session_id=session)
        session = result.session_id
        assert result.exit_code == number
    count = await execute(service, "ls $HOME/build/cpp | wc -l", language="bash", session_id=session)
    assert count.stdout.text.strip() == "32"
