"""Runs actions right after a module's first import, so that the runner imports only modules that the code needs."""

from __future__ import annotations

import sys


class AfterImport:
    """A finder for `sys.meta_path`: `actions` maps the name of a module to a function, called once with the module."""

    def __init__(self, actions: dict) -> None:
        self._actions = actions

    def find_spec(self, name: str, path=None, target=None):
        """Finds a module that has an action with the other finders; None for every other module."""
        action = self._actions.pop(name, None)
        if action is None:
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(name, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Loader(spec.loader, action)
                return spec
        return None


class _Loader:
    def __init__(self, loader, action) -> None:
        self._loader = loader
        self._action = action

    def __getattr__(self, name: str):
        return getattr(self._loader, name)

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module) -> None:
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._action(module)
