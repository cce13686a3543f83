"""What R keeps of the variables of a session that is saved, and what it names as lost."""

from collections.abc import AsyncIterator, Sequence

import pytest

from llm_sandbox_mcp import Sandboxes
from tests.engines import MIB, host_folder, need, small_profile

from .states import FOLDER, Snippets, carry, move, opened, run, save

pytestmark = pytest.mark.anyio

STATE = Snippets.of("r")
POINTER = "it contains a connection or another pointer to memory of this process"


@pytest.fixture
async def sandboxes(anyio_backend: str) -> AsyncIterator[Sandboxes]:
    await need("embedded")
    with host_folder() as folder:
        limits = {"memory": 1024 * MIB, "disk": 300 * MIB}
        async with Sandboxes(small_profile("embedded", folder, limits=limits)) as made:
            yield made


async def kept(sandboxes: Sandboxes, cells: Sequence[str], *looks: str) -> None:
    """Moves what cells made, all of it; what other code looks at there is true."""
    before, after, results = await move(sandboxes, STATE, cells, looks)
    assert (before.lost, after.lost, before.kept) == ({}, {}, after.kept)
    assert dict(zip(looks, results, strict=True)) == dict.fromkeys(looks, "[1] TRUE")


async def test_values_are_the_same(sandboxes: Sandboxes) -> None:
    cell = """
text <- "é\\u6f22"; numbers <- c(1.5, NA, Inf); whole <- 1:3; none <- NULL; truth <- NA; bytes <- as.raw(0:2); z <- 1i
table <- data.frame(x = 1:3, y = factor(c("a", "b", "a"))); when <- as.Date("2020-01-02"); formula <- y ~ x; call <- quote(f(x))
fit <- lm(x ~ as.integer(y), table); matrix <- matrix(1:4, 2, dimnames = list(c("a", "b"), NULL)); .hidden <- 1; T <- 0
"""
    await kept(
        sandboxes,
        [cell],
        'identical(text, "é\\u6f22") && identical(numbers, c(1.5, NA, Inf)) && identical(whole, 1:3) && is.null(none)',
        "identical(truth, NA) && identical(bytes, as.raw(0:2)) && identical(z, 1i) && .hidden == 1 && T == 0",
        'identical(table$y, factor(c("a", "b", "a"))) && when == as.Date("2020-01-02") && identical(call, quote(f(x)))',
        "all.equal(unname(predict(fit)), c(2, 2, 2)) && matrix[['b', 2]] == 4L && identical(environment(formula), globalenv())",
    )


async def test_what_is_one_environment_stays_one(sandboxes: Sandboxes) -> None:
    cell = """
a <- new.env(); b <- a; a$self <- a; holds <- list(a, f = function() a)
pair <- local({ n <- 0; list(up = function() { n <<- n + 1; n }, now = function() n) }); up <- pair$up; pair$up()
active <- new.env(); makeActiveBinding("now", function() 42, active); lockEnvironment(active)
lazy <- (function(x) function() x)(stop("evaluated"))
"""
    await kept(
        sandboxes,
        [cell],
        "identical(a, b) && identical(a$self, a) && identical(holds[[1]], a) && identical(holds$f(), a)",
        "up() == 2 && pair$now() == 2",
        "active$now == 42 && environmentIsLocked(active) && bindingIsActive('now', active)",
        "tryCatch(lazy(), error = conditionMessage) == 'evaluated'",
    )


async def test_functions_see_the_variables_of_the_session(sandboxes: Sandboxes) -> None:
    cell = """
total <- 1; count <- function(by = total) { total <<- total + by; total }
print.own <- function(x, ...) cat("own"); own <- structure(1, class = "own"); `%plus%` <- function(a, b) a + b
"""
    await kept(
        sandboxes,
        [cell],
        "count() == 2 && total == 2 && 1 %plus% 2 == 3",
        "capture.output(print(own)) == 'own'",
        "grepl('total <<- total + by', paste(attr(count, 'srcref'), collapse = ' '), fixed = TRUE)",
    )


