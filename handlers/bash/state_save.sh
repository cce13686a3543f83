# Saves; state.sh explains it.

__sandbox_state_save() {
  builtin local -A __sandbox_state_skipped __sandbox_state_start __sandbox_state_sources
  builtin local __sandbox_state_coprocesses
  __sandbox_state_removed=()
  __sandbox_state_list builtin declare -F || builtin return # A full disk has no room for a report either.
  __sandbox_state_functions=("${__sandbox_state_lines[@]}")
  __sandbox_state_find_sources || builtin return
  __sandbox_state_note_jobs
  __sandbox_state_read_start
  __sandbox_state_measure
  __sandbox_state_save_variables
  __sandbox_state_note_descriptors
  __sandbox_state_save_functions
  builtin alias -p >|"$__sandbox_state_folder/aliases" || __sandbox_state_lose aliases alias 'no room in the sandbox'
  __sandbox_state_directory=
  [[ $PWD == "$SANDBOX_WORKDIR" ]] || __sandbox_state_directory=$PWD
  __sandbox_state_stack=("${DIRSTACK[@]:1}")
  builtin printf '%s\n' "${__sandbox_state_names[@]}" >|"$__sandbox_state_folder/names" &&
    builtin declare -p __sandbox_state_{set,shopt,version,directory,stack,arguments,removed,return} \
      >|"$__sandbox_state_folder/modes" &&
    __sandbox_state_write_report
}

__sandbox_state_note_jobs() {
  builtin local __sandbox_state_line __sandbox_state_name
  builtin mapfile -t __sandbox_state_lines <"$__sandbox_state_folder/jobs"
  for __sandbox_state_line in "${__sandbox_state_lines[@]}"; do
    if [[ $__sandbox_state_line =~ ^\[[0-9]+\].\ *[A-Z][a-z]+\ +coproc\ ([A-Za-z_][A-Za-z_0-9]*) ]]; then
      __sandbox_state_name="${BASH_REMATCH[1]}[@]"
      __sandbox_state_coprocesses+=" ${!__sandbox_state_name}"
      __sandbox_state_skipped[${BASH_REMATCH[1]}]=1
      __sandbox_state_skipped[${BASH_REMATCH[1]}_PID]=1
      __sandbox_state_lose "${BASH_REMATCH[1]}" coprocess 'a process does not move to another sandbox'
    elif [[ $__sandbox_state_line =~ ^\[[0-9]+\].\ *[A-Z][a-z]+\ +(.*) ]]; then
      __sandbox_state_lose "${BASH_REMATCH[1]}" job 'a process does not move to another sandbox'
    fi
  done
}

# Descriptors that the code opened, but for those of its coprocesses; 255 is the shell's script.
__sandbox_state_note_descriptors() {
  builtin local __sandbox_state_name __sandbox_state_own=" 0 1 2 255 $__sandbox_state_coprocesses "
  builtin unset -v GLOBIGNORE
  for __sandbox_state_name in /proc/$$/fd/*; do
    [[ $__sandbox_state_own == *" ${__sandbox_state_name##*/} "* ]] ||
      __sandbox_state_lose "descriptor ${__sandbox_state_name##*/}" 'open file' \
        "it leads to $(__sandbox_state_program readlink "$__sandbox_state_name")"
  done
}

