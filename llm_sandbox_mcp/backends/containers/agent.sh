# The agent, the main process of a container: unpacks the handlers, reports usage, sends signals, and ends with its server.
#
# The server talks to it over its standard input and output. Each request is one line, here with its answer:
#   SIZE DIGEST          the handlers, first of all: if the image does not contain those of this digest -> "send", after which
#                        a compressed tar archive of them follows, SIZE bytes long; then -> "ready" and the image's PATH,
#                        "missing PROGRAM", or "stuck" if a template cannot be unpacked, for example for lack of space
#   beat                 the server is alive: the time of a file shows this to other servers -> nothing
#   signal NAME GROUP    -> nothing
#   pause GROUP...       -> nothing: all processes are stopped; those that the engine started go on, without these groups of
#                        code, and so does a command of the server
#   usage WORD           -> "usage WORD OOM_KILLS PIDS_REFUSED CPU TOUCHED"; the word is new each time, CPU is in
#                        microseconds, TOUCHED is 1 if /home or /tmp has changed since a command of the server touched .seen
#   look WORD COMMAND    -> a NUL and "WORD", the output of the server's command, a NUL and "WORD" again
#   looked               -> nothing: that command is over, or is no longer waited for
#   end                  the container is going to be removed: the agent ends -> nothing
# The end of its input means that the server has ended. Then the agent ends, its container ends too, and the engine removes it.
# Its second argument is a program that the engine needs in addition, its third the other name of the working directory, in a
# folder in memory that is there only for it; empty if there is no such folder.
# In a container that somebody else made (the first argument is "joined") the agent is one process among others: it unpacks no
# template, and the container goes on when the agent ends.
count() { # controller file key
  for place in "/sys/fs/cgroup/$2" "/sys/fs/cgroup/$1/$2"; do
    [ -r "$place" ] || continue
    while read -r key value; do
      [ "$key" != "$3" ] || { count=$value; return; }
    done <"$place"
  done
  count=0
}

look() {
  printf '\000%s\n' "$name"
  command eval "$group" </dev/null 2>/dev/null
  printf '\000%s\n' "$name"
}

end_look() {
  [ -z "$looking" ] || { kill -s KILL "$looking"; wait "$looking"; } 2>/dev/null
  looking=
}

# From inside, only KILL and STOP affect the agent: code that signals every process it can does not lose its sandbox.
number=1
while [ "$number" -le 64 ]; do
  case $number in 9 | 17 | 19 | 32 | 33) ;; *) trap '' "$number" ;; esac
  number=$((number + 1))
done

for program in tar gzip head find env ${2-}; do
  command -v "$program" >/dev/null || { echo "missing $program"; exit 1; }
done
[ -d /opt/handlers ] || mkdir -p /opt/handlers 2>/dev/null
read -r size digest
# Not in a container that somebody else made, in which earlier code may have written this file.
if [ "$1" != joined ] && [ -r "/opt/handlers-$digest.tar.gz" ]; then
  tar -x -z -f "/opt/handlers-$digest.tar.gz" -C /opt/handlers
else
  echo send
  head -c "$size" | tar -x -z -f - -C /opt/handlers
fi || { echo "missing writable /opt/handlers"; exit 1; }
: >/opt/handlers/.beat
: >/opt/handlers/.seen
if [ "$1" != joined ] && [ -f /opt/template.tar ]; then
  # Only these two folders, whatever else code has put into the archive.
  tar -x -p -f /opt/template.tar -C / sandbox home 2>/dev/null || { echo stuck; exit 1; }
fi
mkdir -p /home/figures /home/libraries
[ -z "${3-}" ] || { ln -s /sandbox "$3" && chmod 555 "${3%/*}"; } 2>/dev/null
looking=
echo "ready $PATH"
while read -r verb name group; do # the last variable gets the rest of the line
  case $verb in
    beat) true >/opt/handlers/.beat ;; # `:` would end the shell if the file cannot be opened
    signal) kill -s "$name" -- "-$group" 2>/dev/null ;;
    end) exit ;;
    pause)
      kill -s STOP -- -1
      kill -s CONT -- 0
      for place in /proc/[0-9]*; do
        id=${place#/proc/}
        case " 1 $name $group " in *" $id "*) continue ;; esac # minus 1 would be all
        read -r state <"$place/stat" || continue
        case ${state##*) } in ?" 0 "*) kill -s CONT -- "$id" "-$id" ;; esac # its parent is outside the container
      done 2>/dev/null
      ;;
    usage)
      count memory memory.events oom_kill; kills=$count
      [ "$kills" -gt 0 ] || { count memory memory.oom_control oom_kill; kills=$count; }
      count pids pids.events max; refused=$count
      count cpu cpu.stat usage_usec
      for place in cpuacct cpu,cpuacct; do
        [ "$count" = 0 ] && [ -r "/sys/fs/cgroup/$place/cpuacct.usage" ] || continue
        read -r count <"/sys/fs/cgroup/$place/cpuacct.usage"
        count=${count%???} # nanoseconds to microseconds
      done
      touched=0
      [ ! /tmp -nt /opt/handlers/.seen ] && [ ! /home -nt /opt/handlers/.seen ] || touched=1
      echo "usage $name $kills $refused $count $touched"
      ;;
    look)
      # In the background, because code can stop it; one that is still busy is no longer waited for.
      end_look
      # Without `command`, the shell would end if it cannot fork, which happens when code has used up all processes.
      command eval 'look & looking=$!' 2>/dev/null || printf '\000%s\n\000%s\n' "$name" "$name"
      ;;
    looked) end_look ;;
  esac
done
