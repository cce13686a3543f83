# tool.sh NAME ARGUMENT...: runs a tool of this folder; it is compiled once in each sandbox.

here="${0%/*}"
tool="$1"
classes="$HOME/build/java/$tool"
shift
if [ -d "$classes" ]; then
  set -- -cp "$classes" Main "$@"
else
  set -- "$here/Tool.java" "$here/$tool" "$classes" "$@"
fi
# Limits the heap to the memory of the sandbox; by default the JVM uses the memory of the machine.
exec java -XX:MaxRAM="$SANDBOX_MEMORY" -XX:MaxRAMPercentage=60 -XX:+UseSerialGC -XX:TieredStopAtLevel=1 \
  -XX:-UsePerfData -Xshare:auto "$@"
