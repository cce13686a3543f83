# Errors and warnings as R prints them, except that errors show the line of the code.

wide <- 75L # columns for a call and its message on one line

# The place of the innermost call of the code, such as "<cell 3>#2".
location <- function(calls) {
  for (call in rev(calls)) {
    reference <- attr(call, "srcref")
    if (is.null(reference)) next
    name <- attr(reference, "srcfile")$filename
    if (startsWith(name, "<cell ")) return(sprintf("%s#%d", name, reference[[1L]]))
  }
  NULL
}

print_error <- function(condition, place) {
  message <- tryCatch(paste(conditionMessage(condition), collapse = "\n"), error = function(e) class(condition)[[1L]])
  call <- conditionCall(condition)
  from <- if (is.null(place)) "" else sprintf(" (from %s)", place)
  if (is.null(call) || identical(call, top_call)) {
    text <- sprintf("Error%s: %s\n", from, message)
  } else {
    call <- deparse(call, nlines = 1L)[[1L]]
    first <- strsplit(message, "\n", fixed = TRUE)[[1L]][1L]
    width <- 14L + nchar(call, "width") + nchar(from, "width") + nchar(first, "width")
    text <- sprintf("Error in %s%s : %s%s\n", call, from, if (isTRUE(width > wide)) "\n  " else "", message)
  }
  cat(text, file = stderr())
}

# An interrupt can leave R in a state in which an unrelated internal call fails ("promise already under evaluation"). That must
# not end the runner.
show_error <- function(condition, place) {
  tryCatch(print_error(condition, place), error = function(e) cat("Error: ", condition[["message"]], "\n", sep = "", file = stderr()))
}

warnings_kept <- last_warnings <- list()

# Keeps a warning until its statement is done, if R would. R itself handles other values of `options(warn)`, but does
# not know where the code's top level is.
keep_warning <- function(condition) {
  restart <- find_restart("muffleWarning")
  level <- as.integer(getOption("warn"))
  call <- conditionCall(condition)
  at_top_level <- identical(call, top_call)
  if (is.null(restart) || !(identical(level, 0L) || identical(level, 1L) && at_top_level)) return()
  if (level == 1L) {
    cat("Warning: ", conditionMessage(condition), "\n", sep = "", file = stderr())
  } else if (length(warnings_kept) < 50L) {
    kept <- list(if (!at_top_level) call)
    names(kept) <- conditionMessage(condition)
    warnings_kept <<- c(warnings_kept, kept)
  }
  invokeRestart(restart)
}

find_restart <- function(name) {
  for (restart in computeRestarts()) if (restart$name == name) return(restart)
}

print_warnings <- function() {
  if (!length(warnings_kept)) return()
  kept <- structure(warnings_kept, class = "warnings")
  last_warnings <<- warnings_kept
  warnings_kept <<- list()
  if (length(kept) > 10L) {
    more <- if (length(kept) == 50L) " or more" else ""
    text <- sprintf("There were %d%s warnings (use warnings() to see them)", length(kept), more)
  } else {
    text <- captured(print(kept))
  }
  cat(text, "\n", sep = "", file = stderr())
}
