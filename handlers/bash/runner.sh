# The protocol is in ../README.md. Three processes share the work:
#
# - The shell (bash ./script.sh) runs the code. Its script is a pipe, and the code of each run is the next part of its
#   script: so code is at the top level, with the names, the line numbers and the traces that it has in a file.
#   session.sh is all that it has of the runner.
# - The relay (relay.sh) has the server's descriptors and the nonce, which never enter the shell. It writes the script,
#   hears from the shell through a second pipe, finds the files that changed, and reports.
# - This process waits for the shell and tells the relay how it ended: code can end it, or replace it with another
#   program.
#
# Interrupts reach all three. They do nothing here, the relay ignores them since it runs in the background, and the
# shell and its children start with the usual action.

trap : INT
[ -d "$SANDBOX_FIGURES" ] || mkdir -p "$SANDBOX_FIGURES"
cd "$SANDBOX_FIGURES" || exit
# The names are there if an earlier start was cut off.
mkfifo script.sh answers 2>/dev/null || { rm -f script.sh answers && mkfifo script.sh answers; } || exit
exec 3<&0 4<>answers 5>&2 </dev/null 2>/dev/null # Some shells print how a child ended.
bash --noprofile --norc "${0%/*}/relay.sh" <&3 2>&5 3<&- 5>&- &
(exec bash --noprofile --norc ./script.sh 2>&5 3<&- 4<&- 5>&-)
code=$?
echo "ended $code" >&4
exec 3<&-
wait
exit $code
