; Finds the names that Python code uses; handlers/README.md explains the captures.

(import_statement name: (dotted_name) @module (#set! bind "first"))
(import_statement name: (aliased_import name: (dotted_name) @module alias: (identifier) @as))
(import_from_statement module_name: (_) @module name: (dotted_name) @name)
(import_from_statement module_name: (_) @module name: (aliased_import name: (dotted_name) @name alias: (identifier) @as))
(import_from_statement module_name: (_) @module (wildcard_import) (#set! bind "star"))

(assignment left: (identifier) @as right: [(identifier) (attribute) (call)] @value)
(assignment
  left: (identifier) @as
  right: (assignment left: (identifier) right: [(identifier) (attribute) (call)] @value))
(named_expression name: (identifier) @as value: [(identifier) (attribute) (call)] @value)

(call function: (identifier) @call)
(attribute) @call
(decorator (identifier) @call)
(call
  function: [(identifier) (attribute)] @call
  arguments: (argument_list . [(string) @argument (keyword_argument value: (string) @argument)]))
(call function: (subscript) @call)
((argument_list . (identifier) @call . (_)) (#any-of? @call "__import__" "compile" "eval" "exec" "input" "open"))
((exec_statement) @call (#set! name "exec"))
((subscript value: (attribute) @_loaded subscript: (string) @module)
  (#eq? @_loaded "sys.modules")
  (#set! bind "none"))
(call
  function: (identifier) @_gets
  arguments: (argument_list . [(identifier) (attribute)] @on . (string) @member)
  (#eq? @_gets "getattr"))

(call
  function: [(identifier) (attribute)] @_runs
  arguments: (argument_list . [(string) (concatenated_string)] @code)
  (#any-of? @_runs "eval" "exec" "compile" "builtins.eval" "builtins.exec"))
(exec_statement code: (string) @code)

(string) @string
(comment) @comment
