"""What there is to tell of a session's state: that it was lost, or that it is back."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ..base.messages import Note


@dataclass(frozen=True, slots=True, eq=False)
class Loss:
    """One loss of state, which is not the same as another one for the same reason."""

    cause: str
    lost: str = "variables and files are lost"
    language: str = ""
    """The language whose variables are lost, if that is all."""

    @property
    def note(self) -> Note:
        """What a caller must know."""
        return Note("started_fresh", f"started fresh: since an earlier run {self.cause}; {self.lost}")


@dataclass(frozen=True, slots=True, eq=False)
class Return:
    """What there is to tell of a session's state, such as a return to one that was put aside."""

    notes: Sequence[Note]


class News:
    """What no caller knows yet; each stays until a caller has the result of a run that reports it."""

    def __init__(self) -> None:
        self.loss: Loss | None = None
        """Why state was lost."""
        self.returned: Return | None = None

    @property
    def untold(self) -> Sequence[Note]:
        """What no caller knows yet of losses, and of a return to a state that was put aside."""
        whole = [self.loss.note] if self.loss is not None and not self.loss.language else []
        return [*self._notes, *whole]

    def tell(self, note: Note) -> None:
        """Has the next run tell something about the state."""
        self.returned = Return((*self._notes, note))

    def told_of(self, news: Collection[Loss | Return | None]) -> None:
        """Takes note that a caller has the result of a run that reports this, so that later runs need not."""
        if self.loss in news:
            self.loss = None
        if self.returned in news:
            self.returned = None

    def end_of(self, language: str) -> Loss:
        """Takes note that the interpreter of a language ended by itself; returns what is lost with it."""
        self.loss = Loss(f"the interpreter of {language} ended", "its variables are lost, files are kept", language)
        return self.loss

    def return_to(self, notes: Sequence[Note]) -> None:
        """Takes note of a return to a state that was put aside, and of what there is to tell of it."""
        known = {*map(str, notes)}  # what nobody was told of is in the state, too
        earlier = [note for note in self._notes if str(note) not in known]
        self.loss, self.returned = None, Return((*earlier, *notes))

    def clear(self) -> None:
        """Has later runs tell nothing of this, as the owner of the session wants it."""
        self.loss = self.returned = None

    @property
    def _notes(self) -> Sequence[Note]:
        return self.returned.notes if self.returned is not None else ()
