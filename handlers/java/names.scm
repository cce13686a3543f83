; Finds the names that Java code uses; handlers/README.md explains the captures.

(import_declaration (scoped_identifier) @module (asterisk) (#set! bind "star"))
(import_declaration [(identifier) (scoped_identifier)] @module . ";" (#set! bind "last"))
; Full names, with the package, need no import.
((scoped_type_identifier) @module (#set! bind "none"))
((field_access) @module (#set! bind "none"))

(variable_declarator
  name: (identifier) @as
  value: [(identifier) (field_access) (method_invocation) (object_creation_expression)] @value)

(assignment_expression
  left: (identifier) @as
  right: [(identifier) (field_access) (method_invocation) (object_creation_expression)] @value)

(method_invocation object: (_) @on name: (identifier) @call)
(method_invocation !object name: (identifier) @call)
(method_reference . (_) @on (identifier) @call .)
(method_reference . (_) @call . "::" . "new")
(field_access) @call
(type_identifier) @call
(scoped_type_identifier) @call
(method_invocation
  object: (_) @on
  name: (identifier) @call
  arguments: (argument_list . (string_literal) @argument))

(string_literal) @string
(character_literal) @string
(line_comment) @comment
(block_comment) @comment
