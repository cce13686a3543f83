# Installs packages into a folder from one index: install.R FOLDER INDEX -- NAME[==VERSION]...
# R only warns of what it could not install; here that is the end, and says which.

arguments <- commandArgs(trailingOnly = TRUE)
folder <- arguments[[1L]]
index <- sub("/+$", "", arguments[[2L]])
wanted <- arguments[-(1:3)]
names <- sub("==.*", "", wanted)
versions <- ifelse(grepl("==", wanted, fixed = TRUE), sub(".*==", "", wanted), NA)

refuse <- function(...) {
  message(...)
  quit(status = 1)
}

dir.create(folder, recursive = TRUE, showWarnings = FALSE)
.libPaths(c(folder, .libPaths()))
options(repos = c(CRAN = index), timeout = 600, warn = 1)

served <- available.packages(repos = index, type = "source", fields = "Version")
if (!nrow(served)) refuse("the package index names no package for this version of R")
if (length(missing <- setdiff(names, rownames(served)))) {
  refuse("no such package in the index for this version of R: ", paste(missing, collapse = ", "))
}
other <- !is.na(versions) & versions != served[names, "Version"]
if (any(other)) {
  have <- paste0(names[other], " is ", served[names[other], "Version"], collapse = ", ")
  refuse("an index has one version of a package: ", have)
}

there <- installed.packages(folder, noCache = TRUE)
have <- there[, "Version"][names] # NA for what is not there
new <- names[is.na(have) | have != served[names, "Version"]]
# Not quiet: that would leave out why one failed.
if (length(new)) install.packages(new, lib = folder, repos = index, type = "source", INSTALL_opts = "--no-docs")
failed <- setdiff(new, rownames(installed.packages(folder, noCache = TRUE)))
if (length(failed)) refuse("could not be installed: ", paste(failed, collapse = ", "))
