# Prints packages as name==version: those in a folder, or without one all that are at hand, save R's own.

folder <- commandArgs(trailingOnly = TRUE)
found <- installed.packages(if (length(folder)) folder, noCache = TRUE)
found <- found[!found[, "Priority"] %in% "base" & !duplicated(rownames(found)), , drop = FALSE]
cat(sprintf("%s==%s\n", rownames(found), found[, "Version"]), sep = "")
