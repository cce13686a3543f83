#!/usr/bin/env bash
# Sums what each account has, and writes the largest ones to a report.
set -euo pipefail

folder=${1:-accounts}
report="$folder/report.txt"
declare -A balances=()

read_account() {
  local file=$1 name balance
  name=$(basename "$file" .csv)
  balance=0
  while IFS=, read -r _ kind amount; do
    case $kind in
      deposit) balance=$((balance + amount)) ;;
      withdraw) balance=$((balance - amount)) ;;
      *) echo "unknown kind: $kind" >&2; return 1 ;;
    esac
  done < <(tail -n +2 "$file")
  balances[$name]=$balance
}

for file in "$folder"/*.csv; do
  [ -e "$file" ] || continue
  read_account "$file"
done

total=0
for name in "${!balances[@]}"; do
  total=$((total + balances[$name]))
  printf '%s\t%d\n' "$name" "${balances[$name]}"
done | sort -t $'\t' -k 2 -n -r | head -n 10 >"$report"

if [ -s "$report" ]; then
  awk -F '\t' '{ sum += $2 } END { print "largest:", sum }' "$report"
  grep -c . "$report" || true
else
  echo "nothing to report"
fi
cut -f 1 "$report" | tr 'a-z' 'A-Z' | sed -e 's/^/- /' | tee "$folder/names.txt"
wc -l "$folder/names.txt"
date +%F >"$folder/done"