async def test_classes_and_methods_of_s4_and_reference_classes_are_kept(sandboxes: Sandboxes) -> None:
    cell = """
setClass("Point", representation(x = "numeric")); setClass("Named", contains = "Point", representation(name = "character"))
invisible(setGeneric("area", function(shape) standardGeneric("area"))); setMethod("area", "Point", function(shape) shape@x)
setMethod("show", "Point", function(object) cat("a point")); point <- new("Named", x = 3, name = "p")
setMethod("+", signature("Point", "Point"), function(e1, e2) new("Point", x = e1@x + e2@x)); setValidity("Point", function(object) length(object@x) == 1)
Account <- setRefClass("Account", fields = list(total = "numeric"), methods = list(add = function(by) { total <<- total + by; invisible(.self) }))
account <- Account$new(total = 1); same <- account
"""
    await kept(
        sandboxes,
        [cell],
        "area(point) == 3 && is(point, 'Point') && (point + point)@x == 6 && point@name == 'p'",
        "capture.output(point) == 'a point'",
        "account$add(5); same$total == 6 && Account$new(total = 2)$add(1)$total == 3",
        "setClass('More', contains = 'Point'); area(new('More', x = 7)) == 7",
        "inherits(tryCatch(new('Point', x = 1:2), error = identity), 'error')",
    )


async def test_modes_are_kept(sandboxes: Sandboxes) -> None:
    async with sandboxes.session(language="r") as one, sandboxes.session(language="r") as other:
        await other.make_folder("sub")
        await run(
            one,
            'library(splines); library(stats4); options(digits = 3, own = list(1), scipen = 9); Sys.setenv(ADDED = "é"); '
            'Sys.unsetenv("LANG"); dir.create("sub"); setwd("sub"); fixed <- 1; lockBinding("fixed", globalenv())',
        )
        await save(one, STATE)
        await carry(one, other)
        after = await opened(other, STATE)
        assert (after.lost, after.kept) == ({}, 1)
        assert await run(other, 'identical(search()[2:3], c("package:stats4", "package:splines"))') == "[1] TRUE"
        assert await run(other, "pi") == "[1] 3.14"
        assert await run(other, 'identical(getOption("own"), list(1)) && Sys.getenv("ADDED") == "é"') == "[1] TRUE"
        assert await run(other, 'is.na(Sys.getenv("LANG", NA)) && getwd() == "/sandbox/sub"') == "[1] TRUE"
        assert "cannot change value" in (await other.run("fixed <- 2")).stderr.text


@pytest.mark.parametrize(
    ("cell", "name", "kind", "reason"),
    [
        ('x <- file("x.txt", "w")', "x", "file", "a connection belongs to this process"),
        ('x <- textConnection("a")', "x", "textConnection", "a connection belongs to this process"),
        ('x <- list(deep = list(file("x.txt")))', "x", "list", POINTER),
        ('x <- local({ con <- file("x.txt"); function() con })', "x", "function", POINTER),
        ('x <- new.env(); x$own <- x; x$deep <- file("x.txt")', "x", "environment", POINTER),
        ('x <- attr(file("x.txt"), "conn_id")', "x", "externalptr", POINTER),
        ('x <- structure(1, class = "mine", con = file("x.txt"))', "x", "mine", POINTER),
        (
            "makeActiveBinding('x', function() stop('called'), globalenv())",
            "x",
            "active binding",
            "a function computes its value",
        ),
        ("delayedAssign('x', stop('no'))", "x", "promise", "its value cannot be found: no"),
        ("attach(list(a = 1), name = 'mine')", "mine", "attached", "only packages are attached again"),
        ('options(own = file("x.txt"))', "options(own)", "file", "a connection belongs to this process"),
    ],
)
async def test_what_cannot_be_kept_is_named(sandboxes: Sandboxes, cell: str, name: str, kind: str, reason: str) -> None:
    before, after, results = await move(sandboxes, STATE, ["good <- 1:3", f"invisible({{{cell}}})"], ["sum(good)"])
    lost = {key: value for key, value in before.lost.items() if value[0] != "connection"}
    assert lost == {name: (kind, reason)}
    assert ('"w"' in cell) == ("(x.txt)" in before.lost)
    assert (before.kept, after.kept, after.lost, results) == (1, 1, {}, ["[1] 6"])


