# Prints the packages in a folder as name==version.

found <- installed.packages(commandArgs(trailingOnly = TRUE)[[1L]], noCache = TRUE)
cat(sprintf("%s==%s\n", rownames(found), found[, "Version"]), sep = "")
