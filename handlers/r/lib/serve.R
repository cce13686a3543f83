# The loop, and the steps of one run. Interrupts are suspended except while the code runs, and R returns to that state before a
# handler runs: an interrupt at any other moment ends nothing.

folders <- Sys.getenv(c("SANDBOX_WORKDIR", "SANDBOX_FIGURES"))
top_place <- NULL

# What code may change, as it is at the start.
at_start <- NULL

# Saves or opens the variables of the session, for the server: it finds this function in the environment of `base::q`.
state <- function(action, folder) {
  for (part in state_parts) sys.source(part, envir = environment(state))
  state_parts <<- NULL
  suppressWarnings(if (action == "save") save_state(folder) else open_state(folder))
  invisible(.Last.value) # which therefore stays what it is
}

state_parts <- file.path(dirname(file), "lib", "state.R")

serve <- function() {
  at_start <<- list(search = search(), options = options(), environment = unclass(Sys.getenv()))
  suspendInterrupts({
    load_all(needed)
    while (!is.null(request <- read_request())) {
      write_begin()
      outcome <- answer(request)
      ending <- request$last && finalizers
      write_report(outcome$report, ending)
      if (ending) leave(outcome$code) # runs the finalizers
    }
  })
  leave(0)
}

answer <- function(request) {
  find_libraries()
  before <- list(files = scan_folder(folders[[1L]]), figures = list.files(folders[[2L]]))
  top_place <<- NULL
  outcome <- attempt(run_cell(request))
  if (request$last && outcome$run_last && exists(".Last", globalenv(), mode = "function")) {
    last <- attempt(at_top(quote(.Last())))
    if (last$code != 0L) outcome <- last
  }
  unwind_sinks()
  take_input()
  if (!is.null(outcome$error)) show_error(outcome$error, outcome$place)
  drawing <- attempt(finish_figures())
  if (outcome$code == 0L && drawing$code != 0L) {
    outcome <- drawing
    if (!is.null(drawing$error)) show_error(drawing$error, drawing$place)
  }
  attempt(print_warnings())
  if (Sys.getpid() != process) leave(outcome$code) # a child of the code ends where its code ends
  name_figures()
  list(code = outcome$code, report = report(outcome, before, !request$last && waits()))
}

told <- FALSE

# Whether a session has, for the first time, something that waits for the exit of R.
waits <- function() {
  if (told) return(FALSE)
  told <<- own_finalizers || exists(".Last", globalenv(), mode = "function", inherits = FALSE)
}

# Runs code and catches everything that can end it.
attempt <- function(work) {
  forget_interrupts()
  place <- NULL
  on.exit(top <<- 0L) # an interrupt can prevent it where it was set
  interruptible(
    tryCatch(
      withCallingHandlers(
        list(code = 0L, run_last = TRUE, value = allowInterrupts(finished(work))),
        error = function(condition) place <<- location(sys.calls()),
        warning = keep_warning
      ),
      sandbox_end = function(condition) {
        list(code = bitwAnd(as.integer(condition$status), 255L), run_last = isTRUE(condition$run_last))
      },
      error = function(condition) {
        list(code = 1L, run_last = FALSE, error = condition, place = if (is.null(place)) top_place else place)
      }
    ),
    list(code = 130L, run_last = FALSE, interrupted = TRUE)
  )
}

# The value of work, or `otherwise` if an interrupt ends it. R removes the handler before it makes the condition; an interrupt
# at that moment finds no handler, and would end R without a restart named `abort`.
interruptible <- function(work, otherwise) {
  withRestarts(tryCatch(work, interrupt = function(condition) otherwise), abort = function() otherwise)
}

# The value of work, after a check for interrupts that came while R did not check.
finished <- function(work) {
  force(work)
  Sys.sleep(0)
  work
}

forget_interrupts <- function() {
  while (!interruptible(allowInterrupts({ Sys.sleep(0); TRUE }), FALSE)) NULL
}

unwind_sinks <- function() {
  # Each sink() removes one, even if the code has closed its connection.
  while (sink.number() > 0L) tryCatch(sink(), error = function(condition) NULL)
  if (sink.number("message") != 2L) sink(type = "message")
}

report <- function(outcome, before, waits) {
  made <- changes(folders[[1L]], before$files)
  paste0(
    "{\"status\":", if (outcome$code == 0L) "\"ok\"" else "\"error\"",
    ",\"exit_code\":", outcome$code,
    ",\"result\":", if (is.null(outcome$value)) "null" else json_quote(outcome$value),
    ",\"interrupted\":", if (isTRUE(outcome$interrupted)) "true" else "false",
    ",\"files\":", json_list(made$names),
    ",\"files_omitted\":", made$omitted,
    ",\"figures\":", json_list(added(folders[[2L]], before$figures)),
    ",\"waits\":", if (waits) "true}" else "false}"
  )
}
