# The standard input of a run. R cannot move a descriptor, nor its position, so the text is written where the last run stopped
# reading: everything before is a hole.

input <- "/proc/self/fd/0"

give_input <- function(text) {
  position <- grep("^pos:", readLines("/proc/self/fdinfo/0"), value = TRUE)
  con <- file(input, "r+b")
  on.exit(close(con))
  seek(con, as.numeric(sub("^pos:", "", position)), rw = "write")
  writeBin(charToRaw(enc2utf8(text)), con)
}

# Makes the file empty, so that the next run reads nothing of this one.
take_input <- function() close(file(input, "wb"))
