# compile.sh FOLDER: builds the program on standard input into FOLDER/bin/main.

export GOFLAGS="-mod=mod -modcacherw" GOPROXY=off GOWORK=off
rm -rf "$1" && mkdir -p "$1/main" && cd "$1/main" && cat >main.go || exit

# Paths are trimmed only in the program, not in its imports: with other flags, the standard library would have to be compiled
# again. If the output is a folder, a package that is not main is an error.
build() { go build -gcflags="-trimpath=$PWD" -o ../bin/ . 2>&1; }

# The libraries of the session, added to those of a module.
require() {
  [ ! -f "$SANDBOX_LIBRARIES/go.mod" ] || sed -E '/^(module|go|toolchain) /d' "$SANDBOX_LIBRARIES/go.mod" >>go.mod
  [ ! -f "$SANDBOX_LIBRARIES/go.sum" ] || cat "$SANDBOX_LIBRARIES/go.sum" >>go.sum
}

# Adds what else `go run .` would see in the working directory, where the code is main.go: the module and its packages,
# and other files of package main, but not other programs or languages.
join() {
  here="$SANDBOX_WORKDIR"
  # Only files and not links can be embedded.
  add='ln -s'
  ! grep -q '^//go:embed ' main.go || add='cp -R'
  for path in "$here"/*; do
    case "${path##*/}" in
      main.go | go.mod | go.sum | *_test.go) continue ;;
      *.go) grep -q '^package main\b' "$path" && ! grep -q '^func main()' "$path" || continue ;;
      # Those of another language would be built too, or refused.
      *.[cFfmSs] | *.cc | *.cpp | *.cxx | *.f90 | *.for | *.sx | *.swig | *.swigcxx | *.syso)
        grep -q '^import "C"' main.go || continue
        ;;
    esac
    [ ! -e "$path" ] || $add "$path" .
  done
  [ ! -f "$here/go.mod" ] || cp "$here/go.mod" .
  [ ! -f "$here/go.sum" ] || cp "$here/go.sum" .
  require
  [ ! -f vendor/modules.txt ] || [ -f "$SANDBOX_LIBRARIES/go.mod" ] || export GOFLAGS=-mod=vendor
}

echo 'module main' >go.mod
require
messages=$(build) && exit
status=$?
case "$messages" in
  # Most code needs nothing of the working directory, and then nothing there can keep it from being built.
  *': undefined: '* | *' package '* | *': no matching files '*)
    join
    messages=$(build) && { [ -f ../bin/main ] || mv ../bin/* ../bin/main; } && exit
    ;;
esac
echo "$messages" >&2
exit $status
