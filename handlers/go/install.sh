# install.sh INDEX MODULE[@VERSION]...: adds modules that this session's programs can import.

export GOPROXY="$1" GOWORK=off
shift
mkdir -p "$SANDBOX_LIBRARIES" && cd "$SANDBOX_LIBRARIES" || exit
[ -f go.mod ] || go mod init main 2>/dev/null || exit

# Fetches everything that the modules can need now: builds have no network.
go get -- "$@" && go mod download all && touch go.sum