async def test_overridden_functions_are_not_called(sandboxes: Sandboxes) -> None:
    cell = """
good <- 1; bad <- structure(list(1), class = "bad")
length.bad <- function(x) stop("called"); names.bad <- length.bad; as.character.bad <- length.bad
for (name in c("serialize", "file", "get", "ls", "lapply", "vapply", "environment", "q", "c", "names", "list", "library", "invisible"))
  assign(name, function(...) stop("called"))
"""
    before, after, results = await move(sandboxes, STATE, [cell], ["good", "class(bad)"])
    assert (before.lost, after.lost, results) == ({}, {}, ["[1] 1", '[1] "bad"'])


async def test_saving_leaves_no_trace(sandboxes: Sandboxes) -> None:
    async with sandboxes.session(language="r") as session:
        await run(session, "x <- 1\ny <- new.env()\nopt <- options()\n5")
        first = await save(session, STATE)
        assert await run(session, ".Last.value") == "[1] 5"
        assert await run(session, "identical(options(), opt) && nrow(showConnections()) == 0") == "[1] TRUE"
        assert await run(session, "ls(all.names = TRUE)") == '[1] "opt" "x"   "y"  '
        assert await save(session, STATE) == first


async def test_a_package_that_is_not_there_costs_only_itself(sandboxes: Sandboxes) -> None:
    async with sandboxes.session(language="r") as one, sandboxes.session(language="r") as other:
        await run(
            one,
            'dir.create("p/R", recursive = TRUE); writeLines(c("Package: own", "Version: 1.0"), "p/DESCRIPTION"); '
            'writeLines("export(f)", "p/NAMESPACE"); writeLines("f <- function() 1", "p/R/f.R"); dir.create("lib"); '
            'system2("R", c("CMD", "INSTALL", "--no-docs", "-l", "lib", "p"), stdout = FALSE, stderr = FALSE); '
            'library(own, lib.loc = "lib"); g <- f; good <- 1',
        )
        await save(one, STATE)
        await carry(one, other)
        after = await opened(other, STATE)
        assert after.lost["package:own"][0] == "package"
        assert "there is no package called" in after.lost["package:own"][1]
        assert any("own" in note for note in after.notes)
        assert await run(other, "good") == "[1] 1"


async def test_opening_again_skips_what_ended_the_interpreter(sandboxes: Sandboxes) -> None:
    async with sandboxes.session(language="r") as one, sandboxes.session(language="r") as other:
        await run(one, "library(splines); good <- 1")
        await save(one, STATE)
        await carry(one, other)
        ended = await other.run(
            "setHook(packageEvent('splines', 'onLoad'), function(...) tools::pskill(Sys.getpid(), 9))\n"
            + STATE.filled(STATE.open)
        )
        assert ended.status != "ok"
        assert await other.read("saved/opening") == b"package:splines\n"
        after = await opened(other, STATE)
        assert after.lost == {"package:splines": ("package", "opening it ended the interpreter")}
        assert await run(other, f"c(good, file.exists('{FOLDER}/opening'))") == "[1] 1 0"


async def test_what_has_no_room_is_lost_by_name(sandboxes: Sandboxes) -> None:
    async with sandboxes.session(language="r") as session:
        await run(session, "huge <- numeric(5e7); good <- numeric(1e6)")
        found = await save(session, STATE)
        assert found.lost == {"huge": ("numeric", "no room in the sandbox to save 381 MB")}
        assert found.kept == 1


async def test_what_is_inside_of_environments_needs_room_too(sandboxes: Sandboxes) -> None:
    async with sandboxes.session(language="r") as session:
        await run(session, "huge <- new.env(); huge$inside <- numeric(5e7); good <- 1")
        found = await save(session, STATE)
        assert found.lost == {"huge": ("environment", "no room in the sandbox to save 381 MB")}
        assert found.kept == 1


async def test_another_version_and_many_losses_are_noted(sandboxes: Sandboxes) -> None:
    async with sandboxes.session(language="r") as session:
        await run(
            session, "for (i in 1:510) makeActiveBinding(paste0('a\\t', i), function() 1, globalenv()); set.seed(1)"
        )
        found = await save(session, STATE)
        assert (len(found.lost), found.notes) == (500, ["random numbers start anew", "10 more are lost"])
        assert "a 1" in found.lost
        await run(
            session,
            f"s <- readRDS('{FOLDER}/settings'); s$version <- 'R version 4.0.0'; saveRDS(s, '{FOLDER}/settings')",
        )
        await session.restart()
        assert (await opened(session, STATE)).notes[0].startswith("saved by R version 4.0.0, opened by R version")
