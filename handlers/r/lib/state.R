# Saves the variables of a session in a folder, and opens them in another session. R's own image keeps what shares environments,
# and its walk finds what belongs to this process: it asks `refhook` about every environment and every pointer.

whole_image <- "(all variables)"
lines_limit <- 500L
spare <- 16 * 2^20 # bytes of memory that saving leaves free

foreign <- c(
  externalptr = "it contains a connection or another pointer to memory of this process",
  weakref = "it contains a weak reference, which belongs to this process"
)

save_state <- function(folder) {
  lost <- new_losses()
  global <- globalenv()
  names <- ls(global, all.names = TRUE, sorted = FALSE)
  active <- vapply(names, bindingIsActive, NA, global)
  for (name in names[active]) lost$add(name, "active binding", "a function computes its value")
  names <- setdiff(names[!active], ".Random.seed")
  values <- list()
  for (name in names) values[name] <- list(kept_value(name, function() get(name, envir = global, inherits = FALSE), lost))
  values <- values[names(values) %in% setdiff(names, lost$names)]
  options <- changed(options(), at_start$options)
  for (name in names(options)) kept_value(sprintf("options(%s)", name), function() options[[name]], lost)
  options <- options[!sprintf("options(%s)", names(options)) %in% lost$names]
  packages <- setdiff(search(), at_start$search)
  for (name in packages[!startsWith(packages, "package:")]) lost$add(name, "attached", "only packages are attached again")
  for (number in setdiff(getAllConnections(), 0:2)) {
    con <- summary.connection(getConnection(number))
    if (con$opened == "opened") lost$add(sprintf("(%s)", con$description), "connection", connection_reason)
  }
  if ("parallel" %in% loadedNamespaces()) {
    for (child in parallel:::children()) {
      lost$add(sprintf("(process %d)", child$pid), "process", "it goes on in the session only")
    }
  }
  settings <- list(
    version = R.version.string,
    packages = rev(sub("^package:", "", packages[startsWith(packages, "package:")])),
    environment = changed_environment(),
    folder = tryCatch(setdiff(getwd(), folders[[1L]]), error = function(e) character()),
    locked = names(values)[vapply(names(values), bindingIsLocked, NA, global)]
  )
  values <- write_image(list(settings = settings, options = options), values, file.path(folder, "image"), lost)
  saveRDS(settings, file.path(folder, "settings"), compress = FALSE)
  write_state_report(folder, lost, if (exists(".Random.seed", global)) "random numbers start anew", counted(names(values)))
}

connection_reason <- "a connection belongs to this process"

# The value that `read` returns; what cannot be saved is added to what is lost.
kept_value <- function(name, read, lost) {
  value <- tryCatch(read(), error = function(condition) {
    lost$add(name, "promise", paste("its value cannot be found:", conditionMessage(condition)))
  })
  reason <- if (!name %in% lost$names) why_lost(value)
  if (!is.null(reason)) lost$add(name, class(value)[[1L]], reason)
  value
}

why_lost <- function(value) {
  if (is.atomic(value) && is.null(attributes(value))) return(NULL)
  if (inherits(value, "connection")) return(connection_reason)
  # data.table makes this pointer again itself.
  if (inherits(value, "data.table")) attr(value, ".internal.selfref") <- NULL
  found <- NULL
  hook <- function(reference) {
    kind <- typeof(reference)
    if (kind != "environment" && (kind == "weakref" || !is_harmless(reference))) found <<- kind
    NULL
  }
  failure <- failure_of(write_object(value, "/dev/null", hook))
  if (is.null(found)) failure else foreign[[found]]
}

# Classes of S4 have pointers to nothing, and one that is the same for all that this process defined.
is_harmless <- function(pointer) {
  if (identical(pointer, methods::new("externalptr"))) return(TRUE)
  classes <- ls(globalenv(), pattern = "^\\.__C__", all.names = TRUE)
  length(classes) > 0L && identical(pointer, attr(get(classes[[1L]], globalenv()), "versionKey"))
}

# Writes everything as one image; while it does not fit, without the largest variable. Returns what was written. R would be
# ended by a file that is too large.
write_image <- function(modes, values, path, lost) {
  sizes <- vapply(values, image_size, 0)
  room <- if (sum(sizes) < 2^20) Inf else room_for(dirname(path))
  image <- function() c(modes, list(values = values))
  repeat {
    failure <- if (sum(sizes) > room && image_size(image()) > room) "no room" else failure_of(write_object(image(), path))
    if (is.null(failure)) return(values)
    unlink(path)
    if (!length(values)) stop(failure)
    at <- which.max(sizes)
    reason <- sprintf("no room in the sandbox to save %.0f MB", max(1, sizes[[at]] / 2^20))
    lost$add(names(values)[[at]], class(values[[at]])[[1L]], reason)
    values <- values[-at]
    sizes <- sizes[-at]
  }
}

write_object <- function(object, path, hook = NULL) {
  con <- file(path, "wb")
  on.exit(close(con))
  serialize(object, con, xdr = FALSE, refhook = hook)
}

# How many bytes an image of the object has. R does not know what environments contain, but Linux counts what is written.
image_size <- function(object) {
  if (is.atomic(object) && is.null(attributes(object))) return(as.numeric(utils::object.size(object)))
  before <- written()
  write_object(object, "/dev/null")
  written() - before
}

written <- function() as.numeric(sub("^wchar: ", "", grep("^wchar", readLines("/proc/self/io"), value = TRUE)))

failure_of <- function(work) tryCatch({ force(work); NULL }, error = conditionMessage)

