# Saves what the shell has, and makes it again in another. `save` runs in a subshell, so that it changes nothing; `open`
# runs at the top level of a shell that has run no code. All names begin with __sandbox_state_, since a variable of the
# code can be read-only.
#
# Each variable and each function is a file: the command that makes it, as bash itself prints it. `names` has the kind and
# the name of each.
#
#   source state.sh save|open HANDLER FOLDER ARGUMENTS

__sandbox_state_set=$SHELLOPTS __sandbox_state_shopt=$BASHOPTS
\builtin shopt -u expand_aliases extdebug failglob nocasematch nullglob
\builtin set +aT -B
__sandbox_state_handler=$2 __sandbox_state_folder=$3
__sandbox_state_version=${BASH_VERSINFO[0]}.${BASH_VERSINFO[1]}
__sandbox_state_report=() __sandbox_state_names=() __sandbox_state_kept=0 __sandbox_state_losses=0

# Starts a program without the variables of the code, which can be too long for a program.
__sandbox_state_program() {
  (builtin exec -c "/bin/$1" "${@:2}")
}

# Reads the lines that a builtin prints. A file, since a fork takes longer.
__sandbox_state_list() {
  "$@" >|"$__sandbox_state_folder/lines" && builtin mapfile -t __sandbox_state_lines <"$__sandbox_state_folder/lines"
}

# Notes that this is lost: its name, its type and the reason.
__sandbox_state_lose() {
  ((++__sandbox_state_losses > 500)) || __sandbox_state_say lost "$@"
}

__sandbox_state_say() {
  builtin local __sandbox_state_line=$1 __sandbox_state_field
  for __sandbox_state_field in "${@:2}"; do
    __sandbox_state_field=${__sandbox_state_field:0:200}
    __sandbox_state_line+=$'\t'${__sandbox_state_field//[[:cntrl:]]/ }
  done
  __sandbox_state_report+=("$__sandbox_state_line")
}

__sandbox_state_write_report() {
  if ((__sandbox_state_losses > 500)); then
    __sandbox_state_say note "$((__sandbox_state_losses - 500)) more are lost"
  fi
  __sandbox_state_say kept "$__sandbox_state_kept"
  builtin printf '%s\n' "${__sandbox_state_report[@]}" >|"$__sandbox_state_folder/report.new" &&
    __sandbox_state_program mv -f "$__sandbox_state_folder/report.new" "$__sandbox_state_folder/report"
}

builtin source "$__sandbox_state_handler/state_$1.sh"
