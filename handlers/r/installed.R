# Prints packages as name==version: those in a folder or, without one, all available packages except R's own.

folder <- commandArgs(trailingOnly = TRUE)
found <- installed.packages(if (length(folder)) folder, noCache = TRUE)
found <- found[!found[, "Priority"] %in% "base" & !duplicated(rownames(found)), , drop = FALSE]
cat(sprintf("%s==%s\n", rownames(found), found[, "Version"]), sep = "")
