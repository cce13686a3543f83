; What names something in JavaScript; handlers/README.md explains the captures.

(import_statement source: (string) @module (#set! bind "none"))
(import_statement (import_clause (identifier) @as) source: (string) @module)
(import_statement (import_clause (namespace_import (identifier) @as)) source: (string) @module)
(import_statement
  (import_clause (named_imports (import_specifier name: (_) @name !alias)))
  source: (string) @module)
(import_statement
  (import_clause (named_imports (import_specifier name: (_) @name alias: (identifier) @as)))
  source: (string) @module)
(export_statement source: (string) @module (#set! bind "none"))

(variable_declarator
  name: (identifier) @as
  value: [(identifier) (member_expression) (subscript_expression) (call_expression) (await_expression)] @value)
(variable_declarator
  name: (object_pattern (shorthand_property_identifier_pattern) @name)
  value: [(identifier) (member_expression) (call_expression) (await_expression)] @value)
(variable_declarator
  name: (object_pattern (pair_pattern key: (property_identifier) @name value: (identifier) @as))
  value: [(identifier) (member_expression) (call_expression) (await_expression)] @value)
(assignment_expression
  left: (identifier) @as
  right: [(identifier) (member_expression) (subscript_expression) (call_expression) (await_expression)] @value)

(call_expression function: [(identifier) (import) (subscript_expression)] @call)
(member_expression) @call
(new_expression constructor: (_) @call)
(call_expression
  function: [(identifier) (import) (member_expression)] @call
  arguments: (arguments . [(string) (template_string)] @argument))

(string) @string
(template_string) @string
(regex) @string
(comment) @comment
