# compile.sh FOLDER: builds the program on standard input into FOLDER/main.

rm -rf "$1" && mkdir -p "$1" && cd "$1" && cat >main.cpp || exit

# Compiled from within the folder, so that messages name the file main.cpp. Later errors mostly repeat the first. OpenMP
# costs nothing if the code does not use it, and includes -pthread. Without -fno-tree-pta, a write to a null pointer can be
# left out instead of ending the program.
set -- -std="$CPP_STANDARD" -O1 -fno-tree-pta -pipe -fopenmp -fmax-errors=20 -iquote "$SANDBOX_WORKDIR" -o main main.cpp
[ ! -f "$SANDBOX_LIBRARIES/flags" ] || set -- "$@" "@$SANDBOX_LIBRARIES/flags"
exec g++ "$@"
