# Finds the regular files that a run created or changed. Bash cannot read the time or the inode of a file, only compare
# the age of two files: a file counts if it did not exist before, or if it is not older than a stamp file made when the
# run started. File times are coarse, so the stamp is made again until every file is older: this takes a few
# milliseconds if a file has just changed.

root=$SANDBOX_WORKDIR
figures=$SANDBOX_FIGURES
stamp=${HOME:-/tmp}/.sandbox-stamp-$$
entries=10000
patience=2000
declare -A seen

note_files() {
  local path tries=0
  seen=()
  walk
  touch_stamp
  for path in "${found[@]}"; do
    seen[$path]=older
    while [[ ! $path -ot $stamp ]]; do
      # Its time may be in the future; then a change of the file cannot be seen.
      ((++tries > patience)) && seen[$path]=newer && break
      touch_stamp
    done
  done
}

# Sets made and drawn to file names in JSON, and omitted to a number.
find_changes() {
  local path
  made=() drawn=() omitted=0
  walk
  for path in "${found[@]}"; do
    case ${seen[$path]} in
      older) [[ $path -ot $stamp ]] && continue ;;
      newer) continue ;;
    esac
    if [[ $path == "$figures"/* ]]; then
      quote "${path#"$figures"/}" || continue
      ((${#drawn[@]} < most)) && drawn+=("$REPLY")
    else
      quote "${path#"$root"/}" || continue
      if ((${#made[@]} < most)); then
        made+=("$REPLY")
      else
        omitted=$((omitted + 1))
      fi
    fi
  done
}

touch_stamp() {
  { : >|"$stamp"; } 2>/dev/null
}

# Sets found to the regular files in both folders and their subfolders.
walk() {
  local folder path name visited=0
  local -a folders=("$root" ${figures:+"$figures"})
  found=()
  while ((${#folders[@]} && visited < entries)); do
    folder=${folders[-1]}
    unset -v 'folders[-1]'
    for path in "$folder"/*; do
      ((++visited > entries)) && break
      [[ -L $path ]] && continue
      if [[ -d $path ]]; then
        name=${path##*/}
        [[ $name == node_modules || $name == __pycache__ ]] || folders+=("$path")
      elif [[ -f $path ]]; then
        found+=("$path")
      fi
    done
  done
}

# Sets REPLY to the name as JSON; fails if the name is not UTF-8, or is very long.
quote() {
  local LC_ALL=C.UTF-8 name="$1" i part
  [[ $name =~ ^.*$ ]] && ((${#name} <= 900)) || return 1
  name=${name//'\'/'\\'} name=${name//'"'/'\"'}
  if [[ $name == *[[:cntrl:]]* ]]; then
    REPLY=
    for ((i = 0; i < ${#name}; i++)); do
      part=${name:i:1}
      [[ $part == [[:cntrl:]] ]] && printf -v part '\\u%04x' "'$part"
      REPLY+=$part
    done
    name=$REPLY
  fi
  REPLY="\"$name\""
}
