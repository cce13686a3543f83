# What the shell that runs the code knows of the runner. Its names begin with __sandbox_, but for the functions that take the place
# of programs and builtins.
#
# Bash cannot leave running code from a trap or a function and keep its state. But a DEBUG trap that returns 2 under `extdebug`
# makes it return from one function after the other, one that returns 1 skips a command, and `break` leaves all loops at once. That
# is how `exit`, `set -e` and SIGINT end the code.

builtin source "${BASH_SOURCE[0]%/*}/programs.sh"
builtin cd -- "$SANDBOX_WORKDIR" && builtin unset -v OLDPWD

# What surrounds the code's own actions in its traps. That for RETURN is not for the functions that set it.
__sandbox_failing='__sandbox_failed $?; '
__sandbox_unwinding=__sandbox_unwind
__sandbox_returning='if [[ ${FUNCNAME-} != @(trap|__sandbox_trap) ]]; then'

# Begins a run. Code that is no complete script is evaluated instead, since an error of syntax in its script would end the shell; so
# is long code, since the shell reads its script byte by byte.
__sandbox_begin() {
  exec <"$1"
  __sandbox_interrupted=false __sandbox_stopped= __sandbox_skipped= __sandbox_exits= __sandbox_code=
  ((${#2} < 32768)) && builtin eval "__sandbox_check() { if builtin false; then {"$'\n'"$2"$'\n'"}; fi; }" || __sandbox_code=$2
  builtin unset -f __sandbox_check
  __sandbox_trap ERR -
  __sandbox_trap INT -
  builtin set -E
  __sandbox_say begun "${__sandbox_code:+whole}"
}

# Ends the code: resets what a script changes for itself, and finds what it left for now. Returns its exit status.
__sandbox_end() {
  builtin set +efnuvxCE +o posix
  builtin trap - ERR
  __sandbox_left=
  if [[ $__sandbox_exits ]]; then
    builtin eval "builtin set -- $(builtin trap -p EXIT)"
    __sandbox_left=${3-}
    builtin trap - EXIT
  fi
  if [[ $__sandbox_skipped == all ]]; then
    __sandbox_report
  else
    __sandbox_skipped=1 # Nothing is to be skipped from now on.
  fi
  builtin return "${__sandbox_stopped:-$__sandbox_status}"
}

__sandbox_report() {
  builtin trap '' INT
  exec </dev/null
  __sandbox_say done "${__sandbox_stopped:-$__sandbox_status}" "$__sandbox_interrupted"
}

__sandbox_say() {
  builtin local IFS=' '
  builtin echo -E "$*" >|"$__sandbox_answers"
}

# Ends the code with this status: skips the rest of the script, and unwinds what runs.
__sandbox_stop() {
  __sandbox_stopped=$1
  __sandbox_skip
  builtin trap - ERR
  builtin set +e -C # Redirections of what is skipped would empty files.
  builtin shopt -s extdebug
  builtin trap '
    if [[ $BASH_COMMAND == __sandbox_* && ! ${FUNCNAME-} ]]; then
      builtin trap - DEBUG; builtin shopt -u extdebug
    elif [[ ${FUNCNAME-} ]]; then
      __sandbox_two
    elif [[ $BASH_COMMAND == "for "* ]]; then
      builtin false # Skips this turn.
    else
      ! builtin break 999
    fi 2>/dev/null' DEBUG
}

__sandbox_two() { builtin return 2; }

# Skips the rest of the code. If bash has just read the mark, its last line is read.
__sandbox_skip() {
  builtin local IFS= line
  [[ $__sandbox_skipped ]] && builtin return
  while builtin read -r -u 255 line; do
    [[ $line == '#__sandbox' ]] && __sandbox_skipped=1 && builtin return
    [[ $line == __sandbox_report ]] && __sandbox_skipped=all && builtin return
  done
}

__sandbox_interrupt() {
  __sandbox_interrupted=true
  __sandbox_stop 130
}

__sandbox_failed() {
  if [[ -o errexit && $BASHPID == "$$" ]]; then
    builtin set +e
    __sandbox_stopped=$1
  fi
  builtin return "$1"
}

__sandbox_unwind() {
  [[ $__sandbox_stopped ]] && __sandbox_stop "$__sandbox_stopped"
}

exit() {
  builtin local status=$?
  [[ $BASHPID == "$$" ]] || builtin exit "${@:-$status}"
  if [[ ${1-$status} == ?([+-])+([0-9]) ]]; then
    status=$((${1-$status} & 255))
  else
    builtin echo "$0: line ${BASH_LINENO[0]}: exit: $1: numeric argument required" >&2
    status=2
  fi
  __sandbox_stop "$status"
}

# As the builtin. The runner's own actions for INT and ERR stay, and are not listed; that of the code for EXIT is done after each run.
trap() {
  builtin local action="${1-}" signal ours=
  for signal in "${@:$(($# > 1 ? 2 : 1))}"; do
    [[ ${signal^^} == @(ERR|RETURN|?(SIG)@(EXIT|INT)|0|2) && $BASHPID == "$$" ]] && ours=1
  done
  if [[ $# == 0 || $action == -p ]]; then
    action=$(builtin trap "$@")$'\n'
    action=${action/"trap -- '__sandbox_interrupt' SIGINT"$'\n'}
    action=${action/"trap -- '$__sandbox_failing"$'\n'"$__sandbox_unwinding' ERR"$'\n'}
    action=${action/"trap -- '$__sandbox_failing"/"trap -- '"}
    action=${action/$'\n'"$__sandbox_unwinding' ERR"/"' ERR"}
    action=${action/"$__sandbox_returning"$'\n'}
    builtin printf %s "${action/$'\n'"fi' RETURN"/"' RETURN"}"
  elif [[ $ours ]]; then
    [[ $action == -- ]] && builtin shift && action=$1
    if (($# > 1)); then builtin shift; else action=-; fi
    for signal; do
      __sandbox_trap "${signal^^}" "$action"
    done
  else
    builtin trap "$@" # Nothing follows, since an action for DEBUG would see it.
  fi
}

__sandbox_trap() {
  case $1/$2 in
    ERR/*) builtin trap "$__sandbox_failing${2#-}"$'\n'"$__sandbox_unwinding" ERR ;;
    RETURN/?*) builtin trap "$__sandbox_returning"$'\n'"$2"$'\n'fi RETURN ;;
    INT/- | SIGINT/- | 2/-) builtin trap __sandbox_interrupt INT ;;
    *EXIT/* | 0/*) __sandbox_exits=1 && builtin trap -- "$2" EXIT ;;
    *) builtin trap -- "$2" "$1" ;;
  esac
}
