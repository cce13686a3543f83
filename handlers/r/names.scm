; The names in R code; handlers/README.md explains the captures.

((namespace_operator lhs: (_) @module) (#set! bind "none"))

(binary_operator
  lhs: (identifier) @as
  operator: ["<-" "<<-" "="]
  rhs: [(identifier) (namespace_operator) (extract_operator)] @value)

(binary_operator lhs: [(identifier) (namespace_operator)] @value operator: ["->" "->>"] rhs: (identifier) @as)

(call function: [(identifier) (string)] @call)
(namespace_operator) @call
(extract_operator) @call
(call
  function: [(identifier) (namespace_operator)] @call
  arguments: (arguments . argument: (argument value: [(identifier) (string)] @argument))
  (#set! bind "star"))
; Functions that load several packages.
(call
  function: [(identifier) (namespace_operator)] @call
  arguments: (arguments argument: (argument value: [
    (identifier) @argument
    (string) @argument
    (subset function: (identifier) @argument)
  ]))
  (#any-of? @call "p_load" "pacman::p_load" "box::use" "librarian::shelf"))
; library(x, character.only = TRUE) loads the package that x names.
((argument name: (identifier) @computed) (#eq? @computed "character.only"))

; A function that is passed by its name, or as a value.
(call
  function: [(identifier) (namespace_operator)] @_by_name
  arguments: (arguments . argument: (argument value: (string) @call))
  (#any-of? @_by_name "do.call" "base::do.call" "get" "base::get" "match.fun" "base::match.fun" "rlang::exec"))
(call
  function: (identifier) @_applies
  arguments: (arguments . argument: (_) . (comma) . argument: (argument value: (string) @call))
  (#any-of? @_applies "lapply" "sapply" "vapply"))
(argument value: (identifier) @call)

(call
  function: (identifier) @_runs
  arguments: (arguments argument: (argument value: (string) @code))
  (#any-of? @_runs "parse" "str2lang" "str2expression"))

(string) @string
(comment) @comment
