# The standard input of a run: a file that is filled for each run. Its position is where the last run stopped reading.
# R cannot move it, but a child process can: they share it.

input <- "/proc/self/fd/0"

give_input <- function(text) {
  position <- grep("^pos:", readLines("/proc/self/fdinfo/0"), value = TRUE)
  if (!grepl("\t0$", position)) .Internal(system("perl -e 'sysseek STDIN, 0, 0'", FALSE, 0L))
  con <- file(input, "wb")
  on.exit(close(con))
  writeBin(charToRaw(enc2utf8(text)), con)
}

# Makes the file empty, so that the next run reads nothing of this one.
take_input <- function() close(file(input, "wb"))
