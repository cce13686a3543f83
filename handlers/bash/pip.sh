# pip for the session's Python. It installs where the session's other libraries are: the environment is read-only.

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
