# The pipes to the relay: one line of JSON comes in for each run, and lines that become frames go out.

pipes <- Sys.getenv("SANDBOX_RUNNER")
frame <- 4000L # with the head of a frame this stays below PIPE_BUF

# The next request, or NULL when the relay is gone.
read_request <- function() {
  con <- tryCatch(fifo(file.path(pipes, 0), "rb", blocking = TRUE), error = function(e) NULL, warning = function(w) NULL)
  if (is.null(con)) return(NULL)
  on.exit(close(con))
  parts <- list()
  repeat {
    part <- readBin(con, raw(), 65536L)
    if (!length(part)) return(NULL)
    parts[[length(parts) + 1L]] <- part
    if (part[[length(part)]] == 10L) break
  }
  line <- rawToChar(unlist(parts))
  last <- endsWith(line, "\",\"last\":true}\n")
  if (last) line <- sub(",\"last\":true}\n$", "}\n", line, useBytes = TRUE)
  # The code is now the last key; a quote inside the code would follow a backslash.
  at <- regexpr("^\\{\"cell\":[0-9]+", line)
  cell <- substring(line, 9L, attr(at, "match.length"))
  code_at <- max(gregexpr("},\"code\":\"", line, fixed = TRUE, useBytes = TRUE)[[1L]])
  bytes <- charToRaw(line)
  text <- function(first, last) {
    found <- rawToChar(bytes[seq_len(last - first + 1L) + first - 1L])
    Encoding(found) <- "UTF-8"
    found
  }
  variables_at <- attr(at, "match.length") + nchar(",\"variables\":") + 1L
  list(
    cell = cell,
    variables = text(variables_at, code_at),
    code = text(code_at + nchar("},\"code\":\""), length(bytes) - 3L),
    last = last
  )
}

# Reports that a request was read.
write_begin <- function() write_lines(charToRaw("+\n"))

# Sends the report to the relay; it contains no newline. `ending`: R ends after it, and may still print; the relay
# waits for that.
write_report <- function(report, ending) {
  bytes <- charToRaw(enc2utf8(report))
  starts <- seq.int(1L, length(bytes), frame)
  lines <- lapply(starts, function(at) {
    last <- min(at + frame - 1L, length(bytes))
    c(charToRaw(if (last < length(bytes)) "+" else if (ending) "=" else "."), bytes[at:last], as.raw(10L))
  })
  write_lines(unlist(lines))
}

write_lines <- function(bytes) {
  con <- fifo(file.path(pipes, 1), "wb", blocking = TRUE)
  on.exit(close(con))
  writeBin(bytes, con)
}