# Reads the variables with which the shell started.
__sandbox_state_read_start() {
  builtin local __sandbox_state_line
  builtin mapfile -d '' -t __sandbox_state_lines <"/proc/$$/environ"
  for __sandbox_state_line in "${__sandbox_state_lines[@]}"; do
    __sandbox_state_start[${__sandbox_state_line%%=*}]=${__sandbox_state_line#*=}
  done
}

# Finds how many bytes are free, if that could matter.
__sandbox_state_measure() {
  builtin local __sandbox_state_used
  __sandbox_state_room=
  [[ ${__sandbox_state_start[SANDBOX_MEMORY]-} ]] || builtin return
  builtin mapfile -t __sandbox_state_lines </proc/self/statm
  __sandbox_state_used=${__sandbox_state_lines[0]#* }
  __sandbox_state_used=$((${__sandbox_state_used%% *} * 4096))
  # Bash takes several times the length of a value to print it.
  ((__sandbox_state_used * 8 < __sandbox_state_start[SANDBOX_MEMORY])) ||
    __sandbox_state_room=$((__sandbox_state_start[SANDBOX_MEMORY] - 2 * __sandbox_state_used))
}

__sandbox_state_save_variables() {
  builtin local __sandbox_state_name
  # compgen leaves out those that have attributes and no value. In a text of several lines, a line can look like one.
  builtin mapfile -t __sandbox_state_lines < <(
    builtin compgen -v
    builtin declare -p | __sandbox_state_program grep -aoE '^declare -[^ ]+ [A-Za-z_][A-Za-z_0-9]*$'
  )
  for __sandbox_state_name in "${!__sandbox_state_start[@]}"; do
    builtin declare -p "$__sandbox_state_name" >/dev/null || __sandbox_state_removed+=("$__sandbox_state_name")
  done
  for __sandbox_state_name in "${__sandbox_state_lines[@]}"; do
    [[ $__sandbox_state_name == IFS ]] || __sandbox_state_save_variable "${__sandbox_state_name##* }"
  done
  __sandbox_state_save_variable IFS # Last, since it can be read-only.
}

__sandbox_state_save_variable() {
  case $1 in
    __sandbox_* | _ | BASH | BASHOPTS | BASHPID | BASH_ALIASES | BASH_ARG[CV] | BASH_ARGV0 | BASH_CMDS | BASH_COMMAND) builtin return ;;
    BASH_EXECUTION_STRING | BASH_LINENO | BASH_LOADABLES_PATH | BASH_MONOSECONDS | BASH_REMATCH | BASH_SOURCE) builtin return ;;
    BASH_SUBSHELL | BASH_TRAPSIG | BASH_VERSINFO | BASH_VERSION | COMP_CWORD | COMP_KEY | COMP_LINE | COMP_POINT) builtin return ;;
    COMP_TYPE | COMP_WORDBREAKS | COMP_WORDS | DIRSTACK | EPOCHREALTIME | EPOCHSECONDS | EUID | FUNCNAME | GROUPS) builtin return ;;
    HISTCMD | HOSTNAME | HOSTTYPE | LINENO | MACHTYPE | OPTIND | OSTYPE | PIPESTATUS | PPID | PWD | RANDOM) builtin return ;;
    SECONDS | SHELLOPTS | SHLVL | SRANDOM | UID) builtin return ;;
    # Bash sets these itself.
    IFS | OPTERR | PS4 | SHELL | TERM)
      case $1=${!1} in
        IFS=$' \t\n' | OPTERR=1 | PS4='+ ' | SHELL=* | TERM=dumb) [[ ${!1@a} ]] || builtin return ;;
      esac
      ;;
  esac
  [[ ${__sandbox_state_skipped[$1]-} ]] && builtin return
  [[ ${__sandbox_state_start[$1]+set} && ${!1} == "${__sandbox_state_start[$1]}" && ${!1@a} == x ]] && builtin return
  __sandbox_state_skipped[$1]=1
  builtin local -n __sandbox_state_value=$1
  builtin local __sandbox_state_size=${#__sandbox_state_value} __sandbox_state_at
  if [[ $__sandbox_state_room ]]; then
    # Not in one: that would copy the values.
    __sandbox_state_size=0
    for __sandbox_state_at in "${!__sandbox_state_value[@]}"; do
      __sandbox_state_size=$((__sandbox_state_size + ${#__sandbox_state_value[$__sandbox_state_at]}))
    done
    if ((__sandbox_state_size > 1 << 20 && __sandbox_state_size * 5 > __sandbox_state_room)); then
      __sandbox_state_lose "$1" variable "no room in the sandbox to save $((__sandbox_state_size >> 20)) MB"
      builtin return
    fi
    __sandbox_state_room=$((__sandbox_state_room - __sandbox_state_size))
  fi
  if [[ -R $1 || ${__sandbox_state_value@a} == *A* ]] || ((__sandbox_state_size < 65536 && ${#__sandbox_state_value[@]} < 4096)); then
    __sandbox_state_write variable "$1" "builtin declare -p $1"
  else
    __sandbox_state_save_long "$1"
  fi
}

# Saves a long text or list as it is: bash takes a multiple of its length to read it as a command.
__sandbox_state_save_long() {
  builtin local __sandbox_state_file=$((${#__sandbox_state_names[@]} + 1)).text __sandbox_state_command
  builtin local __sandbox_state_attributes=${__sandbox_state_value@a} __sandbox_state_keys
  if [[ $__sandbox_state_attributes == *a* ]]; then
    __sandbox_state_keys=("${!__sandbox_state_value[@]}")
    if ((__sandbox_state_keys[-1] >= ${#__sandbox_state_keys[@]})); then # It has gaps.
      __sandbox_state_write variable "$1" "builtin declare -p $1"
      builtin return
    fi
    __sandbox_state_command="builtin mapfile -d '' -t"
  else
    __sandbox_state_command="IFS= builtin read -r -d ''"
  fi
  if __sandbox_state_write_text; then
    __sandbox_state_command+=" $1 <\"\$__sandbox_state_folder/$__sandbox_state_file\"
builtin declare -${__sandbox_state_attributes:--} $1"
    __sandbox_state_write variable "$1" 'builtin printf "%s\n" "$__sandbox_state_command"'
  else
    builtin : >|"$__sandbox_state_folder/$__sandbox_state_file"
    __sandbox_state_lose "$1" variable "no room in the sandbox to save it"
  fi
}

__sandbox_state_write_text() {
  builtin local __sandbox_state_end=
  [[ $__sandbox_state_attributes == *a* ]] && __sandbox_state_end='\0'
  builtin printf "%s$__sandbox_state_end" "${__sandbox_state_value[@]}" >|"$__sandbox_state_folder/$__sandbox_state_file"
}

# Writes what the command prints: a variable or a function.
__sandbox_state_write() {
  builtin local __sandbox_state_file=$__sandbox_state_folder/$((${#__sandbox_state_names[@]} + 1))
  if builtin eval "$3" 2>/dev/null >|"$__sandbox_state_file"; then
    __sandbox_state_names+=("$1 $2")
    __sandbox_state_kept=$((__sandbox_state_kept + 1))
  elif [[ -s $__sandbox_state_file ]] || builtin eval "$3" >/dev/null; then
    { : >|"$__sandbox_state_file"; }
    __sandbox_state_lose "$2" "$1" 'no room in the sandbox to save it'
    builtin return 1
  fi
}

# Finds the files of the functions: those of the handler come from its own.
__sandbox_state_find_sources() {
  builtin local __sandbox_state_line
  builtin shopt -s extdebug
  __sandbox_state_list builtin declare -F -- "${__sandbox_state_functions[@]##* }" || builtin return
  builtin shopt -u extdebug
  for __sandbox_state_line in "${__sandbox_state_lines[@]}"; do
    __sandbox_state_sources[${__sandbox_state_line%% *}]=${__sandbox_state_line#* * }
  done
}

__sandbox_state_save_functions() {
  builtin local __sandbox_state_line __sandbox_state_name __sandbox_state_command
  for __sandbox_state_line in "${__sandbox_state_functions[@]}"; do
    __sandbox_state_name=${__sandbox_state_line##* }
    [[ $__sandbox_state_name == __sandbox_* ]] && builtin continue
    [[ ${__sandbox_state_sources[$__sandbox_state_name]-} == "$__sandbox_state_handler"/* ]] && builtin continue
    builtin printf -v __sandbox_state_command 'builtin declare -f -- %q' "$__sandbox_state_name"
    if [[ $__sandbox_state_line != "declare -f "* ]]; then
      builtin printf -v __sandbox_state_command '%s && builtin echo %q' "$__sandbox_state_command" "builtin $__sandbox_state_line"
    fi
    __sandbox_state_write function "$__sandbox_state_name" "$__sandbox_state_command"
  done
}

__sandbox_state_arguments=("${@:4}")
# The actions of the code that last beyond a run, but for RETURN without what surrounds it in session.sh.
{
  builtin umask -p
  builtin trap -p 1 {3..31} {34..64}
} >|"$__sandbox_state_folder/actions"
__sandbox_state_return=$(builtin trap -p RETURN)
builtin trap - ERR RETURN DEBUG
builtin trap '' XFSZ # A write beyond the limit is then an error.
builtin eval "builtin set -- $__sandbox_state_return"
__sandbox_state_return=${3-}
__sandbox_state_return=${__sandbox_state_return#"$__sandbox_returning"$'\n'}
__sandbox_state_return=${__sandbox_state_return%$'\nfi'}
__sandbox_state_save
