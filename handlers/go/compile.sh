# compile.sh FOLDER: builds the program on standard input into FOLDER/main.

rm -rf "$1" && mkdir -p "$1/main" && cd "$1/main" && cat >main.go || exit

if [ -f "$SANDBOX_LIBRARIES/go.mod" ]; then
  cp "$SANDBOX_LIBRARIES/go.mod" "$SANDBOX_LIBRARIES/go.sum" .
else
  printf 'module main\n' >go.mod
fi

# Paths are trimmed only in the program, not in its imports: with other flags, the standard library would have to be compiled
# again. If the output is a folder, a package that is not main is an error.
exec go build -gcflags="-trimpath=$PWD" -o "$1/bin/" .
