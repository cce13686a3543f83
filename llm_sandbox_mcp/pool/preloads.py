"""What the interpreters of warm sandboxes import while they wait, and what was learned about it."""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence

from ..base.results import Preload
from ..languages.languages import Language
from ..languages.modules import among
from ..profile.profile import Profile
from ..runs.interpreter import Interpreter
from ..runs.preloading import preload
from .plan import Key


def modules_of(profile: Profile, language: Language) -> Sequence[str]:
    """The modules that warm interpreters of a language import: those that the operator names, or else those of the
    default profile that are among the libraries."""
    modules, chosen = profile.preload(language.name)
    return modules if chosen else among(profile.language(language.name).libraries, modules, language)


class Preloads:
    """The modules for each language. What goes wrong with a module once is not tried again in the same pool."""

    def __init__(self, modules: Mapping[str, Sequence[str]]) -> None:
        self._modules = modules
        self._avoided: dict[Key, dict[str, str]] = defaultdict(dict)
        self._last: dict[Key, Preload] = {}

    def left(self, key: Key) -> bool:
        """Whether there is anything to import in an interpreter of such a sandbox."""
        avoided = self._avoided.get(key, {})
        return any(module not in avoided for module in self._modules.get(key.language, ()))

    def of(self, language: str, image: str) -> Preload | None:
        """What the last sandbox of the language imported, and what it did not."""
        found = [last for key, last in self._last.items() if (key.language, key.image) == (language, image)]
        return found[-1] if found else None

    async def load(
        self, key: Key, interpreter: Interpreter, start: Callable[[], Awaitable[Interpreter]]
    ) -> Interpreter:
        """Imports the modules in an interpreter; returns it, or another one that `start` started."""
        avoided, memory = self._avoided[key], key.policy.memory
        interpreter, self._last[key] = await preload(interpreter, start, self._modules[key.language], avoided, memory)
        return interpreter
