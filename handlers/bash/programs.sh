# Programs of other languages that are to be those of the session.

# Systems do not always have `python`, and the system's pip is not that of the session.
builtin type -P python >/dev/null || python() { python3 "$@"; }

pip() { python3 -m pip "$@"; }

pip3() { python3 -m pip "$@"; }
