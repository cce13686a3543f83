# Programs of other languages that are to be those of the session.

# Systems do not always have `python`, and the system's pip is not that of the session.
builtin type -P python >/dev/null || python() { python3 "$@"; }

pip() { python3 -m pip "$@"; }

pip3() { python3 -m pip "$@"; }

# npx itself finds programs only in the package around the working directory. The session's are where Node finds its
# libraries.
npx() {
  builtin local at=1 program
  while [[ ${!at-} == @(-y|--yes|--no|--no-install|-q|--quiet) ]]; do at=$((at + 1)); done
  program=${NODE_PATH%%:*}/.bin/${!at-}
  if [[ ${!at-} && -x $program ]]; then
    "$program" "${@:at+1}"
  else
    command npx "$@"
  fi
}
