# Reads the server's request. Each step looks only at the start of the text, since bash's patterns take quadratic time on long
# text.

__sandbox_head='^"cell":[0-9]+,"variables":\{'
__sandbox_pair='^,?"(([^"\\]|\\.)*)":("(([^"\\]|\\.)*)"|[][{}]|[^]",{}[]+)'
__sandbox_bracket='^([^]"{}[]|"([^"\\]|\\.)*")*[][{}]'

# Sets the variables from the request, and __sandbox_code.
__sandbox_open() {
  builtin local LC_ALL=C __sandbox_text="$1" __sandbox_name __sandbox_value
  [[ ${__sandbox_text:0:60} =~ $__sandbox_head ]]
  __sandbox_text=${__sandbox_text:${#BASH_REMATCH[0]}}
  while [[ ${__sandbox_text:0:1} != '}' ]]; do
    [[ $__sandbox_text =~ $__sandbox_pair ]] || break
    __sandbox_name=${BASH_REMATCH[1]} __sandbox_value=${BASH_REMATCH[3]}
    __sandbox_text=${__sandbox_text:${#BASH_REMATCH[0]}}
    case $__sandbox_value in
      null) __sandbox_value= ;;
      \"*) builtin printf -v __sandbox_value %b "${BASH_REMATCH[4]//'\"'/'\x22'}" ;;
      [[{])
        __sandbox_nested "$__sandbox_value$__sandbox_text"
        __sandbox_text=${__sandbox_text:${#__sandbox_value}-1}
        ;;
    esac
    [[ $__sandbox_name =~ ^[a-zA-Z_][a-zA-Z_0-9]*$ && $__sandbox_name != __sandbox_* ]] || continue
    builtin declare -g "$__sandbox_name=$__sandbox_value"
  done
  # The rest is },"code":"..."} and its escapes are those of printf, except for the quote.
  __sandbox_text=${__sandbox_text:10:${#__sandbox_text}-12}
  builtin printf -v __sandbox_code %b "${__sandbox_text//'\"'/'\x22'}"
}

# Sets __sandbox_value to the whole array or object at the start of the text.
__sandbox_nested() {
  builtin local depth=0 text="$1"
  __sandbox_value=
  while [[ $text =~ $__sandbox_bracket ]]; do
    __sandbox_value+=${BASH_REMATCH[0]}
    text=${text:${#BASH_REMATCH[0]}}
    case $__sandbox_value in
      *[[{]) depth=$((depth + 1)) ;;
      *) depth=$((depth - 1)) ;;
    esac
    ((depth)) || break
  done
}
