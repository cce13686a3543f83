# install.sh INDEX MODULE[@VERSION]...: adds modules that this session's programs can import.

export GOPROXY="$1" GOWORK=off
shift
mkdir -p "$SANDBOX_LIBRARIES" && cd "$SANDBOX_LIBRARIES" || exit
[ -f go.mod ] || go mod init main 2>/dev/null || exit

# A module that is there is not looked for, unless a version is named.
for module; do
  shift
  awk -v module="$module" '$1 == module || $2 == module { there = 1 } END { exit !there }' go.mod || set -- "$@" "$module"
done
[ $# -gt 0 ] || exit 0

# Fetches everything that the modules can need now: builds have no network.
go get -- "$@" && go mod download all && touch go.sum
