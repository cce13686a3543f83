# compile.sh FOLDER: builds the program on standard input into FOLDER/main.

rm -rf "$1" && mkdir -p "$1" && cd "$1" && cat >main.cpp || exit

# Compiled from within the folder, so that messages name the file main.cpp. Later errors mostly repeat the first.
set -- -std="$CPP_STANDARD" -O1 -pipe -pthread -fmax-errors=20 -iquote "$SANDBOX_WORKDIR" -o main main.cpp
[ ! -f "$SANDBOX_LIBRARIES/flags" ] || set -- "$@" "@$SANDBOX_LIBRARIES/flags"
exec g++ "$@"
