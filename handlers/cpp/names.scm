; What names something in C++; handlers/README.md explains the captures.

(preproc_include path: (_) @module (#set! bind "none"))

(using_declaration "namespace" [(identifier) (qualified_identifier)] @value (#set! bind "star"))
(using_declaration (qualified_identifier) @value (#set! bind "last"))
(namespace_alias_definition
  name: (_) @as
  [(namespace_identifier) (nested_namespace_specifier)] @value .)
(init_declarator declarator: (identifier) @as value: [(identifier) (qualified_identifier)] @value)
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
