; What names something in Bash; handlers/README.md explains the captures.

(command name: (command_name) @call)
; Commands that start the command that follows them.
(command
  name: (command_name (word) @_starts)
  argument: (word) @call
  (#any-of? @_starts "builtin" "command" "env" "exec" "nice" "nohup" "sudo" "time" "timeout" "xargs"))
(command name: (command_name) @call . argument: [(word) (string) (raw_string) (concatenation)] @argument)

(word) @word
(string) @string
(raw_string) @string
(heredoc_body) @string
(comment) @comment
