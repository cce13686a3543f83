# Which regular files a run created or changed. Bash cannot read the time or the inode of a file, only compare the age of two:
# a file counts when it was not there before, or when it is newer than a stamp. The stamp is from the end of the run before,
# because the clock of files is coarse: what this run changes at once would look as old as a stamp made now. Only a file that
# something else changed since then is compared with a second stamp, made when this run starts.

__sandbox_entries=10000

__sandbox_before() {
  local path started=
  builtin unset -v __sandbox_seen
  builtin declare -gA __sandbox_seen
  [[ -e $__sandbox_stamp ]] || __sandbox_touch "$__sandbox_stamp"
  __sandbox_walk
  for path in "${__sandbox_found[@]}"; do
    if [[ $path -nt $__sandbox_stamp ]]; then
      [[ $started ]] || __sandbox_touch "$__sandbox_stamp.start"
      started=1
      __sandbox_seen[$path]=$__sandbox_stamp.start
    else
      __sandbox_seen[$path]=$__sandbox_stamp
    fi
  done
}

# Sets __sandbox_made and __sandbox_drawn to names in JSON, and __sandbox_omitted.
__sandbox_changes() {
  local path
  __sandbox_made=() __sandbox_drawn=() __sandbox_omitted=0
  __sandbox_walk
  for path in "${__sandbox_found[@]}"; do
    [[ ${__sandbox_seen[$path]} && ! $path -nt ${__sandbox_seen[$path]} ]] && continue
    if [[ $path == "$__sandbox_figure_folder"/* ]]; then
      __sandbox_quote "${path#"$__sandbox_figure_folder"/}" || continue
      ((${#__sandbox_drawn[@]} < __sandbox_most)) && __sandbox_drawn+=("$REPLY")
    else
      __sandbox_quote "${path#"$__sandbox_root"/}" || continue
      if ((${#__sandbox_made[@]} < __sandbox_most)); then
        __sandbox_made+=("$REPLY")
      else
        __sandbox_omitted=$((__sandbox_omitted + 1))
      fi
    fi
  done
  __sandbox_touch "$__sandbox_stamp"
}

__sandbox_touch() {
  { : >|"$1"; } 2>/dev/null
}

# Sets __sandbox_found to the regular files below both folders.
__sandbox_walk() {
  local IFS= GLOBIGNORE= options=$BASHOPTS folder path name visited=0
  local folders=("$__sandbox_root" ${__sandbox_figure_folder:+"$__sandbox_figure_folder"})
  __sandbox_found=()
  builtin shopt -s nullglob
  builtin shopt -u dotglob failglob nocasematch
  while ((${#folders[@]} && visited < __sandbox_entries)); do
    folder=${folders[-1]}
    builtin unset -v 'folders[-1]'
    for path in "$folder"/*; do
      ((++visited > __sandbox_entries)) && break
      [[ -L $path ]] && continue
      if [[ -d $path ]]; then
        name=${path##*/}
        [[ $name == node_modules || $name == __pycache__ ]] || folders+=("$path")
      elif [[ -f $path ]]; then
        __sandbox_found+=("$path")
      fi
    done
  done
  builtin shopt -u nullglob
  for name in nullglob dotglob failglob nocasematch; do
    [[ :$options: == *":$name:"* ]] && builtin shopt -s "$name"
  done
  return 0
}

# Sets REPLY to the name as JSON; fails for a name that is not UTF-8, or very long.
__sandbox_quote() {
  local LC_ALL=C.UTF-8 IFS= name=$1 i part
  [[ $name =~ ^.*$ ]] && ((${#name} <= 900)) || return 1
  name=${name//'\'/'\\'} name=${name//'"'/'\"'}
  if [[ $name == *[[:cntrl:]]* ]]; then
    REPLY=
    for ((i = 0; i < ${#name}; i++)); do
      part=${name:i:1}
      [[ $part == [[:cntrl:]] ]] && builtin printf -v part '\\u%04x' "'$part"
      REPLY+=$part
    done
    name=$REPLY
  fi
  REPLY="\"$name\""
}
