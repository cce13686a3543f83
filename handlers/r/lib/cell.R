# Runs a cell at the top level: statement by statement in the global environment.

result_limit <- 20000L # characters of a result that are reported

cell_name <- "" # of the current cell, as errors show it

# The call that evaluates code. An error outside of all functions of the code names exactly this call, as does its frame.
top_call <- quote(withVisible(value))

# Evaluates code at the top level. It is a promise, since R evaluates promises without a frame of their own:
# `sys.call()` is NULL, and `parent.frame()` is the global environment.
at_top <- function(code, envir = globalenv()) {
  on.exit(top <<- 0L)
  top <<- frame_number() + 1L
  .Internal(delayedAssign("value", code, envir, environment()))
  withVisible(value)
}

run_cell <- function(request) {
  variables <- if (request$variables != "{}") json_value(request$variables)
  if (!is.null(variables[["__stdin"]])) give_input(variables[["__stdin"]])
  for (name in setdiff(names(variables), "__stdin")) assign(name, variables[[name]], envir = globalenv())
  code <- gsub("\r\n", "\n", json_text(request$code), fixed = TRUE) # which R's parser takes only from files
  cell_name <<- sprintf("<cell %s>", request$cell)
  lines <- strsplit(code, "\n", fixed = TRUE)[[1L]]
  statements <- parse_cell(code, srcfilecopy(cell_name, lines))
  references <- attr(statements, "srcref")
  result <- NULL
  for (i in seq_along(statements)) {
    top_place <<- sprintf("%s#%d", cell_name, references[[i]][[1L]])
    value <- at_top(statements[[i]])
    redefine(".Last.value", value$value)
    if (value$visible) {
      if (i < length(statements)) print_value(value$value) else result <- captured(print_value(cut(value$value)), result_limit)
    }
    print_warnings()
  }
  if (nzchar(result %||% "")) result
}

`%||%` <- function(a, b) if (is.null(a)) b else a

parse_cell <- function(code, file) {
  tryCatch(parse(text = code, keep.source = TRUE, srcfile = file, encoding = "UTF-8"), error = function(condition) {
    stop(structure(class = class(condition), list(message = conditionMessage(condition), call = NULL)))
  })
}

# R takes quadratic time to print long text, and no more of it is shown than the result's limit.
cut <- function(value) {
  if (is.character(value) && !is.object(value) && any(nchar(value, "bytes") > 4L * result_limit)) {
    value[] <- substr(value, 1L, result_limit)
  }
  value
}

# Prints a value as R does at the top level. Methods and packages can see that: the call contains the function itself.
print_value <- function(value) {
  printer <- if (isS4(value)) methods::show else if (is.object(value) || is.function(value)) print else print.default
  at_top(as.call(list(printer, quote(x))), list2env(list(x = value), parent = globalenv()))
}

# The output of an expression, without its last newline, and at most `limit` characters.
captured <- function(expression, limit = Inf) {
  con <- rawConnection(raw(), "wb")
  depth <- sink.number()
  sink(con)
  on.exit({
    while (sink.number() > depth) sink()
    close(con)
  })
  force(expression)
  bytes <- rawConnectionValue(con)
  if (length(bytes) > 4 * limit + 4) bytes <- bytes[seq_len(4 * limit + 4)]
  text <- iconv(rawToChar(bytes), "UTF-8", "UTF-8", sub = "byte")
  text <- sub("\n$", "", text)
  if (nchar(text) > limit) paste0(substr(text, 1L, limit - 1L), "\u2026") else text
}
