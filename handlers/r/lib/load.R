# R reads a function from its library when it is first used. If an interrupt comes meanwhile, the next use warns ("restarting
# interrupted promise evaluation"), and if another comes during that warning, every later use is an error ("promise already
# under evaluation"). Functions that the code uses can fail like this in any R, but the runner's functions are read before any
# code runs.

# The function with which the runner starts, and those that it does not reach by name: methods, and the device that code opens.
needed <- c("answer", "figure_device", "print.default", "print.warnings", "close.connection", "conditionCall.condition",
  "conditionMessage.condition", "rev.default", "unique.default")

# Reads the functions with these names, and then those that their code names.
load_all <- function(names) {
  places <- list(environment(load_all), baseenv(), asNamespace("grDevices"))
  known <- character()
  while (length(names)) {
    known <- c(known, names)
    found <- unlist(lapply(places, function(place) mget(names, place, ifnotfound = list(NULL))), recursive = FALSE)
    functions <- found[vapply(found, typeof, "") == "closure"]
    names <- setdiff(unlist(lapply(functions, function(f) all.names(body(f), unique = TRUE))), c(known, ""))
  }
}
