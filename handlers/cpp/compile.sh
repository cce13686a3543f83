# compile.sh FOLDER: builds the program on standard input into FOLDER/main.

rm -rf "$1" && mkdir -p "$1" && cd "$1" && cat >main.cpp || exit

# Compiled from within the folder, so that messages name the file main.cpp. Later errors mostly repeat the first. OpenMP
# costs nothing if the code does not use it, and includes -pthread. Without -fno-tree-pta, a write to a null pointer can be
# left out instead of ending the program.
set -- -std="$CPP_STANDARD" -O1 -fno-tree-pta -pipe -fopenmp -fmax-errors=20 -iquote "$SANDBOX_WORKDIR" -o main main.cpp
[ ! -f "$SANDBOX_LIBRARIES/flags" ] || set -- "$@" "@$SANDBOX_LIBRARIES/flags"
messages=$(g++ "$@" 2>&1) && exit
status=$?
printf '%s\n' "$messages" >&2

# What the linker did not find may be in another file of the caller's: one that has its name, and is not a program.
name=$(printf '%s' "$messages" | sed -n "s/.*undefined reference to [\`']//; T; s/<[^>]*>//g; s/[(>'].*//; s/.*[: ]//; p; q")
[ -n "$name" ] && cd "$SANDBOX_WORKDIR" || exit $status
for file in *.c *.cc *.cpp *.cxx */*.c */*.cc */*.cpp */*.cxx; do
  grep -qswF -e "$name" "$file" && ! grep -q '\bmain *(' "$file" || continue
  echo "main.cpp: note: only this code is linked, and not $file, which has \"$name\";" \
    "add #include \"$file\", or run g++ with both in language bash" >&2
  break
done
exit $status
