# Replaces R's own functions that must behave differently in a session that goes on after them.

process <- Sys.getpid()
leave <- function(status) .Internal(quit("no", as.integer(status), FALSE))

# Ends the run with a status; in a process that the code forked, ends the process.
end_run <- function(save = "default", status = 0, runLast = TRUE) {
  if (Sys.getpid() != process) leave(status)
  signalCondition(structure(class = c("sandbox_end", "condition"), list(message = "", call = NULL, status = status)))
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

# Scripts use this to check whether they are the main script: at the top of a cell, none of their functions is active.
redefine("sys.nframe", function() {
  depth <- .Internal(sys.nframe())
  if (identical(sys.call(depth), top_call)) 0L else depth
})

# R searches for its libraries when it starts, and the folder does not exist before the first installation.
libraries <- Sys.getenv("SANDBOX_LIBRARIES")
find_libraries <- function() {
  if (nzchar(libraries) && !libraries %in% .libPaths() && dir.exists(libraries)) .libPaths(c(libraries, .libPaths()))
}
