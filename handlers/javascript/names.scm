; Finds the names that JavaScript code uses; handlers/README.md explains the captures.

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
(variable_declarator
  name: (object_pattern (object_assignment_pattern left: (shorthand_property_identifier_pattern) @name))
  value: [(identifier) (member_expression) (call_expression) (await_expression)] @value)
(assignment_expression
  left: (identifier) @as
  right: [(identifier) (member_expression) (subscript_expression) (call_expression) (await_expression)] @value)
(assignment_expression
  left: (object_pattern (shorthand_property_identifier_pattern) @name)
  right: [(identifier) (member_expression) (call_expression) (await_expression)] @value)
; import('x').then(x => ...)
(call_expression
  function: (member_expression object: (call_expression function: (import)) @value property: (_) @_then)
  arguments: (arguments
    . (arrow_function
      [
        parameter: (identifier) @as
        parameters: (formal_parameters . (identifier) @as)
        parameters: (formal_parameters . (object_pattern (shorthand_property_identifier_pattern) @name))
      ]))
  (#eq? @_then "then"))

(call_expression function: [(identifier) (import) (subscript_expression)] @call)
(member_expression) @call
(new_expression constructor: (_) @call)
(call_expression
  function: [(identifier) (import) (member_expression) (subscript_expression)] @call
  arguments: (arguments . [(string) (template_string)] @argument))
(call_expression
  function: [(identifier) (import)] @call
  arguments: (arguments . (comment) . [(string) (template_string)] @argument))
; A call of another call's result, such as createRequire(x)('fs').
(call_expression
  function: (call_expression function: [(identifier) (member_expression)] @call)
  arguments: (arguments . [(string) (template_string)] @argument))
(call_expression
  function: (parenthesized_expression
    [(identifier) @call (sequence_expression (identifier) @call .)]))
((arguments (identifier) @call) (#any-of? @call "eval" "fetch" "require"))

(call_expression
  function: (identifier) @_runs
  arguments: (arguments . [(string) (template_string)] @code)
  (#eq? @_runs "eval"))
(new_expression
  constructor: (identifier) @_runs
  arguments: (arguments [(string) (template_string)] @code .)
  (#eq? @_runs "Function"))

(string) @string
(template_string) @string
(regex) @string
(comment) @comment
