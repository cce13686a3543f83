# As much JSON as the protocol needs, without packages.

json_escapes <- c("\\\"" = "\"", "\\/" = "/", "\\n" = "\n", "\\t" = "\t", "\\r" = "\r", "\\b" = "\b", "\\f" = "\f")

# The text of a JSON string, given without its quotes. Each step replaces all escapes of one kind, since any other way takes R
# quadratic time.
json_text <- function(text) {
  if (!grepl("\\", text, fixed = TRUE)) return(text)
  # Control characters are always escaped in JSON, so "\001a" and "\001b" can be placeholders until the end.
  text <- gsub("\\\\", "\001b", text, fixed = TRUE)
  for (escape in names(json_escapes)) text <- gsub(escape, json_escapes[[escape]], text, fixed = TRUE)
  for (escape in unique(unlist(regmatches(text, gregexpr("\\\\u[0-9a-fA-F]{4}", text))))) {
    point <- strtoi(substring(escape, 3L), 16L)
    if (point == 0L) stop("text in R cannot contain the character NUL", call. = FALSE)
    text <- gsub(escape, if (point == 1L) "\001a" else intToUtf8(point), text, fixed = TRUE)
  }
  gsub("\001a", "\001", gsub("\001b", "\\", text, fixed = TRUE), fixed = TRUE)
}

# The value of a JSON text that is known to be correct: objects are named lists, arrays of one kind are vectors.
json_value <- function(text) {
  token <- "\"(?:[^\"\\\\]|\\\\.)*+\"|[][{}:,]|[^][{}:,\"\\s]+"
  tokens <- regmatches(text, gregexpr(token, text, perl = TRUE))[[1L]]
  at <- 0L
  take <- function() tokens[[at <<- at + 1L]]
  key <- function(token) json_text(substr(token, 2L, nchar(token) - 1L))
  read <- function(token = take()) {
    switch(token,
      "{" = object(),
      "[" = array(),
      "true" = TRUE,
      "false" = FALSE,
      "null" = NULL,
      if (startsWith(token, "\"")) key(token) else as.numeric(token)
    )
  }
  members <- function(end, one) {
    while ((token <- take()) != end) if (token != ",") one(token)
  }
  object <- function() {
    values <- structure(list(), names = character())
    members("}", function(token) {
      take() # the colon
      values[key(token)] <<- list(read())
    })
    values
  }
  array <- function() {
    values <- list()
    members("]", function(token) values[length(values) + 1L] <<- list(read(token)))
    plain <- vapply(values, function(value) is.null(value) || is.atomic(value) && length(value) == 1L, NA)
    if (!length(values) || !all(plain)) return(values)
    kinds <- unique(vapply(values[!vapply(values, is.null, NA)], typeof, ""))
    if (length(kinds) != 1L) return(values)
    unlist(lapply(values, function(value) if (is.null(value)) NA else value))
  }
  read()
}

# The JSON string of any text; bytes that are not UTF-8 are shown as escapes.
json_quote <- function(text) {
  text <- iconv(enc2utf8(text), "UTF-8", "UTF-8", sub = "byte")
  text <- gsub("\"", "\\\"", gsub("\\", "\\\\", text, fixed = TRUE), fixed = TRUE)
  for (found in unique(unlist(regmatches(text, gregexpr("[\001-\037]", text))))) {
    text <- gsub(found, sprintf("\\u%04x", utf8ToInt(found)), text, fixed = TRUE)
  }
  paste0("\"", text, "\"")
}

json_list <- function(texts) paste0("[", paste(vapply(texts, json_quote, ""), collapse = ","), "]")
