# Answers the server's requests. Descriptor 4 has what the shell says, and 8 is its script.

LC_ALL=C
shopt -s nullglob
trap '' PIPE # The script of a shell that has ended.
handler=${BASH_SOURCE[0]%/*}
most=200

source "$handler/request.sh"
source "$handler/files.sh"

# What surrounds the code in the script. An error in an expression is the one way to set the number of the next line. If
# the code ends early, the shell skips to the mark.
number='\n{ LINENO=%d __sandbox_nothing=$((1/0)); } 2>/dev/null\n'
end='
#__sandbox
{ __sandbox_status=$?; builtin trap - DEBUG; __sandbox_end; } >/dev/null 2>&1
builtin eval "$__sandbox_left"
__sandbox_report'

# Writes text into the script; if it is long, where it is, since the shell reads its script byte by byte.
write() {
  if ((${#1} > 4096)); then
    exec 6< <(printf '%s\n' "$1")
    printf 'builtin source /proc/%d/fd/6\n' $$
  else
    printf '%s\n' "$1"
  fi >&8 2>/dev/null
}

# Writes a frame of this kind to standard output. Once a stream has been written to, bash writes text that ends with a
# newline in one write, as a frame requires.
frame() {
  local frame
  printf -v frame '\x1e%s%s%d\n%s\n' "$nonce" "$1" $((${#2} + 1)) "$2"
  echo -nE "$frame"
}

# Reports the exit status of the code and whether it was interrupted; the third argument has further keys.
report() {
  local status=ok text
  (($1)) && status=error
  find_changes
  text="{\"status\":\"$status\",\"exit_code\":$1,\"result\":null,\"interrupted\":$2,\"files\":["
  append "${made[@]}"
  text+="],\"files_omitted\":$omitted,\"figures\":["
  append "${drawn[@]}"
  frame . "$text]$3}"
  printf '\x1e%s.0\n' "$nonce" >&2
}

# Adds names to the text of the report, and sends the text whenever it is long enough for a frame.
append() {
  local name comma=
  for name; do
    text+=$comma$name comma=,
    ((${#text} < 500)) && continue
    frame + "$text"
    text=
  done
}

exec 8>script.sh
rm script.sh answers & # They need no names once they are open.
echo >/dev/null
write "__sandbox_answers=/proc/$$/fd/4; builtin source '$handler/session.sh'"

while IFS= read -r line; do
  nonce=${line:10:32}
  note_files
  read_request "${line:44}"
  printf -v quoted %q "$code"
  write "{ $assignments __sandbox_begin $stdin $quoted; } 2>/dev/null"
  read -r word whole <&4
  [[ $word == begun ]] || break # The shell had ended before the request came.
  frame + ''
  if [[ $whole ]]; then
    printf "$number"'builtin eval "$__sandbox_code"%s\n' 0 "$end"
  else
    printf "$number"'builtin :\n%s%s\n' -1 "$code" "$end"
  fi >&8 2>/dev/null
  read -r word status interrupted <&4
  exec 7<&-
  if [[ $word == ended ]]; then
    report "$status" false ',"ended":true'
    break
  fi
  report "$status" "$interrupted"
done
