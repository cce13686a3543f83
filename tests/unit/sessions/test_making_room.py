"""Which session makes room for a new one: an idle session, and in a storm of new sessions one from that storm."""

from dataclasses import dataclass
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from llm_sandbox_mcp.sessions.live import longest_idle
from llm_sandbox_mcp.sessions.session import Session


@dataclass(eq=False)
class Used:
    """The facts about a session that decide."""

    uses: int
    used_at: float
    busy: bool = False


def chosen(sessions: list[Used]) -> Used | None:
    """The session that has to make room, if any."""
    return cast(Used | None, longest_idle(cast(list[Session], sessions)))


SESSIONS = st.lists(st.builds(Used, st.integers(0, 4), st.floats(0, 100), st.booleans()), max_size=12)


@given(SESSIONS)
def test_an_idle_session_goes_and_one_that_was_used_again_only_if_few_were_used_once(sessions: list[Used]) -> None:
    gone = chosen(sessions)
    once = [session for session in sessions if session.uses < 2]
    if gone is None:
        stay = once if 4 * len(once) >= len(sessions) else sessions
        assert all(session.busy for session in stay)
    else:
        assert not gone.busy
        assert gone.uses < 2 or 4 * len(once) < len(sessions)


@given(SESSIONS)
def test_the_longest_idle_session_of_its_kind_goes(sessions: list[Used]) -> None:
    gone = chosen(sessions)
    if gone is not None:
        alike = [one for one in sessions if not one.busy and (one.uses < 2) == (gone.uses < 2)]
        assert gone.used_at == min(one.used_at for one in alike)


@given(st.integers(4, 64), st.data())
def test_a_storm_of_new_sessions_leaves_three_quarters_to_the_sessions_in_use(most: int, data: st.DataObject) -> None:
    others = [Used(2, at) for at in range(data.draw(st.integers(0, most)))]
    live = list(others)
    for at in range(100, 100 + 3 * most):
        if len(live) == most:
            gone = chosen(live)
            if gone is None:
                continue
            live.remove(gone)
        live.append(Used(1, at, data.draw(st.booleans())))
    left = sum(one in live for one in others)
    assert left >= min(len(others), 3 * most // 4)


def test_if_new_sessions_are_few_the_longest_idle_of_all_goes() -> None:
    old, new = Used(5, 1.0), Used(1, 2.0)
    assert chosen([old, Used(5, 3.0), Used(5, 4.0), Used(5, 5.0), new]) is old


def test_a_quarter_of_new_sessions_is_enough_to_make_room_among_themselves() -> None:
    old, new = Used(2, 1.0), Used(1, 2.0)
    assert chosen([old, Used(2, 3.0), Used(2, 4.0), new]) is new
    assert chosen([]) is None
