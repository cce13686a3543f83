"""What the interpreters of warm sandboxes import while they wait, and what was learned about it."""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence

from ..backends.base import Zygote
from ..backends.layout import PATH
from ..base.results import Preload
from ..languages.languages import Language
from ..languages.modules import among
from ..languages.places import Places
from ..profile.profile import Profile
from ..runs.interpreter import Interpreter
from ..runs.preloading import fits, preload
from .plan import Key

FindZygote = Callable[[str, Sequence[str], frozenset[str]], Awaitable[Zygote | None]]
"""Makes a zygote of a language that imports modules, and knows what these miss; None if there are none to import, or
others when a sandbox starts."""


def modules_of(profile: Profile, language: Language) -> Sequence[str]:
    """The modules that warm interpreters of a language import: those that the operator names, or else those of the
    default profile that are among the libraries; none if its runner cannot do that."""
    runner = language.handler.runner
    if runner is None or not runner.preloads:
        return ()
    modules, chosen = profile.preload(language.name)
    return modules if chosen else among(profile.language(language.name).libraries, modules, language)


def zygote_of(places: Places, modules: Sequence[str], missed: frozenset[str]) -> Zygote:
    """A language's interpreter that has imported modules, and knows what these miss."""
    runner = places.language.handler.runner
    assert runner is not None  # it has imported the modules
    return Zygote(tuple(places.argv(runner.argv)), tuple(places.env(PATH).items()), tuple(modules), missed)


class Preloads:
    """The modules for each language. What goes wrong with a module once is not tried again in the same pool."""

    def __init__(self, modules: Mapping[str, Sequence[str]], find: FindZygote | None = None) -> None:
        """`find` makes a zygote of what was imported; without it there is none."""
        self._modules = modules
        self._find = find
        self._zygotes: dict[Key, Zygote] = {}
        self._avoided: dict[Key, dict[str, str]] = defaultdict(dict)
        self._last: dict[Key, Preload] = {}

    def left(self, key: Key) -> bool:
        """Whether there is anything to import in an interpreter of such a sandbox."""
        avoided = self._avoided.get(key, {})
        return any(module not in avoided for module in self._modules.get(key.language, ()))

    def zygote(self, key: Key) -> Zygote | None:
        """The interpreter of which such a sandbox should be a fork, with the modules that a sandbox has imported, under
        this or another policy."""
        if key in self._zygotes:
            return self._zygotes[key]
        alike = (one for one in self._zygotes if (one.language, one.image) == (key.language, key.image))
        return next((self._zygotes[one] for one in alike if fits(self._last[one].memory, key.policy.memory)), None)

    def of(self, language: str, image: str) -> Preload | None:
        """What the last sandbox of the language imported, and what none does any more; None if nothing is known yet."""
        *_, key = None, *(key for key in self._avoided if (key.language, key.image) == (language, image))
        if key is None or not (key in self._last or self._avoided[key]):
            return None
        return self._last.get(key) or Preload((), dict(self._avoided[key]), 0.0, 0)

    async def load(self, key: Key, interpreter: Interpreter) -> bool:
        """Imports the modules in an interpreter; false if its sandbox must not be used, and another should be tried."""
        done = await preload(interpreter, self._modules[key.language], self._avoided[key], key.policy.memory)
        if done is not None:
            self._last[key] = done
            missed = interpreter.missed or frozenset()
            zygote = await self._find(key.language, done.modules, missed) if self._find else None
            if zygote is not None:
                self._zygotes[key] = zygote
        else:
            self._last.pop(key, None)
            self._zygotes.pop(key, None)
        return done is not None
