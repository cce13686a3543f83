# What the shell that runs the code knows of the runner. Its names begin with __sandbox_, but for the functions that
# take the place of programs and builtins.
#
# Bash cannot leave running code from a trap or a function and keep its state. But a DEBUG trap that returns 2 under
# `extdebug` makes it return from one function after the other, one that returns 1 skips a command, and `break` leaves
# all loops at once. That is how `exit`, `set -e` and SIGINT end the code.

builtin source "${BASH_SOURCE[0]%/*}/programs.sh"
builtin cd -- "$SANDBOX_WORKDIR" && builtin unset -v OLDPWD
__sandbox_streams=/proc/$PPID/fd # Of runner.sh: 1 is standard output, 5 is standard error.

# The runner's own actions, unseen by `set -x`, and what surrounds those of the code. Without `set -E`, functions and
# subshells do not inherit the action for ERR, but that of the runner. The action for RETURN is not for the functions
# that set it.
__sandbox_interrupting='{ __sandbox_interrupt; } 2>/dev/null'
__sandbox_failing='{ __sandbox_failed $?; } 2>/dev/null; '
__sandbox_inherited='case $((${#FUNCNAME[@]} > %d)).$BASH_SUBSHELL in %s) '
__sandbox_unwinding='{ __sandbox_unwind; } 2>/dev/null'
__sandbox_returning='if { [[ ${FUNCNAME-} != @(trap|__sandbox_trap) ]]; } 2>/dev/null; then'

