; What names something in Ruby; handlers/README.md explains the captures.

(assignment left: [(identifier) (constant)] @as right: [(constant) (scope_resolution) (call)] @value)

(call !receiver method: (_) @call)
(call receiver: (_) @on method: (_) @call)
([
   (program (identifier) @call)
   (body_statement (identifier) @call)
   (block_body (identifier) @call)
   (then (identifier) @call)
   (else (identifier) @call)
   (assignment right: (identifier) @call)
   (if condition: (identifier) @call)
   (unless condition: (identifier) @call)
 ]
 (#any-of? @call "fork" "binding"))
((subshell) @call (#set! name "`"))
(constant) @call
(scope_resolution) @call
(call method: (identifier) @_sends arguments: (argument_list . (simple_symbol) @call)
  (#any-of? @_sends "send" "public_send" "__send__" "method"))
(call !receiver method: (_) @call arguments: (argument_list . (string) @argument))
(call receiver: (_) @on method: (_) @call arguments: (argument_list . (string) @argument))
(call method: (identifier) @call arguments: (argument_list . (simple_symbol) . (string) @argument)
  (#eq? @call "autoload"))

(string) @string
(heredoc_body) @string
(regex) @string
(simple_symbol) @string
(comment) @comment
