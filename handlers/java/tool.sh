# tool.sh NAME ARGUMENT...: runs a tool of this folder, which is compiled once in a sandbox.

here="${0%/*}"
tool="$1"
classes="$HOME/build/java/$tool"
shift
if [ -d "$classes" ]; then
  set -- -cp "$classes" Main "$@"
else
  set -- "$here/Tool.java" "$here/$tool" "$classes" "$@"
fi
# No more heap than all processes have memory together; the JVM would go by the memory of the machine.
exec java -XX:MaxRAM="$SANDBOX_MEMORY" -XX:MaxRAMPercentage=60 -XX:+UseSerialGC -XX:TieredStopAtLevel=1 \
  -XX:-UsePerfData -Xshare:auto "$@"
