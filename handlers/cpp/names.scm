; The names in C++ code; handlers/README.md explains the captures.

(preproc_include path: (_) @module (#set! bind "none"))
; Includes that the grammar does not recognise, such as one inside a class.
((preproc_call directive: (preproc_directive) @_includes argument: (preproc_arg) @module)
  (#match? @_includes "^#[ \\t]*(include|include_next|import)$")
  (#set! bind "none"))
(preproc_def name: (identifier) @as value: (preproc_arg) @value)
((preproc_function_def value: (preproc_arg) @code) (#set! text "verbatim"))
((preproc_def value: (preproc_arg) @code) (#set! text "verbatim"))

(using_declaration "namespace" [(identifier) (qualified_identifier)] @value (#set! bind "star"))
(using_declaration (qualified_identifier) @value (#set! bind "last"))
(namespace_alias_definition
  name: (_) @as
  [(namespace_identifier) (nested_namespace_specifier)] @value .)
(init_declarator declarator: (identifier) @as value: [(identifier) (qualified_identifier)] @value)
(init_declarator declarator: (_ (identifier) @as) value: [(identifier) (qualified_identifier)] @value)
(assignment_expression left: (identifier) @as right: [(identifier) (qualified_identifier)] @value)
(init_declarator
  declarator: (_ declarator: (identifier) @as)
  value: [(identifier) (qualified_identifier) (pointer_expression)] @value)

(call_expression function: (_) @call)
(qualified_identifier) @call
(pointer_expression operator: "&" argument: (identifier) @call)
(gnu_asm_expression ["asm" "__asm__" "__asm"] @call)

(string_literal) @string
(raw_string_literal) @string
(char_literal) @string
(comment) @comment
