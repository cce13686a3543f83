"""Runs whose answer has the values of names, as the runner reports them if it is asked to."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Unpack

import anyio.to_thread

from ...base.errors import InvalidArgument
from ...base.results import Execution
from ...runs.protocol import Report, ReportedError, decode_values
from ...service import Service
from ...service.executing import Asked


@dataclass(frozen=True, slots=True)
class Inspection:
    """The state that code left in its interpreter, as the runner reports it."""

    values: Mapping[str, object]
    """The values of the run's variables and of the names that its code bound, as far as JSON can represent them."""
    left_out: tuple[str, ...]
    """Names whose values JSON cannot represent, or are too large; without modules, functions and classes."""
    error: ReportedError | None


async def execute(service: Service, code: str, **asked: Unpack[Asked]) -> tuple[Execution, Inspection | None]:
    """Runs code, and returns the values of its names too; None if the interpreter does not run any more.

    Raises the errors of `Service.execute`, and `InvalidArgument` for a language whose handler has no `inspects`.
    """
    language = service.languages[asked.get("language", "python")]
    runner = language.handler.runner
    if not (runner and runner.inspects):
        raise InvalidArgument(f"{language.name} cannot report the values of names", "print them instead")
    prepared = await service.executing.prepare(code, **asked)
    prepared.request = replace(prepared.request, inspect=True)
    execution = await service.executing.run(prepared)
    prepared.taken()
    # In a thread: it takes long to read a megabyte of values.
    return execution, await anyio.to_thread.run_sync(inspection_of, prepared.report)


def inspection_of(report: Report | None) -> Inspection | None:
    """The values of names and the error in a report."""
    reported = report.inspection if report is not None else None
    if reported is None:
        return None
    values = decode_values(reported.values)
    left_out = (*reported.left_out, *(name for name in reported.values if name not in values))
    return Inspection(values, left_out, reported.error)
