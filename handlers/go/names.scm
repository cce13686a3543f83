; The names in Go code; handlers/README.md explains the captures.

(import_spec !name path: (_) @module (#set! bind "last"))
(import_spec name: (package_identifier) @as path: (_) @module)
(import_spec name: (dot) path: (_) @module (#set! bind "star"))
(import_spec name: (blank_identifier) path: (_) @module (#set! bind "none"))

(short_var_declaration
  left: (expression_list . (identifier) @as .)
  right: (expression_list . [(identifier) (selector_expression)] @value .))
(var_spec name: (identifier) @as value: (expression_list . [(identifier) (selector_expression)] @value .))
(assignment_statement
  left: (expression_list . (identifier) @as .)
  right: (expression_list . [(identifier) (selector_expression)] @value .))

(call_expression function: (identifier) @call)
(selector_expression) @call
(qualified_type) @call
(type_identifier) @call

(interpreted_string_literal) @string
(raw_string_literal) @string
(rune_literal) @string
(comment) @comment