# Begins a run. Code that is no complete script is evaluated instead, since an error of syntax in its script would end
# the shell; so is long code, since the shell reads its script byte by byte.
__sandbox_begin() {
  exec <"$1"
  __sandbox_interrupted=false __sandbox_stopped= __sandbox_skipped= __sandbox_exits= __sandbox_code= OPTIND=1
  if ((${#2} > 32768)); then
    __sandbox_code=$2
  else
    __sandbox_check "$2"
  fi
  __sandbox_text=$2
  __sandbox_trap ERR -
  __sandbox_trap INT -
  builtin set -E
  __sandbox_say begun "${__sandbox_code:+whole}"
}

# Finds what has to be evaluated. A `$(` that nothing closes would end the shell, here and then: it has more opening
# brackets.
__sandbox_check() {
  builtin local open="${1//[!(]}" closed="${1//[!)]}"
  builtin local function="__sandbox_checked() { if builtin false; then {"$'\n'"$1"$'\n'"}; fi; }"
  if ((${#open} <= ${#closed})); then
    builtin eval "$function" && builtin unset -f __sandbox_checked || __sandbox_code=$1
  elif ! (builtin eval "$function"); then
    __sandbox_code=$1
    # What code with extglob could mean has to be tried.
    [[ $1 == *extglob* ]] && (builtin shopt -s extglob && builtin eval "$function") ||
      builtin printf -v __sandbox_code '(builtin eval %q)' "$1"
  fi
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
  [[ /proc/self/fd/1 -ef $__sandbox_streams/1 && /proc/self/fd/2 -ef $__sandbox_streams/5 ]] || __sandbox_restore
  __sandbox_say done "${__sandbox_stopped:-$__sandbox_status}" "$__sandbox_interrupted"
}

# Gives the next run the usual output. A program that got the output of this one, as in `exec > >(tee log)`, has time to
# pass it on.
__sandbox_restore() {
  [[ -p $__sandbox_streams/1 && -p $__sandbox_streams/5 ]] || builtin return
  exec >"$__sandbox_streams/1" 2>"$__sandbox_streams/5"
  builtin local tries=25
  while [[ -d /proc/${!:-0} ]] && ((tries--)); do command sleep 0.02; done
}

__sandbox_say() {
  builtin printf '%s %s %s\n' "$1" "$2" "${3-}" >|"$__sandbox_answers"
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
  { __sandbox_status=$? && builtin set +x; } 2>/dev/null
  [[ $BASHPID == "$$" ]] || builtin exit "${@:-$__sandbox_status}"
  if (($# > 1)); then
    builtin echo "$0: line ${BASH_LINENO[0]}: exit: too many arguments" >&2
  elif (($# == 0)); then
    __sandbox_stop "$__sandbox_status"
  elif [[ $1 == ?([+-])+([0-9]) ]]; then
    __sandbox_stop $((${1%%[0-9]*}10#${1#[+-]} & 255))
  else
    builtin echo "$0: line ${BASH_LINENO[0]}: exit: $1: numeric argument required" >&2
    __sandbox_stop 2
  fi
  builtin return 1 # In a DEBUG trap of the code: what comes is skipped.
}

# As the builtin. The runner's own actions stay and are not listed; that of the code for EXIT is done after each run.
trap() {
  { builtin local action="${1-}" signal ours= debug= traced=$- && builtin set +x; } 2>/dev/null
  [[ $action == -- ]] && builtin shift && action=${1-}
  for signal in "${@:$(($# > 1 ? 2 : 1))}"; do
    [[ ${signal^^} == @(ERR|RETURN|?(SIG)@(EXIT|INT)|0|2) && $BASHPID == "$$" ]] && ours=1
    [[ ${signal^^} == DEBUG ]] && debug=1
  done
  if [[ $debug && $# -gt 1 && $action != @(-|-p) ]]; then
    { [[ $traced == *x* ]] && builtin set -x; } 2>/dev/null
    builtin trap "$@" # Nothing follows that the action would see.
  else
    if [[ $# == 0 || $action == -p ]]; then
      __sandbox_list_traps "$@"
    elif [[ $ours$debug ]]; then
      if (($# > 1)); then builtin shift; else action=-; fi
      for signal; do
        __sandbox_trap "${signal^^}" "$action"
      done
    else
      builtin trap "$@"
    fi
    __sandbox_status=$?
    { [[ $traced != *x* ]] || builtin set -x; builtin return "$__sandbox_status"; } 2>/dev/null
  fi
}

__sandbox_trap() {
  case $1/$2 in
    ERR/- | ERR/) builtin trap "$__sandbox_failing$__sandbox_unwinding" ERR ;;
    ERR/*)
      builtin local inherited where=0.$BASH_SUBSHELL
      [[ $__sandbox_text =~ errtrace|set\ +(-[a-zA-Z]+\ +)*-[a-zA-Z]*E ]] && where='*'
      builtin printf -v inherited "$__sandbox_inherited" $((${#FUNCNAME[@]} - 2)) "$where"
      builtin trap "$__sandbox_failing$inherited$2"$'\n;; esac; '"$__sandbox_unwinding" ERR
      ;;
    RETURN/- | DEBUG/-) builtin trap : "$1" ;; # A function cannot remove them.
    RETURN/?*) builtin trap "$__sandbox_returning"$'\n'"$2"$'\nfi' RETURN ;;
    INT/- | SIGINT/- | 2/-) builtin trap "$__sandbox_interrupting" INT ;;
    *EXIT/* | 0/*) __sandbox_exits=1 && builtin trap -- "$2" EXIT ;;
    *) builtin trap -- "$2" "$1" ;;
  esac
}

# Lists the actions of the code.
__sandbox_list_traps() {
  builtin local action= line
  while IFS= builtin read -r line; do
    case $line in
      "trap -- '$__sandbox_interrupting' "* | "trap -- '$__sandbox_failing$__sandbox_unwinding' "* | "trap -- ':' "*) ;;
      "trap -- '$__sandbox_failing"*) action="trap -- '${line#*" in "*") "}" ;;
      ";; esac; $__sandbox_unwinding"*)
        builtin echo "$action' ERR"
        action=
        ;;
      *)
        if [[ $action ]]; then
          action+=$'\n'$line
        elif [[ $line ]]; then
          builtin echo "$line"
        fi
        ;;
    esac
  done <<<"$(builtin trap "$@")" # Which shows the traps of the shell that it is in.
}
