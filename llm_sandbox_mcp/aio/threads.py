"""Calls that block, in threads that nobody has to wait for: not who is cancelled, and not the end of the program.

The threads of anyio are waited for when the program ends, so a call that hangs would keep it.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import TypeVar

import anyio
import anyio.from_thread
from anyio.lowlevel import current_token

T = TypeVar("T")


async def in_thread(
    call: Callable[[], T], limiter: anyio.CapacityLimiter, leave: Callable[[anyio.Event], object] = lambda _done: None
) -> T:
    """What a call returns, which counts for the limiter until it is done.

    When cancelled, `leave` is called with what is set once the call is done after all.
    """
    done, token = anyio.Event(), current_token()

    def work(answer: Future[T]) -> None:
        try:
            answer.set_result(call())
        except BaseException as error:  # a library in another language can raise any; who waits gets it
            answer.set_exception(error)
        with suppress(anyio.RunFinishedError):
            anyio.from_thread.run_sync(end, token=token)

    def end() -> None:
        limiter.release_on_behalf_of(done)
        done.set()

    answer = Future[T]()
    await limiter.acquire_on_behalf_of(done)
    try:
        threading.Thread(target=work, args=[answer], daemon=True).start()
    except RuntimeError:  # there are too many
        limiter.release_on_behalf_of(done)
        raise
    try:
        await done.wait()
        return answer.result()
    except anyio.get_cancelled_exc_class():
        leave(done)
        raise
    finally:
        del answer  # its error has this frame