# The bytes that the folder can take: what is free on its disk and in the memory of the sandbox.
room_for <- function(folder) {
  limit <- as.numeric(Sys.getenv("SANDBOX_MEMORY", "Inf"))
  used <- as.numeric(gsub("[^0-9]", "", grep("^VmRSS", readLines("/proc/self/status"), value = TRUE))) * 1024
  table <- .Internal(system(paste("df -Pk", shQuote(folder)), TRUE, 0L))
  disk <- as.numeric(strsplit(table[[2L]], " +")[[1L]][3:4]) * 1024
  max(min(limit - used - disk[[1L]], disk[[2L]]) - spare, 2^20)
}

# The members of a list that differ from those at the start.
changed <- function(now, before) {
  same <- vapply(names(now), function(name) identical(now[[name]], before[[name]]), NA)
  gone <- setdiff(names(before), names(now))
  c(now[!same], structure(vector("list", length(gone)), names = gone))
}

# NA means that code removed the variable.
changed_environment <- function() {
  now <- Sys.getenv()
  before <- at_start$environment
  gone <- setdiff(names(before), names(now))
  differs <- vapply(names(now), function(name) !identical(now[[name]], unname(before[name])), NA)
  c(unclass(now)[differs], structure(rep(NA_character_, length(gone)), names = gone))
}

open_state <- function(folder) {
  lost <- new_losses()
  steps <- new_steps(folder)
  notes <- NULL
  settings <- readRDS(file.path(folder, "settings"))
  if (settings$version != R.version.string) notes <- sprintf("saved by %s, opened by %s", settings$version, R.version.string)
  open_modes(settings)
  if (length(settings$folder) && getwd() != settings$folder) {
    notes <- c(notes, sprintf("the working directory %s does not exist", settings$folder))
  }
  for (package in settings$packages) {
    steps$try(paste0("package:", package), "package", lost, suppressPackageStartupMessages(
      library(package, character.only = TRUE, warn.conflicts = FALSE)
    ))
  }
  image <- NULL
  steps$try(whole_image, "R", lost, withCallingHandlers(
    image <- read_object(file.path(folder, "image")),
    warning = function(condition) notes <<- c(notes, conditionMessage(condition))
  ))
  opened <- open_values(image, settings$locked, lost)
  steps$end()
  write_state_report(folder, lost, notes, counted(opened))
}

open_modes <- function(settings) {
  environment <- settings$environment
  Sys.unsetenv(names(environment)[is.na(environment)])
  environment <- environment[!is.na(environment)]
  if (length(environment)) do.call(Sys.setenv, as.list(environment))
  if (length(settings$folder) && dir.exists(settings$folder)) setwd(settings$folder)
}

# Returns the names of the variables that are there now.
open_values <- function(image, locked, lost) {
  global <- globalenv()
  values <- image$values
  for (name in names(values)) {
    failure <- failure_of(assign(name, values[[name]], envir = global))
    if (!is.null(failure)) lost$add(name, class(values[[name]])[[1L]], failure)
  }
  # Classes and methods of S4 are variables, too, and have to be announced.
  if (any(startsWith(names(values), ".__"))) methods::cacheMetaData(1L, TRUE, global)
  for (name in setdiff(locked, lost$names)) lockBinding(name, global)
  for (name in names(image$options)) {
    failure <- failure_of(do.call(options, image$options[name]))
    if (!is.null(failure)) lost$add(sprintf("options(%s)", name), "option", failure)
  }
  setdiff(names(values), lost$names)
}

read_object <- function(path) {
  con <- file(path, "rb")
  Sys.setenv("_R_NO_REPORT_MISSING_NAMESPACES_" = "false") # so that it warns
  on.exit({
    close(con)
    Sys.unsetenv("_R_NO_REPORT_MISSING_NAMESPACES_")
  })
  unserialize(con)
}

# Knows at which step an earlier try ended the interpreter.
new_steps <- function(folder) {
  opening <- file.path(folder, "opening")
  deadly <- file.path(folder, "deadly")
  if (file.exists(opening)) cat(readLines(opening), "", sep = "\n", file = deadly, append = TRUE)
  skipped <- if (file.exists(deadly)) readLines(deadly)
  list(
    try = function(name, type, lost, work) {
      if (name %in% skipped) return(lost$add(name, type, "opening it ended the interpreter"))
      cat(name, "\n", sep = "", file = opening)
      failure <- failure_of(work)
      if (!is.null(failure)) lost$add(name, type, failure)
    },
    end = function() unlink(opening)
  )
}

new_losses <- function() {
  lost <- environment()
  names <- lines <- character()
  add <- function(name, type, reason) {
    names <<- c(names, name)
    lines <<- c(lines, report_line("lost", name, type, reason))
    NULL
  }
  lost
}

report_line <- function(...) {
  fields <- iconv(enc2utf8(c(...)), "UTF-8", "UTF-8", sub = "?")
  paste(substr(gsub("[[:cntrl:]]", " ", fields), 1L, 200L), collapse = "\t")
}

# How many variables a caller would count: R keeps classes and methods in variables with such names.
counted <- function(names) sum(!startsWith(names, ".__") & names != ".requireCachedGenerics")

write_state_report <- function(folder, lost, notes, kept) {
  more <- length(lost$lines) - lines_limit
  if (more > 0L) notes <- c(notes, sprintf("%d more are lost", more))
  lines <- c(
    lost$lines[seq_len(min(length(lost$lines), lines_limit))],
    vapply(notes, function(note) report_line("note", note), "", USE.NAMES = FALSE),
    report_line("kept", as.character(kept))
  )
  con <- file(file.path(folder, "report.new"), "wb")
  on.exit(close(con))
  writeLines(enc2utf8(lines), con, useBytes = TRUE)
  close(con)
  on.exit()
  file.rename(file.path(folder, "report.new"), file.path(folder, "report"))
}
