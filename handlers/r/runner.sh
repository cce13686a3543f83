# The protocol is in ../README.md. R can neither duplicate a descriptor nor keep one from its children, so two processes share
# the work:
#
# - This relay has the server's descriptors and the nonce, which never enter the process that runs code.
# - R (runner.R) has nothing but the standard streams. It opens the pipes to the relay by their path, for as long as it reads a
#   request or writes an answer: the code can neither close them nor hand them to a child.

folder=${BASH_SOURCE[0]%/*}

start_r() {
  SANDBOX_RUNNER=/proc/$BASHPID/fd R --vanilla --no-echo --file="$folder/runner.R" \
    </dev/null >&251 2>&252 250<&- 251>&- 252>&-
  echo "ended $?"
}

# A line of an answer is a frame: + when more follow, . when it is the last. R's own end is a line too, and becomes this one's.
relay() {
  local LC_ALL=C line nonce
  # In a stream that has been written to, bash writes text that ends with a newline at once, and a frame must be one write.
  echo >/dev/null
  while IFS= read -r line <&250; do
    nonce=${line:10:32}
    printf '{%s\n' "${line:44}" >&"$requests"
    while IFS= read -r line <&"$answers" || line='ended 1'; do
      [[ $line == 'ended '* ]] && return "${line#ended }"
      send "${line:0:1}" "${line:1}" || break
    done
    printf '\x1e%s.0\n' "$nonce" >&252
  done
  exec {requests}>&- # at which R ends
  read -r line <&"$answers"
}

# Sends a frame; fails after the last. A newline may follow a report, but not stand inside its strings.
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
coproc start_r
requests=${COPROC[1]} answers=${COPROC[0]}
trap '' PIPE # A dead R is reported by its last line. Only now: R would inherit it.
relay 2>/dev/null
