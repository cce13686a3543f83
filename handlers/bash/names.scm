; The names in Bash code; handlers/README.md explains the captures.

(command name: (command_name) @call)
; Commands that start the command that follows them.
(command
  name: (command_name (word) @_starts)
  argument: (word) @call
  (#any-of? @_starts "builtin" "busybox" "chroot" "command" "coproc" "doas" "env" "eval" "exec" "flock" "ionice" "nice" "nohup" "parallel" "setsid"
    "stdbuf" "strace" "sudo" "time" "timeout" "watch" "xargs"))
(command name: (command_name) @call . argument: [(word) (string) (raw_string) (concatenation)] @argument)

(command
  argument: (word) @_starts
  . argument: (word) @call
  (#any-of? @_starts "-exec" "-execdir"))

; CURL=/usr/bin/curl; $CURL x
(variable_assignment name: (variable_name) @as value: [(word) (string) (raw_string)] @value)

(command
  name: (command_name (word) @_runs)
  argument: [(string) (raw_string)] @code
  (#any-of? @_runs "bash" "sh" "/bin/sh" "/bin/bash" "dash" "zsh" "ksh" "eval" "trap" "su" "watch"))
(command
  argument: (word) @_runs
  argument: [(string) (raw_string)] @code
  (#any-of? @_runs "bash" "sh"))
((redirected_statement
  body: (command name: (command_name (word) @_runs))
  redirect: (heredoc_redirect (heredoc_body) @code))
  (#any-of? @_runs "bash" "sh" "/bin/sh" "/bin/bash" "dash" "zsh" "ksh")
  (#set! text "verbatim"))

(word) @word
(string) @string
(raw_string) @string
(heredoc_body) @string
(comment) @comment
