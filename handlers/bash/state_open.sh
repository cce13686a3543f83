# Opens; state.sh explains it.

__sandbox_state_lose_opened() {
  __sandbox_state_lose "${1#* }" "${1%% *}" "$2"
}

# Finds what ended an earlier shell that opened it.
__sandbox_state_read_deadly() {
  __sandbox_state_deadly=$'\n'
  if [[ -s $__sandbox_state_folder/opening ]]; then
    builtin mapfile -t __sandbox_state_lines <"$__sandbox_state_folder/opening"
    builtin printf '%s\n' "${__sandbox_state_lines[-1]}" >>"$__sandbox_state_folder/deadly"
    : >|"$__sandbox_state_folder/opening"
  fi
  [[ -s $__sandbox_state_folder/deadly ]] || builtin return
  builtin mapfile -t __sandbox_state_lines <"$__sandbox_state_folder/deadly"
  builtin printf -v __sandbox_state_deadly '\n%s' "${__sandbox_state_lines[@]}" ''
}

# Makes everything but the variables and functions, and finds what to do when this file has ended: what would change how
# it is read, or run the code's own actions.
__sandbox_state_open() {
  builtin local __sandbox_state_at
  [[ $__sandbox_state_version == "$__sandbox_state_opened_by" ]] ||
    __sandbox_state_say note "saved by bash $__sandbox_state_version, opened by $__sandbox_state_opened_by"
  __sandbox_state_rest=
  [[ $__sandbox_state_return ]] &&
    builtin printf -v __sandbox_state_rest '__sandbox_trap RETURN %q; ' "$__sandbox_state_return"
  __sandbox_state_find_options "builtin set -o" "$__sandbox_state_set" "$__sandbox_state_fresh_set"
  __sandbox_state_find_options "builtin set +o" "$__sandbox_state_fresh_set" "$__sandbox_state_set"
  __sandbox_state_find_options "builtin shopt -s" "$__sandbox_state_shopt" "$__sandbox_state_fresh_shopt"
  __sandbox_state_find_options "builtin shopt -u" "$__sandbox_state_fresh_shopt" "$__sandbox_state_shopt"
  __sandbox_state_rest+='builtin set --'
  if ((${#__sandbox_state_arguments[@]})); then
    builtin printf -v __sandbox_state_at ' %q' "${__sandbox_state_arguments[@]}"
    __sandbox_state_rest+=$__sandbox_state_at
  fi
  if [[ $__sandbox_state_directory ]] && ! builtin cd -- "$__sandbox_state_directory"; then
    __sandbox_state_say note "the working directory $__sandbox_state_directory does not exist"
  fi
  for ((__sandbox_state_at = ${#__sandbox_state_stack[@]} - 1; __sandbox_state_at >= 0; __sandbox_state_at--)); do
    builtin pushd -n -- "${__sandbox_state_stack[__sandbox_state_at]/#\~/$HOME}"
  done
  ((${#__sandbox_state_removed[@]})) && builtin unset -v "${__sandbox_state_removed[@]}"
  builtin source "$__sandbox_state_folder/actions"
  builtin source "$__sandbox_state_folder/aliases"
}

# Adds a command for each option of a list that is not in the other, but for those that each run resets.
__sandbox_state_find_options() {
  builtin local __sandbox_state_left=$2: __sandbox_state_option
  while [[ $__sandbox_state_left ]]; do
    __sandbox_state_option=${__sandbox_state_left%%:*}
    __sandbox_state_left=${__sandbox_state_left#*:}
    case $__sandbox_state_option in
      errexit | errtrace | noclobber | noexec | noglob | nounset | posix | verbose | xtrace) ;;
      *) [[ :$3: == *":$__sandbox_state_option:"* ]] || __sandbox_state_rest+="$1 $__sandbox_state_option; " ;;
    esac
  done
}

__sandbox_state_end_opening() {
  __sandbox_state_list builtin compgen -A function __sandbox_state_
  builtin printf -v __sandbox_state_at '%s ' "${__sandbox_state_lines[@]}"
  __sandbox_state_rest="builtin unset -f $__sandbox_state_at; builtin unset -v \"\${!__sandbox_state_@}\"; $__sandbox_state_rest"
  __sandbox_state_program rm -f "$__sandbox_state_folder/opening" "$__sandbox_state_folder/lines"
  __sandbox_state_write_report
}

__sandbox_state_fresh_set=$__sandbox_state_set __sandbox_state_fresh_shopt=$__sandbox_state_shopt
__sandbox_state_opened_by=$__sandbox_state_version
builtin source "$__sandbox_state_folder/modes"
builtin mapfile -t __sandbox_state_names <"$__sandbox_state_folder/names"
__sandbox_state_read_deadly
__sandbox_state_open
builtin shopt -s extglob # Functions can need it.
for __sandbox_state_at in "${!__sandbox_state_names[@]}"; do
  __sandbox_state_name=${__sandbox_state_names[__sandbox_state_at]}
  [[ $__sandbox_state_name ]] || builtin continue
  if [[ $__sandbox_state_deadly == *$'\n'"$__sandbox_state_name"$'\n'* ]]; then
    __sandbox_state_lose_opened "$__sandbox_state_name" 'opening it ended the interpreter'
    builtin continue
  fi
  # Added: on some disks it takes long to empty a file.
  builtin printf '%s\n' "$__sandbox_state_name" >>"$__sandbox_state_folder/opening"
  if builtin source "$__sandbox_state_folder/$((__sandbox_state_at + 1))"; then
    __sandbox_state_kept=$((__sandbox_state_kept + 1))
  else
    __sandbox_state_lose_opened "$__sandbox_state_name" "bash $__sandbox_state_opened_by does not take it"
  fi
done
builtin shopt -u extglob
__sandbox_state_end_opening
