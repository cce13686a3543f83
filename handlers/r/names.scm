; What names something in R; handlers/README.md explains the captures.

((namespace_operator lhs: (_) @module) (#set! bind "none"))

(binary_operator
  lhs: (identifier) @as
  operator: ["<-" "<<-" "="]
  rhs: [(identifier) (namespace_operator) (extract_operator)] @value)

(call function: (identifier) @call)
(namespace_operator) @call
(extract_operator) @call
(call
  function: [(identifier) (namespace_operator)] @call
  arguments: (arguments . argument: (argument value: [(identifier) (string)] @argument))
  (#set! bind "star"))
; A function by its name, or by its value.
(argument value: (identifier) @call)

(string) @string
(comment) @comment
