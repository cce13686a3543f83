"""The paths and the environment of a language inside a sandbox."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..backends.layout import FIGURES, HANDLERS, HOME, LIBRARIES, WORKDIR
from ..backends.listening import PROXY_PORT
from ..base.policy import NetworkMode
from .languages import Language

_PROXY = {
    **dict.fromkeys(
        [form(f"{kind}_proxy") for kind in ("http", "https", "all") for form in (str.lower, str.upper)],
        f"http://127.0.0.1:{PROXY_PORT}",
    ),
    # Programs that listen in the sandbox itself.
    **dict.fromkeys(("no_proxy", "NO_PROXY"), "localhost,127.0.0.1,::1"),
}
"""How programs find the proxy. Some read only the names in lower case, others only those in upper case."""
_GIT = {"GIT_OPTIONAL_LOCKS": "0"}
"""Git would update its index, which is in the folder, when it is only asked for something."""


@dataclass(frozen=True, slots=True)
class Places:
    """The paths and the environment of a language inside a sandbox; fills the placeholders of `handler.toml`."""

    language: Language
    environment: str = ""
    """Folder of the prepared environment, if the language has one."""
    tools: str = ""
    """Folder of our own tools."""
    index: str = ""
    """URL of the package index, during an installation."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Environment variables that the profile sets for the language's processes."""
    memory: int = 0
    """Bytes that all processes of the sandbox can use together, for programs that would go by the machine's memory."""
    network: NetworkMode = "none"
    """What its processes can reach; with `allow`, their environment names the proxy."""
    views: bool = False
    """Whether code sees folders of the operator's."""
    everywhere: tuple[Language, ...] = ()
    """The languages whose libraries bring programs that its code can start: all of this server."""
    companions: tuple["Places", ...] = ()
    """Those of the languages whose programs its code starts."""
    lacking: str = ""
    """Why it runs without the libraries of the profile; empty if it has them."""

    @property
    def complete(self) -> bool:
        """Whether it and its companions have the libraries of the profile."""
        return not any(places.lacking for places in (self, *self.companions))

    @property
    def libraries(self) -> str:
        return f"{LIBRARIES}/{self.language.name}"

    def build_folder(self, number: int) -> str:
        """The folder in which one program of a compiled language is built."""
        return f"{HOME}/build/{self.language.name}/{number}"

    def expand(self, text: str) -> str:
        """Fills the placeholders in one string; all other braces stay as they are."""
        places = {
            "handler": f"{HANDLERS}/{self.language.name}",
            "environment": self.environment,
            "libraries": self.libraries,
            "workdir": WORKDIR,
            "tools": self.tools,
            "index": self.index,
        }
        for name, place in places.items():
            text = text.replace("{" + name + "}", place)
        return text

    def argv(self, words: tuple[str, ...]) -> list[str]:
        """A command of the handler with its placeholders filled."""
        return [self.expand(word) for word in words]

    def env(self, path: str) -> dict[str, str]:
        """The whole environment of the language's processes in a sandbox whose PATH is `path`."""
        everywhere = [Places(language, index=self.index, network=self.network) for language in self.everywhere]
        programs = [folder for places in everywhere for folder in places._programs()]
        prepared = [f"{places.environment}/bin" for places in (self, *self.companions) if places.environment]
        common = {
            # The programs of libraries come last: none of them takes the place of an interpreter.
            "PATH": ":".join((*dict.fromkeys(prepared), path, *programs)),
            "HOME": HOME,
            # If the system has no entry for the user, programs look here.
            "USER": "sandbox",
            "LOGNAME": "sandbox",
            "LANG": "C.UTF-8",
            "SANDBOX_WORKDIR": WORKDIR,
            "SANDBOX_FIGURES": FIGURES,
            "SANDBOX_LIBRARIES": self.libraries,
            "SANDBOX_MEMORY": str(self.memory),
            "SANDBOX_NETWORK": self.network,
        }
        if self.network == "allow":
            common |= _PROXY
        if self.views:
            common |= _GIT
        for places in everywhere:
            common |= places._shared_variables()
        for places in (*self.companions, self):
            common |= places._own_variables()
        return common

    def _programs(self) -> list[str]:
        """The folders of the programs that libraries bring."""
        manager = self.language.handler.libraries
        managers = (manager, *manager.alternatives) if manager is not None else ()
        return [self.expand(folder) for one in managers for folder in one.programs]

    def _shared_variables(self) -> dict[str, str]:
        """What `handler.toml` sets for code of all languages."""
        handler = self.language.handler
        offline = handler.offline if self.network == "none" and not self.index else {}
        shared = {**(handler.libraries.env if handler.libraries is not None else {}), **offline}
        return {key: self.expand(value) for key, value in shared.items()}

    def _own_variables(self) -> dict[str, str]:
        """What `handler.toml` and the profile set for the language."""
        own = {**self.language.handler.env, **self.settings}
        return {**self._shared_variables(), **{key: self.expand(value) for key, value in own.items()}}
