; The names in Ruby code; handlers/README.md explains the captures.

(assignment left: [(identifier) (constant)] @as right: [(constant) (scope_resolution) (call)] @value)

(call !receiver method: (_) @call)
(call receiver: (_) @on method: (_) @call)
([
   (program (identifier) @call)
   (body_statement (identifier) @call)
   (block_body (identifier) @call)
   (begin (identifier) @call)
   (do (identifier) @call)
   (then (identifier) @call)
   (else (identifier) @call)
   (ensure (identifier) @call)
   (parenthesized_statements (identifier) @call)
   (interpolation (identifier) @call)
   (assignment right: (identifier) @call)
   (operator_assignment right: (identifier) @call)
   (right_assignment_list (identifier) @call)
   (argument_list (identifier) @call)
   (array (identifier) @call)
   (pair value: (identifier) @call)
   (binary (identifier) @call)
   (unary (identifier) @call)
   (conditional (identifier) @call)
   (if condition: (identifier) @call)
   (elsif condition: (identifier) @call)
   (unless condition: (identifier) @call)
   (while condition: (identifier) @call)
   (until condition: (identifier) @call)
   (case value: (identifier) @call)
   (if_modifier (identifier) @call)
   (unless_modifier (identifier) @call)
   (while_modifier (identifier) @call)
   (until_modifier (identifier) @call)
   (rescue_modifier (identifier) @call)
   (call receiver: (identifier) @call)
 ]
 (#any-of? @call "abort" "binding" "exit" "fork" "gets"))
((subshell) @call (#set! name "`"))
; open('|ls')
(call
  !receiver
  method: (identifier) @_opens @call
  arguments: (argument_list . (string . (string_content) @_pipe))
  (#eq? @_opens "open")
  (#match? @_pipe "^\\|")
  (#set! name "`"))
(constant) @call
(scope_resolution) @call
(call method: (identifier) @_sends arguments: (argument_list . [(simple_symbol) (string)] @call)
  (#any-of? @_sends "send" "public_send" "__send__" "method"))
(call method: (identifier) @_sends arguments: (argument_list . [(simple_symbol) (string)] @call . (string) @argument)
  (#any-of? @_sends "send" "public_send" "__send__"))
(call
  receiver: (_) @on
  method: (identifier) @_sends
  arguments: (argument_list . [(simple_symbol) (string)] @member)
  (#any-of? @_sends "send" "public_send" "__send__" "method" "const_get"))
(alias alias: (identifier) @call)
(call method: (identifier) @_names arguments: (argument_list (simple_symbol) . (simple_symbol) @call)
  (#eq? @_names "alias_method"))
(call !receiver method: (_) @call arguments: (argument_list . [(string) (chained_string)] @argument))
(call receiver: (_) @on method: (_) @call arguments: (argument_list . (string) @argument))
(call method: (identifier) @call arguments: (argument_list . (simple_symbol) . (string) @argument)
  (#eq? @call "autoload"))

(call
  method: (identifier) @_runs
  arguments: (argument_list . (string) @code)
  (#any-of? @_runs "eval" "instance_eval" "class_eval" "module_eval"))

(string) @string
(bare_string) @word
(heredoc_body) @string
(regex) @string
(simple_symbol) @string
(comment) @comment
