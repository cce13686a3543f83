# The protocol is in ../README.md. Two processes share the work:
#
# - A relay (a coprocess, below) has the server's descriptors and the nonce, which never enter the shell that runs code. If
#   that shell ends without a report, because code replaced it, the relay sends a report instead.
# - This shell runs the code and keeps its state. Its ends of the coprocess are its only descriptors apart from 0, 1 and 2, and
#   bash closes them in every child: a redirection cannot reach the protocol, and a child cannot answer.
#
# The code is sourced at the top level, so that `declare` makes lasting variables, and from a descriptor, so that errors show
# the line numbers of the code. Bash cannot leave running code from a trap, but a DEBUG trap that returns 2 under `extdebug`
# makes it return from one function after the other. That is how SIGINT, `exit` and `set -e` end a run and keep the state.

__sandbox_root=$SANDBOX_WORKDIR
__sandbox_figure_folder=$SANDBOX_FIGURES
__sandbox_stamp=${HOME:-/tmp}/.sandbox-stamp-$$
__sandbox_most=200

builtin source "${BASH_SOURCE[0]%/*}/request.sh"
builtin source "${BASH_SOURCE[0]%/*}/files.sh"
builtin source "${BASH_SOURCE[0]%/*}/python.sh"

__sandbox_gone='{"status":"error","exit_code":1,"result":null,"interrupted":false,"files":[],"files_omitted":0,"figures":[]}'

__sandbox_relay() {
  builtin local LC_ALL=C line nonce frame kind begun
  builtin trap '' INT
  # Once a stream has been written to, bash writes text that ends with a newline in one write, as a frame requires.
  builtin echo >/dev/null
  while IFS= builtin read -r line <&250; do
    nonce=${line:10:32}
    builtin printf '%s\n' "${line:44}"
    # Each line of the answer is a frame: it starts with + if more follow, with ! if it is the last from this shell. There is
    # no line if the shell had ended before the request came.
    begun=
    while IFS= builtin read -r line || { [[ $begun ]] || builtin return; line=!$__sandbox_gone; }; do
      begun=1 kind=${line:0:1} frame=${line:1}
      builtin printf -v frame '\x1e%s%s%d\n%s\n' "$nonce" "${kind/'!'/.}" $((${#frame} + 1)) "$frame"
      builtin echo -nE "$frame" >&251
      [[ $kind == + ]] || break
    done
    builtin printf '\x1e%s.0\n' "$nonce" >&252
    [[ $kind == '!' ]] && break
  done
}

exec 250<&0 251>&1 252>&2 </dev/null
coproc __sandbox_relay { __sandbox_relay; }
exec 250<&- 251>&- 252>&-
__sandbox_in=${__sandbox_relay[0]} __sandbox_out=${__sandbox_relay[1]}
builtin disown "$__sandbox_relay_PID" # Otherwise a bare `wait` in the code would wait for it.

__sandbox_stop() {
  __sandbox_stopped=$1
  builtin shopt -s extdebug
  builtin trap __sandbox_unwind DEBUG
}

__sandbox_unwind() {
  ((${#BASH_SOURCE[@]} > 2)) && builtin return 2
  builtin trap - DEBUG
  builtin shopt -u extdebug
}

__sandbox_interrupt() {
  __sandbox_interrupted=true
  __sandbox_stop 130
}

__sandbox_failed() {
  [[ $- == *e* && $BASHPID == "$$" ]] || builtin return 0
  builtin set +e
  __sandbox_stop "$1"
}

exit() {
  builtin local status=$?
  [[ $BASHPID == "$$" ]] || builtin exit "${@:-$status}"
  [[ ${1:-$status} =~ ^[+-]?[0-9]+$ ]] && status=$((${1:-$status} & 255)) || status=2
  __sandbox_stop "$status"
}

__sandbox_report() {
  builtin local status=ok text
  (($1)) && status=error
  __sandbox_changes
  builtin printf -v text '+{"status":"%s","exit_code":%d,"result":null,"interrupted":%s,"files":[' \
    "$status" "$1" "$__sandbox_interrupted"
  __sandbox_append "${__sandbox_made[@]}"
  text+="],\"files_omitted\":$__sandbox_omitted,\"figures\":["
  __sandbox_append "${__sandbox_drawn[@]}"
  builtin echo -E "${2:-.}${text:1}]}" >&"$__sandbox_out"
}

# Adds names to the report's text, and sends the text whenever it is long enough for a frame.
__sandbox_append() {
  builtin local name comma=
  for name; do
    text+=$comma$name comma=,
    ((${#text} < 500)) && continue
    builtin echo -E "$text" >&"$__sandbox_out"
    text=+
  done
}

# Some errors end bash in any case, such as an unset variable under `set -u`.
__sandbox_leave() {
  builtin local status=$?
  builtin trap '' INT
  [[ $__sandbox_running ]] && __sandbox_report "${__sandbox_stopped:-$status}" '!'
}

builtin trap '' INT
builtin trap __sandbox_leave EXIT
__sandbox_running=
while IFS= builtin read -r -u "$__sandbox_in" __sandbox_line; do
  builtin echo + >&"$__sandbox_out"
  __sandbox_interrupted=false __sandbox_stopped=
  __sandbox_before
  __sandbox_running=1
  __sandbox_open "$__sandbox_line"
  builtin trap '__sandbox_failed $?' ERR
  builtin trap __sandbox_interrupt INT
  builtin set -E
  if [[ ${__stdin+given} ]]; then
    __sandbox_input=${__stdin%$'\n'}
    builtin unset -v __stdin
    builtin source /dev/fd/249 249<<<"$__sandbox_code" <<<"$__sandbox_input"
  else
    builtin source /dev/fd/249 249<<<"$__sandbox_code"
  fi
  __sandbox_status=$?
  builtin trap '' INT
  builtin trap - ERR DEBUG
  builtin set +efnuvxCE
  __sandbox_report "${__sandbox_stopped:-$__sandbox_status}"
  __sandbox_running=
done
builtin trap - EXIT
