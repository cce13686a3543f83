"""What a Bash session has is saved, and made again in another sandbox."""

import re
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from .states import Pair, pair

pytestmark = pytest.mark.anyio


@pytest.fixture
async def shells(anyio_backend: str, folder: Path) -> AsyncIterator[Pair]:
    async with pair("bash", folder) as opened:
        yield opened


VARIABLES = r"""
plain='a "b" $c `d` \ é'
lines=$'1\n\tdeclare -- no=1\n2\x01\xff'
empty=
list=(a 'b c' [5]=$'x\ny')
declare -A map=([k]=v ['a b']='c d' ['$(touch made)']=1 ["]"]=2 ['@']=3 ["'"]=4 ['"']=5 [$'\n']=6)
declare -A unset_map
declare -i number=3
declare -u upper=up
declare -r fixed='not to change'
declare -ar fixed_list=(1 2)
declare -n name_of=plain
export given='to children'
PATH=$PATH:/sandbox/bin
export LANG=C
unset HOME
IFS=,
readonly IFS
"""


async def test_variables_of_all_kinds_are_kept(shells: Pair) -> None:
    await shells.run(VARIABLES)
    shown = "declare -p plain lines empty list map unset_map number upper fixed fixed_list given PATH LANG name_of IFS"
    before = (await shells.run(shown)).stdout.text
    saved, opened = await shells.move()
    assert (saved.lost, saved.notes, opened.lost, opened.notes) == ({}, [], {}, [])
    assert saved.kept == opened.kept == len(shown.split()) - 2, saved
    assert (await shells.then(shown)).stdout.text == before
    after = await shells.then(
        'unset_map[x]=1; number=number+1; name_of=new; upper=low\necho "$number $plain $upper ${!unset_map[@]} ${HOME-no}"'
        "\nsh -c 'echo $given'"
    )
    assert after.stdout.text == "4 new LOW x no\nto children\n"
    assert (await shells.second.run("fixed=1")).status == "error"


async def test_saving_leaves_no_trace(shells: Pair) -> None:
    await shells.run(VARIABLES + "set -- a 'b c'; trap 'echo left' USR1; builtin cd /tmp; set -o pipefail")
    seen = (
        "{ echo $PWD $# $? $- $!; declare -p | grep -vE ' (_|__sandbox_.*|S?RANDOM|SECONDS|EPOCH.*|BASH.*|LINENO|PIPESTATUS)='"
        "; declare -F | grep -v ' __sandbox_'; shopt; set -o; trap; alias; umask; } >/sandbox/seen"
    )
    await shells.run(seen)
    before = await shells.first.read("seen")
    await shells.save()
    await shells.run(seen)
    assert (await shells.first.read("seen")).splitlines() == before.splitlines()
    await shells.carry()
    await shells.open()
    await shells.then(seen)
    hidden = re.compile(rb"(?m)^declare -- __sandbox.*|^declare -[irx-]* (PPID|SHLVL|HOSTNAME)=.*")
    assert hidden.sub(b"", await shells.second.read("seen")) == hidden.sub(b"", before)


async def test_functions_options_aliases_traps_and_places_are_kept(shells: Pair) -> None:
    await shells.run(r"""
shopt -s extglob expand_aliases nullglob nocasematch
shopt -u sourcepath
set -o pipefail
set -a +B
alias greet='echo hello' failing='false; '
mkdir deep '/home/a b'
""")
    await shells.run(r"""
total=1
add() { local n=$1; total=$((total + n)); [[ $1 == @(4|5) ]] && cat <<END
four "$1"
END
}
starred() { case $1 in +([0-9])) echo number ;; esac; }
readonly -f starred
echoed() { echo exported; }
export -f echoed
python() { echo mine; }
a-b() { echo dash; }
declare() { echo no; }
source() { echo no; }
printf() { echo no; }
trap 'echo returned' RETURN
trap 'echo "it'"'"'s"' USR1
trap '' TERM
set -- one 'two words' ''
umask 027
cd deep
pushd '/home/a b'
""")
    saved, opened = await shells.move()
    assert (saved.lost, opened.lost, opened.notes) == ({}, {}, ["the working directory /home/a b does not exist"])
    after = await shells.then("""builtin source /dev/null
trap
shopt extglob nullglob nocasematch sourcepath
set -o | grep -E 'pipefail|allexport|braceexpand'
umask; echo $#; echo "$2"; dirs
greet
add 4; builtin trap - RETURN
echo $total
starred 12
python
a-b
bash -c echoed
printf
echo after; kill -USR1 $$; echo {a,b}
""")
    assert (
        after.stdout.text
        == """\
returned
trap -- 'echo "it'\\''s"' SIGUSR1
trap -- '' SIGTERM
extglob        \ton
nullglob       \ton
nocasematch    \ton
sourcepath     \toff
allexport      \ton
braceexpand    \toff
pipefail       \ton
0027
3
two words
/sandbox /sandbox/deep
hello
four "4"
5
number
mine
dash
exported
no
after
it's
{a,b}
"""
    )


async def test_what_cannot_move_is_named(shells: Pair) -> None:
    await shells.run("""echo text >file
exec 7<file 8< <(sleep 60)
sleep 61 &
coproc HELPER { cat; }
kept=1""")
    saved, opened = await shells.move()
    moves = "a process does not move to another sandbox"
    assert saved.lost.pop("sleep 61 &") == ("job", moves)
    assert saved.lost.pop("HELPER") == ("coprocess", moves)
    assert saved.lost.pop("descriptor 7") == ("open file", "it leads to /sandbox/file")
    assert saved.lost["descriptor 8"][1].startswith("it leads to pipe:")
    assert len(saved.lost) <= 2  # bash also keeps the process substitution's own descriptor
    assert (saved.kept, opened.lost) == (1, {})
    assert (await shells.then("echo $kept ${HELPER-none} ${HELPER_PID-none}")).stdout.text == "1 none none\n"


