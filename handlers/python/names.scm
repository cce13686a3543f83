; What names something in Python; handlers/README.md explains the captures.

(import_statement name: (dotted_name) @module (#set! bind "first"))
(import_statement name: (aliased_import name: (dotted_name) @module alias: (identifier) @as))
(import_from_statement module_name: (_) @module name: (dotted_name) @name)
(import_from_statement module_name: (_) @module name: (aliased_import name: (dotted_name) @name alias: (identifier) @as))
(import_from_statement module_name: (_) @module (wildcard_import) (#set! bind "star"))

(assignment left: (identifier) @as right: [(identifier) (attribute) (call)] @value)
(named_expression name: (identifier) @as value: [(identifier) (attribute) (call)] @value)

(call function: (identifier) @call)
(attribute) @call
(decorator (identifier) @call)
(call
  function: [(identifier) (attribute)] @call
  arguments: (argument_list . [(string) @argument (keyword_argument value: (string) @argument)]))
((exec_statement) @call (#set! name "exec"))

(string) @string
(comment) @comment
