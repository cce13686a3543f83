# The session's Python: systems do not always have `python`, and pip must install where the session's libraries are.

builtin type -P python >/dev/null || python() { python3 "$@"; }

pip() {
  if [[ $1 != install ]]; then
    "$SANDBOX_UV" pip "$@" --python "$(builtin command -v python3)"
  elif [[ $SANDBOX_NETWORK == none ]]; then
    builtin echo "pip: there is no network, so code cannot install: ${*:2}" >&2
    builtin return 1
  else
    "$SANDBOX_UV" pip "$@" --python "$(builtin command -v python3)" --target "$SANDBOX_PYTHON_LIBRARIES"
  fi
}

pip3() { pip "$@"; }
