# Figures: the device that R opens when code draws without having opened one. Its pages are hidden files until the run ends:
# each device counts its pages from 1, while the session numbers figures across all devices.

figure_folder <- Sys.getenv("SANDBOX_FIGURES")
devices <- 0L
figures <- 0L

# Sizes are in inches, as dev.new() gives them.
figure_device <- function(width = 7, height = 5, ...) {
  devices <<- devices + 1L
  pages <- file.path(figure_folder, sprintf(".device-%05d-%%05d.png", devices))
  grDevices::png(pages, width = width, height = height, units = "in", res = 120, type = "cairo")
}

next_figure <- function(extension) {
  figures <<- figures + 1L
  file.path(figure_folder, sprintf("figure-%d.%s", figures, extension))
}

# Closes every device, as R does when a program ends.
finish_figures <- function() {
  if (is.null(grDevices::dev.list())) return(invisible())
  grDevices::graphics.off()
}

# Gives the pages their final names.
name_figures <- function() {
  for (page in list.files(figure_folder, "^\\.device-.*png$", all.files = TRUE, full.names = TRUE)) {
    file.rename(page, next_figure("png"))
  }
}

# Shows a widget, such as a plotly figure, by writing a page that contains everything it needs.
show_widget <- function(x, ...) {
  rendered <- htmltools::renderTags(htmltools::as.tags(built(x), standalone = TRUE))
  parts <- lapply(htmltools::resolveDependencies(rendered$dependencies), inline)
  page <- c("<!DOCTYPE html>\n<html>\n<head>\n<meta charset=\"utf-8\"/>", unlist(parts), rendered$head, "</head>\n<body>",
    rendered$html, "</body>\n</html>")
  writeLines(enc2utf8(as.character(page)), next_figure("html"), useBytes = TRUE)
  invisible(x)
}

# A widget after its own last step. Debian's plotly requests buttons by names that its script, which is years older, does not
# know. The script then throws an error and draws nothing.
built <- function(x) {
  if (is.function(x$preRenderHook)) x <- x$preRenderHook(x)
  x$preRenderHook <- NULL
  if (inherits(x, "plotly")) {
    script <- system.file("htmlwidgets/lib/plotlyjs/plotly-latest.min.js", package = "plotly")
    if (nzchar(script) && any(grepl("plotly.js v1.", readLines(script, 2L), fixed = TRUE))) {
      x$x$config$modeBarButtonsToAdd <- Filter(is.list, x$x$config$modeBarButtonsToAdd)
    }
  }
  x
}

inline <- function(dependency) {
  folder <- dependency$src$file
  if (!is.null(dependency$package)) folder <- system.file(folder, package = dependency$package)
  content <- function(file) {
    text <- paste(readLines(file.path(folder, file), warn = FALSE, encoding = "UTF-8"), collapse = "\n")
    gsub("</script", "<\\/script", text, fixed = TRUE)
  }
  name <- function(entry) if (is.list(entry)) entry$src else entry
  c(
    vapply(dependency$stylesheet, function(entry) paste0("<style>\n", content(entry), "\n</style>"), ""),
    vapply(dependency$script, function(entry) paste0("<script>\n", content(name(entry)), "\n</script>"), ""),
    dependency$head
  )
}

options(device = figure_device)
setHook(packageEvent("htmlwidgets", "onLoad"), function(...) {
  registerS3method("print", "htmlwidget", show_widget, envir = asNamespace("htmlwidgets"))
})
