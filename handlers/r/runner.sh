# The protocol is in ../README.md. R can neither duplicate a descriptor nor keep one from its children, so two processes share
# the work:
#
# - This relay has the server's descriptors and the nonce, which never enter the process that runs code.
# - R (runner.R) has only the standard streams. It opens the pipes to the relay by their path, and only while it reads a
#   request or writes an answer: the code can neither close them nor pass them to a child.

folder=${BASH_SOURCE[0]%/*}

start_r() {
  exec 2>/dev/null # Bash prints how a child ended.
  SANDBOX_RUNNER=/proc/$BASHPID/fd R --vanilla --no-echo --file="$folder/runner.R" \
    <&249 >&251 2>&252 249<&- 250<&- 251>&- 252>&-
  echo "ended $?"
}

# Each line of an answer is a frame: it starts with + if more follow, with . or = if it is the last. The end of R is
# also reported by a line; its status becomes the relay's.
relay() {
  local LC_ALL=C line nonce
  # Once a stream has been written to, bash writes text that ends with a newline in one write, as a frame requires.
  echo >/dev/null
  while IFS= read -r line <&250; do
    nonce=${line:10:32}
    printf '{%s\n' "${line:44}" >&"$requests"
    while IFS= read -r line <&"$answers" || line='ended 1'; do
      [[ $line == 'ended '* ]] && return "${line#ended }"
      # The last frame of a report after which R ends: what R still prints comes before it.
      if [[ $line == =* ]]; then
        read -r _ <&"$answers"
        line=.${line:1}
      fi
      send "${line:0:1}" "${line:1}" || break
    done
    printf '\x1e%s.0\n' "$nonce" >&252
  done
  exec {requests}>&- # this ends R
  read -r line <&"$answers" || return 0 # or it has ended before
}

# Sends a frame; fails after the last frame. A newline is allowed after a report, but not inside its strings.
send() {
  local frame
  if [[ $1 == + && $2 ]]; then
    printf -v frame '\x1e%s+%d\n%s' "$nonce" ${#2} "$2"
    dd bs=${#frame} count=1 status=none <<<"$frame" >&251
  else
    printf -v frame '\x1e%s%s%d\n%s\n' "$nonce" "$1" $((${#2} + 1)) "$2"
    echo -nE "$frame" >&251
    [[ $1 == + ]]
  fi
}

trap '' INT
exec 250<&0 251>&1 252>&2 </dev/null
# R's standard input: a file without a name, which lib/input.R fills for a run.
exec 249<>"$HOME/.stdin-$$"
rm "$HOME/.stdin-$$"
coproc start_r
exec 249<&-
requests=${COPROC[1]} answers=${COPROC[0]}
trap '' PIPE # If R has died, its last line reports it. Set only now, or R would inherit it.
relay 2>/dev/null
