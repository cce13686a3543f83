"""Runs whose answer has the values of names, as the runner reports them if it is asked to."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import anyio.to_thread

from ...base.errors import InvalidArgument
from ...base.results import Execution
from ...runs.protocol import Report, ReportedError, decode_values
from ...service import Service
from ...service.ask import Ask, Checked


@dataclass(frozen=True, slots=True)
class Inspection:
    """The state that code left in its interpreter, as the runner reports it."""

    values: Mapping[str, object]
    """The values of the run's variables and of the names that its code bound, as far as JSON can represent them."""
    left_out: tuple[str, ...]
    """Names whose values JSON cannot represent, or are too large; without modules, functions and classes."""
    error: ReportedError | None


async def check(service: Service, ask: Ask) -> Checked:
    """Checks a run whose report has the values of names; `InvalidArgument` for a language that does not report them."""
    language = service.languages[ask.language]
    runner = language.handler.runner
    if not (runner and runner.inspects):
        raise InvalidArgument(f"{language.name} cannot report the values of names", "print them instead")
    checked = await service.door.check(ask)
    return replace(checked, request=checked.request and replace(checked.request, inspect=True))


async def inspect(service: Service, checked: Checked) -> tuple[Execution, Inspection | None]:
    """Does such a run, and returns the values of its names too; None if the interpreter does not run any more."""
    work = await service.door.attend(checked)
    # In a thread: it takes long to read a megabyte of values.
    return work.execution, await anyio.to_thread.run_sync(inspection_of, work.report)


def inspection_of(report: Report | None) -> Inspection | None:
    """The values of names and the error in a report."""
    reported = report.inspection if report is not None else None
    if reported is None:
        return None
    values = decode_values(reported.values)
    left_out = (*reported.left_out, *(name for name in reported.values if name not in values))
    return Inspection(values, left_out, reported.error)