async def test_many_losses_are_counted(shells: Pair) -> None:
    await shells.run('for at in {300..810}; do eval "exec $at</dev/null"; done')
    saved = await shells.save()
    assert (len(saved.lost), saved.notes) == (500, ["11 more are lost"])


async def test_names_are_shown_in_one_line(shells: Pair) -> None:
    await shells.run('name=$\'a\\tb\\nc\'; : >"$name"; exec 7<"$name"')
    assert (await shells.save()).lost == {"descriptor 7": ("open file", "it leads to /sandbox/a b c")}


@pytest.mark.parametrize(
    "code",
    [
        "set -euf -o noclobber -o posix; IFS=; readonly IFS",
        "shopt -s expand_aliases failglob nocasematch extdebug\nalias local=false if=false for=false declare='echo x; '",
        "declare() { exit 1; }; source() { :; }; mapfile() { :; }; mv() { :; }; alias() { :; }; set() { :; }",
        "PATH=; readonly PATH; export LC_ALL=C; readonly LC_ALL",
        "export long; printf -v long '%0300000d' 0",
        "readonly name=1 lines=2; declare -i line; GLOBIGNORE='*'; set -a",
        "unset -v BASH_SOURCE; trap 'echo failed; exit 4' ERR; trap 'echo over' EXIT; set -T; trap 'builtin echo x >>/sandbox/out' DEBUG",
    ],
)
async def test_whatever_code_has_set(shells: Pair, code: str) -> None:
    await shells.run("kept='a b'; greet() { echo \"hello $kept\"; }; list=(1 2)")
    await shells.run(code)
    saved, opened = await shells.move()
    assert (saved.lost, opened.lost, opened.notes) == ({}, {}, [])
    assert saved.kept == opened.kept >= 3
    assert (await shells.then("greet; echo ${#list[@]}")).stdout.text == "hello a b\n2\n"


async def test_a_variable_that_cannot_be_set_costs_only_itself(shells: Pair) -> None:
    await shells.run("a=1 b=2 c=3; f() { echo f; }")
    await shells.save()
    await shells.carry()
    await shells.then("readonly b=0")
    opened = await shells.open()
    assert opened.lost == {"b": ("variable", "bash 5.2 does not take it")}
    assert opened.kept == 3
    assert (await shells.then("echo $a $b $c; f")).stdout.text == "1 0 3\nf\n"


async def test_what_ended_the_shell_is_not_tried_again(shells: Pair) -> None:
    await shells.run("a=1 b=2 c=3 d=4")
    await shells.save()
    await shells.carry()
    at = {
        line: str(number)
        for number, line in enumerate((await shells.second.read("saved/names")).decode().split("\n"), 1)
    }
    for name in "bd":
        await shells.then(f"echo 'kill -KILL $$' >>saved/{at['variable ' + name]}")
        ended = await shells.second.run(
            "builtin source /opt/handlers/bash/state.sh open /opt/handlers/bash /sandbox/saved >/dev/null 2>&1"
        )
        assert ended.session_state == "fresh"
    opened = await shells.open()
    assert opened.lost == dict.fromkeys("bd", ("variable", "opening it ended the interpreter"))
    assert (await shells.then("echo $a ${b-} $c ${d-}; ls saved")).stdout.text.startswith("1 3\n")
    assert not {"opening", "report.new"} & set((await shells.then("ls saved")).stdout.text.split())


async def test_another_version_is_noted(shells: Pair) -> None:
    await shells.run("a=1")
    await shells.save()
    await shells.run("sed -i '/_version/s/=.*/=\"5.0\"/' saved/modes")
    await shells.carry()
    assert (await shells.open()).notes == ["saved by bash 5.0, opened by 5.2"]


async def test_long_values_take_linear_time(shells: Pair) -> None:
    await shells.run("long=$(yes 'aé\"$' | head -c 10000000); mapfile -t lines < <(seq 200000)")
    length = (await shells.run("echo ${#long} ${#lines[@]}")).stdout.text
    started = anyio.current_time()
    await shells.move()
    assert anyio.current_time() - started < 20
    assert (await shells.then("echo ${#long} ${#lines[@]}")).stdout.text == length


async def test_what_has_no_room_is_named(anyio_backend: str, folder: Path) -> None:
    async with pair("bash", folder, disk=4 << 20) as shells:
        await shells.run("printf -v long '%06000000d' 0; kept=1")
        saved, _ = await shells.move()
        assert list(saved.lost) == ["long"]
        assert saved.lost["long"][1].startswith("no room in the sandbox to save")
        assert (await shells.then("echo $kept ${long-gone}")).stdout.text == "1 gone\n"


async def test_memory_is_left(anyio_backend: str, folder: Path) -> None:
    async with pair("bash", folder, memory=128 << 20) as shells:
        await shells.run("printf -v long '%025000000d' 0; kept=1")
        saved = await shells.save()
        assert saved.lost == {"long": ("variable", "no room in the sandbox to save 23 MB")}
        assert (await shells.run("echo $kept ${#long}")).stdout.text == "1 25000000\n"
