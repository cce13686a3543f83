# The main process of a container: unpacks the handlers, tells how things stand, sends signals, and ends with its server.
#
# It talks over its own standard input and output, attached by the server, one line each way:
#   SIZE                 the handlers follow, a compressed tar archive of so many bytes -> "ready" and the image's PATH,
#                        "missing PROGRAM", or "stuck" where what a template brings cannot be unpacked, as for lack of room
#   beat                 the server lives: a file's time tells that to others -> nothing
#   signal NAME GROUP    -> nothing
#   usage WORD           -> "usage WORD OOM_KILLS PIDS_REFUSED CPU"; the word is new each time, CPU are microseconds
#   look WORD COMMAND    -> a NUL and "WORD", what a command of the server's prints, a NUL and "WORD" again
# The end of its input is the end of the server: then it ends, and its container with it, which the engine removes.
# Its second argument is a program that the engine needs besides.
# In a container that is not ours (its first is "joined") it is one process among others, unpacks no template, and ends alone.
count() { # controller file key
  for place in "/sys/fs/cgroup/$2" "/sys/fs/cgroup/$1/$2"; do
    [ -r "$place" ] || continue
    while read -r key value; do
      [ "$key" != "$3" ] || { count=$value; return; }
    done <"$place"
  done
  count=0
}

# Nothing but KILL ends or stops it from inside, so that code which signals everything it can keeps its sandbox.
number=1
while [ "$number" -le 64 ]; do
  case $number in 9 | 17 | 19 | 32 | 33) ;; *) trap '' "$number" ;; esac
  number=$((number + 1))
done

for program in tar gzip head find env ${2-}; do
  command -v "$program" >/dev/null || { echo "missing $program"; exit 1; }
done
[ -d /opt/handlers ] || mkdir -p /opt/handlers 2>/dev/null
read -r size
head -c "$size" | tar -x -z -f - -C /opt/handlers || { echo "missing a writable /opt/handlers"; exit 1; }
: >/opt/handlers/.beat
if [ "$1" != joined ] && [ -f /opt/template.tar ]; then
  # These two only, whatever else code may have put into the archive.
  tar -x -p -f /opt/template.tar -C / sandbox home 2>/dev/null || { echo stuck; exit 1; }
fi
mkdir -p /home/figures /home/libraries
echo "ready $PATH"
while read -r verb name group; do # the last has all that is left
  case $verb in
    beat) true >/opt/handlers/.beat ;; # `:` that cannot open its file would end the shell
    signal) kill -s "$name" -- "-$group" 2>/dev/null ;;
    usage)
      count memory memory.events oom_kill; kills=$count
      [ "$kills" -gt 0 ] || { count memory memory.oom_control oom_kill; kills=$count; }
      count pids pids.events max; refused=$count
      count cpu cpu.stat usage_usec
      for place in cpuacct cpu,cpuacct; do
        [ "$count" = 0 ] && [ -r "/sys/fs/cgroup/$place/cpuacct.usage" ] || continue
        read -r count <"/sys/fs/cgroup/$place/cpuacct.usage"
        count=${count%???} # of its nanoseconds, microseconds
      done
      echo "usage $name $kills $refused $count"
      ;;
    look)
      printf '\000%s\n' "$name"
      # `command`, or a shell that cannot fork, where code has used up all processes, would end.
      command eval "$group" </dev/null 2>/dev/null
      printf '\000%s\n' "$name"
      ;;
  esac
done
