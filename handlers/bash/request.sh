# Reads the server's request. Each step looks only at the start of the text, since bash's patterns take quadratic time
# on long text.

head='^"cell":[0-9]+,"variables":\{'
pair='^,?"(([^"\\]|\\.)*)":("(([^"\\]|\\.)*)"|[][{}]|[^]",{}[]+)'
bracket='^([^]"{}[]|"([^"\\]|\\.)*")*[][{}]'

# Sets code, and assignments, which is a command that sets the variables; and a path with the standard input.
read_request() {
  local text="$1" name value
  assignments= stdin=/dev/null
  [[ ${text:0:60} =~ $head ]]
  text=${text:${#BASH_REMATCH[0]}}
  while [[ ${text:0:1} != '}' ]]; do
    [[ $text =~ $pair ]] || break
    name=${BASH_REMATCH[1]} value=${BASH_REMATCH[3]}
    text=${text:${#BASH_REMATCH[0]}}
    case $value in
      null) value= ;;
      \"*) printf -v value %b "${BASH_REMATCH[4]//'\"'/'\x22'}" ;;
      [[{])
        nested "$value$text"
        text=${text:${#value}-1}
        ;;
    esac
    if [[ $name == __stdin ]]; then
      # A pipe, since it may be longer than what the disk has room for.
      exec 7< <(printf %s "$value" 2>/dev/null)
      stdin=/proc/$$/fd/7
    elif [[ $name =~ ^[a-zA-Z_][a-zA-Z_0-9]*$ && $name != __sandbox_* ]]; then
      printf -v value %q "$value"
      assignments+="builtin declare -g $name=$value;"
    fi
  done
  # The rest is },"code":"..."} and its escapes are those of printf, except for the quote.
  text=${text:10:${#text}-12}
  printf -v code %b "${text//'\"'/'\x22'}"
}

# Sets value to the whole array or object at the start of the text.
nested() {
  local depth=0 text="$1"
  value=
  while [[ $text =~ $bracket ]]; do
    value+=${BASH_REMATCH[0]}
    text=${text:${#BASH_REMATCH[0]}}
    case $value in
      *[[{]) depth=$((depth + 1)) ;;
      *) depth=$((depth - 1)) ;;
    esac
    ((depth)) || break
  done
}
