# Finds the regular files that a run created or changed. Bash cannot read the time or the inode of a file, only compare the age
# of two files: a file counts if it did not exist before, or if it is not older than a stamp file made when the run started.
# File times are coarse, so the stamp is made again until every file is older: this takes a few milliseconds if a file has
# just changed.

__sandbox_entries=10000
__sandbox_patience=2000

__sandbox_before() {
  builtin local path tries=0
  builtin unset -v __sandbox_seen
  builtin declare -gA __sandbox_seen
  __sandbox_walk
  __sandbox_touch
  for path in "${__sandbox_found[@]}"; do
    __sandbox_seen[$path]=older
    while [[ ! $path -ot $__sandbox_stamp ]]; do
      # Its time may be in the future; then a change of the file cannot be seen.
      ((++tries > __sandbox_patience)) && __sandbox_seen[$path]=newer && break
      __sandbox_touch
    done
  done
}

# Sets __sandbox_made and __sandbox_drawn to file names in JSON, and __sandbox_omitted to a number.
__sandbox_changes() {
  builtin local path
  __sandbox_made=() __sandbox_drawn=() __sandbox_omitted=0
  __sandbox_walk
  for path in "${__sandbox_found[@]}"; do
    case ${__sandbox_seen[$path]} in
      older) [[ $path -ot $__sandbox_stamp ]] && continue ;;
      newer) continue ;;
    esac
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
}

__sandbox_touch() {
  { builtin : >|"$__sandbox_stamp"; } 2>/dev/null
}

# Sets __sandbox_found to the regular files in both folders and their subfolders.
__sandbox_walk() {
  builtin local IFS= GLOBIGNORE= options="$BASHOPTS" folder path name visited=0
  builtin local -a folders
  folders=("$__sandbox_root" ${__sandbox_figure_folder:+"$__sandbox_figure_folder"})
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
  builtin return 0
}

# Sets REPLY to the name as JSON; fails if the name is not UTF-8, or is very long.
__sandbox_quote() {
  builtin local LC_ALL=C.UTF-8 IFS= name="$1" i part
  [[ $name =~ ^.*$ ]] && ((${#name} <= 900)) || builtin return 1
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
