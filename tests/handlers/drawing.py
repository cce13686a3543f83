"""An interpreter with libraries that take long to import, shared by tests of what it draws."""

import re
from dataclasses import replace
from pathlib import Path

from .driver import Run, Runner


class Drawing:
    """Such an interpreter for one test: figures are numbered as if those of the test were the first."""

    def __init__(self, runner: Runner) -> None:
        self.runner = runner
        self.folder = runner.workdir.parent / "figures"
        self.before = len(list(self.folder.iterdir()))

    def run(self, code: str) -> Run:
        return self._numbered(self.runner.run(code))

    def finish(self) -> Run:
        return self._numbered(self.runner.finish())

    def file(self, number: int, extension: str = "png") -> Path:
        return self.folder / f"figure-{self.before + number}.{extension}"

    def _numbered(self, run: Run) -> Run:
        names = [
            re.sub("[0-9]+", lambda found: str(int(found[0]) - self.before), name) for name in run.report["figures"]
        ]
        return replace(run, report={**run.report, "figures": names})
