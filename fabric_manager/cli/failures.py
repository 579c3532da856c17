"""What a person reads when it did not work, and the exit code that a script reads."""

import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

import click

from fabric_manager.cli import formatting
from fabric_manager.client import ClientError, ProblemError, UnreachableError

EXIT_PROBLEM, EXIT_UNREACHABLE, EXIT_NOT_FOUND = 1, 3, 4  # 2 is click's, for wrong usage
EXIT_INTERRUPTED, EXIT_BROKEN_PIPE = 128 + signal.SIGINT, 128 + signal.SIGPIPE  # as a shell would say

EXIT_CODES = """\b
Exit codes:
  0  done
  1  refused, failed, or not so within the time to wait; stderr says why
  2  wrong usage
  3  the service cannot be reached
  4  not found"""

NEXT_BY_VERDICT = {
    "placement": "Asking again unchanged will not help; another size, pool, device or host may.",
    "host": "This host cannot have it; another host may.",
    "claim": "This claim cannot succeed as it is, wherever it is placed.",
}
NEXT_BY_CODE = {
    "unauthenticated": "Name a token that this service knows: --token-file, FABRIC_MANAGER_TOKEN, or --data-dir.",
    "forbidden": "Use a token with a role that may do this.",
    "key_reuse_mismatch": "The key stands for another request: use another key, or ask for the same again.",
    "released": "A released key is not given out again: use another key.",
}


class FailingGroup(click.Group):
    """Ends every command's failure in one readable block and a documented exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except ClientError as error:
            click.echo(explain(error), err=True)
            ctx.exit(exit_code(error))
        except BrokenPipeError:
            _write_no_more()
            ctx.exit(EXIT_BROKEN_PIPE)
        except KeyboardInterrupt:
            ctx.exit(EXIT_INTERRUPTED)


def exit_code(error: ClientError) -> int:
    if isinstance(error, UnreachableError):
        return EXIT_UNREACHABLE
    if isinstance(error, ProblemError) and error.status == 404:
        return EXIT_NOT_FOUND
    return EXIT_PROBLEM


def explain(error: ClientError) -> str:
    if isinstance(error, ProblemError):
        return "\n".join(_problem_lines(error))
    if isinstance(error, UnreachableError):
        return f"Error: {error}\nIs the service running there? Name another with --server or FABRIC_MANAGER_SERVER."
    return f"Error: {error}"


def _problem_lines(problem: ProblemError) -> Iterator[str]:
    yield f"Error: {problem.code} ({problem.status})"
    yield f"  {problem}"
    for name, content in problem.facts.items():
        yield from _fact_lines(name, content)
    yield from (f"  {line}" for line in _next_lines(problem))
    if problem.request_id:
        yield f"  request id: {problem.request_id}"


def _fact_lines(name: str, content: Any) -> Iterator[str]:
    if isinstance(content, list) and content and all(isinstance(each, dict) for each in content):
        headers = list(dict.fromkeys(header for each in content for header in each))
        rows = ([formatting.value(header, each.get(header)) for header in headers] for each in content)
        yield f"  {name}:"
        yield from (f"    {line}" for line in formatting.table(headers, rows).splitlines())
    elif content is not None and name not in ("waiting_helps", "eta_ms"):  # these two become a sentence
        yield f"  {name}: {formatting.value(name, content)}"


def _next_lines(problem: ProblemError) -> Iterator[str]:
    if problem.facts.get("waiting_helps"):
        eta_ms = problem.facts.get("eta_ms")
        yield "Waiting helps" + (f": about {eta_ms / 1000:.0f} s." if eta_ms else ".")
    elif problem.retryable:
        after_ms = problem.retry_after_ms
        yield "Try again" + (f" in {after_ms / 1000:.0f} s." if after_ms else " in a moment.")
    elif problem.code in NEXT_BY_CODE:
        yield NEXT_BY_CODE[problem.code]
    elif problem.terminal_for in NEXT_BY_VERDICT:
        yield NEXT_BY_VERDICT[problem.terminal_for]


def _write_no_more() -> None:
    """Python flushes stdout once more at exit; nobody reads it, so it goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
