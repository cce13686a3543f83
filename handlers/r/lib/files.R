# Finds the regular files below a folder that are new or changed, by their sizes and times.

entry_limit <- 10000L # entries that one scan checks, nearest to the top first
file_limit <- 200L # files that are named
skipped <- c("node_modules", "__pycache__")

# The current files below a folder: the state of each file, by its path.
scan_folder <- function(root) {
  states <- list()
  folders <- ""
  left <- entry_limit
  while (length(folders) && left > 0L) {
    found <- list.files(file.path(root, folders[[1L]]), no.. = TRUE) # leaves out names that begin with a dot
    found <- found[seq_len(min(length(found), left))]
    left <- left - length(found)
    found <- setdiff(found[validUTF8(found)], skipped) # R cannot query a file whose name is not valid in its locale
    names <- paste0(rep(folders[[1L]], length(found)), found)
    folders <- folders[-1L]
    if (!length(found)) next
    paths <- file.path(root, names)
    names <- names[!nzchar(Sys.readlink(paths)) & file.exists(paths)]
    info <- file.info(file.path(root, names), extra_cols = FALSE)
    folders <- c(folders, paste0(names[info$isdir], "/")[any(info$isdir)])
    state <- sprintf("%.0f %.6f %.6f", info$size, info$mtime, info$ctime)
    states[[length(states) + 1L]] <- structure(state, names = names)[!info$isdir]
  }
  c(character(), unlist(states))
}

# The names of files that differ from an earlier scan, and how many more there are.
changes <- function(root, before) {
  after <- scan_folder(root)
  changed <- c(character(), names(after)[!(after == before[names(after)]) %in% TRUE])
  changed <- changed[order(nchar(changed), changed)]
  named <- changed[seq_len(min(length(changed), file_limit))]
  list(names = named, omitted = length(changed) - length(named))
}

# The names of new files in a folder. Earlier files are not queried, since there may be many.
added <- function(root, before) {
  names <- list.files(root)
  names <- names[!names %in% before & validUTF8(names)]
  if (!length(names)) return(names)
  paths <- file.path(root, names)
  names <- names[!nzchar(Sys.readlink(paths)) & file.exists(paths) & !dir.exists(paths)]
  names <- names[order(nchar(names), names)]
  names[seq_len(min(length(names), file_limit))]
}
