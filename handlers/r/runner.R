# Starts R's part of the runner (runner.sh is the other part): answers requests until the relay is gone. Nothing here is in the
# global environment, and names that code defines there do not affect these functions.

invisible() # makes the variable `.Last.value`

# Not local(): it leaves a frame in the global environment, where R would look for the frames of the code's top level.
evalq({
  file <- sub("^--file=", "", grep("^--file=", commandArgs(), value = TRUE))
  file <- gsub("~+~", " ", file, fixed = TRUE) # R writes a space like this
  for (part in c("load", "json", "channel", "files", "figures", "base", "errors", "input", "cell", "serve")) {
    sys.source(file.path(dirname(file), "lib", paste0(part, ".R")), envir = environment())
  }
  Sys.unsetenv(c("SANDBOX_RUNNER", "R_TESTS"))
  serve()
}, new.env(parent = .BaseNamespaceEnv))
