# install.sh INDEX MODULE[@VERSION]...: adds modules to what programs of this session can import.

export GOPROXY="$1"
shift
mkdir -p "$SANDBOX_LIBRARIES" && cd "$SANDBOX_LIBRARIES" || exit
[ -f go.mod ] || go mod init main 2>/dev/null || exit

# All that the modules can need is fetched now: builds have no network.
go get -- "$@" && go mod download all && touch go.sum
