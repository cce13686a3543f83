# Installs packages into a folder from one index: install.R FOLDER INDEX -- NAME[==VERSION]...
# R only warns about packages that it could not install; here that is an error that names them.

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

# What is there, in the folder or before it, is neither looked for nor fetched again.
there <- installed.packages(noCache = TRUE)[, "Version"][names]
there <- !is.na(there) & (is.na(versions) | versions == there)
names <- names[!there]
versions <- versions[!there]
if (!length(names)) quit()

served <- available.packages(repos = index, type = "source", fields = "Version")
if (!nrow(served)) refuse("the package index has no packages for this version of R")
if (length(missing <- setdiff(names, rownames(served)))) {
  refuse("no such package in the index for this version of R: ", paste(missing, collapse = ", "))
}
other <- !is.na(versions) & versions != served[names, "Version"]
if (any(other)) {
  have <- paste0(names[other], " is ", served[names[other], "Version"], collapse = ", ")
  refuse("the package index has only one version of a package: ", have)
}

installed <- installed.packages(folder, noCache = TRUE)
have <- installed[, "Version"][names] # NA if a package is not installed
new <- names[is.na(have) | have != served[names, "Version"]]
# Not quiet: that would hide why a package failed.
if (length(new)) install.packages(new, lib = folder, repos = index, type = "source", INSTALL_opts = "--no-docs")
failed <- setdiff(new, rownames(installed.packages(folder, noCache = TRUE)))
if (length(failed)) refuse("could not be installed: ", paste(failed, collapse = ", "))
