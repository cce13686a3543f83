# Replaces R's own functions that must behave differently in a session that goes on after them.

process <- Sys.getpid()
leave <- function(status) .Internal(quit("no", as.integer(status), FALSE))

# Ends the run with a status; in a process that the code forked, ends the process.
end_run <- function(save = "default", status = 0, runLast = TRUE) {
  if (Sys.getpid() != process) leave(status)
  signalCondition(structure(
    class = c("sandbox_end", "condition"), list(message = "", call = NULL, status = status, run_last = runLast)
  ))
  leave(status)
}

# While C's system() waits, R ignores SIGINT: a shell around the command's own shell reports whether a SIGINT came.
run_command <- function(command, intern, timeout) {
  Sys.sleep(0) # here R checks for interrupts
  result <- .Internal(system(paste("trap 'exit 130' INT; sh -c", shQuote(command)), intern, timeout))
  Sys.sleep(0)
  if (intern) return(result)
  if (identical(result, 130L)) {
    signalCondition(structure(class = c("interrupt", "condition"), list(message = "", call = NULL)))
  }
  invisible(result)
}

# The code of a function in which one call is replaced.
in_place_of <- function(old, new, code) {
  if (identical(code, old)) return(new)
  if (is.call(code)) {
    for (i in seq_along(code)) if (is.call(code[[i]])) code[[i]] <- in_place_of(old, new, code[[i]])
  }
  code
}

redefine <- function(name, value) {
  unlockBinding(name, baseenv())
  assign(name, value, envir = baseenv())
  lockBinding(name, baseenv())
}

for (name in c("quit", "q")) redefine(name, end_run)
for (name in c("system", "system2")) {
  redefined <- get(name, envir = baseenv())
  new <- as.call(list(run_command, quote(command), quote(intern), quote(timeout)))
  body(redefined) <- in_place_of(quote(.Internal(system(command, intern, timeout))), new, body(redefined))
  redefine(name, redefined)
}
# R's own `warnings` reads a variable of the base environment, which accepts no new names.
redefine("warnings", function(...) if (length(last_warnings)) structure(last_warnings, class = "warnings"))

# The code is at the top level: the runner's frames below it do not exist for these functions. `top` is how many there
# are, and 0 while no code runs. R answers for the function that evaluates `.Internal`, which therefore is no argument
# of a call.
top <- 0L
frame_number <- sys.nframe
above_top <- function(frames) if (length(frames) > top) frames[-seq_len(top)]
from_top <- function(numbers) as.integer(pmax(numbers - top, 0L))
# The number of a frame that the code names as R allows it: from the top, or back from the frame that asks; 0 for the
# top.
numbered <- function(which, asking) {
  number <- if (which > 0L) top + which else asking + which
  if (number > top) as.integer(number) else 0L
}
redefine("sys.nframe", function() {
  number <- .Internal(sys.nframe())
  from_top(number)
})
redefine("sys.parent", function(n = 1L) {
  number <- .Internal(sys.parent(n))
  from_top(number)
})
redefine("sys.parents", function() {
  numbers <- .Internal(sys.parents())
  from_top(above_top(numbers))
})
redefine("sys.calls", function() {
  calls <- .Internal(sys.calls())
  as.pairlist(above_top(calls))
})
redefine("sys.frames", function() {
  frames <- .Internal(sys.frames())
  as.pairlist(above_top(frames))
})
redefine("sys.call", function(which = 0L) {
  asking <- .Internal(sys.nframe())
  number <- numbered(which, asking)
  if (number > 0L) .Internal(sys.call(number)) else NULL
})
redefine("sys.frame", function(which = 0L) {
  asking <- .Internal(sys.nframe())
  number <- if (which == 0L) 0L else numbered(which, asking)
  .Internal(sys.frame(number))
})
redefine("sys.function", function(which = 0L) {
  asking <- .Internal(sys.nframe())
  number <- if (which == 0L) 0L else numbered(which, asking)
  .Internal(sys.function(number))
})

# As Rscript starts R with the file that holds a cell.
program <- commandArgs()[[1L]]
redefine("commandArgs", function(trailingOnly = FALSE) {
  if (trailingOnly) character() else c(program, "--no-echo", "--no-restore", paste0("--file=", cell_name))
})

# What code leaves for the exit of R, apart from the function `.Last`: any finalizers, and whether the code itself
# registered one. Packages register theirs when they are loaded.
finalizers <- own_finalizers <- FALSE
redefine("reg.finalizer", function(e, f, onexit = FALSE) {
  if (isTRUE(onexit)) {
    finalizers <<- TRUE
    loading <- vapply(sys.calls(), function(call) identical(call[[1L]], quote(loadNamespace)), NA)
    if (!any(loading)) own_finalizers <<- TRUE
  }
  .Internal(reg.finalizer(e, f, onexit))
})

# R searches for its libraries when it starts, and the folder does not exist before the first installation.
libraries <- Sys.getenv("SANDBOX_LIBRARIES")
find_libraries <- function() {
  if (nzchar(libraries) && !libraries %in% .libPaths() && dir.exists(libraries)) .libPaths(c(libraries, .libPaths()))
}
