"""The `benchx` command: its verbs; whatever goes wrong becomes one line and one exit code."""

from __future__ import annotations

import errno
import os
import select
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, TextIO

import typer

from benchx import __version__
from benchx.cli.arguments import with_resume_value
from benchx.cli.terminal import complain
from benchx.cli.verbs import VERBS, implementation
from benchx.core.errors import BenchxError, ExitCode

BROKEN_PIPE = 141
"""Exit code after a closed pipe, as shells have it: 128 + the signal's number."""

# Older Typers raise click's exceptions, newer ones a copy of their own; BadParameter is either.
_WrongUse: type[Exception] = typer.BadParameter.__bases__[0]


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"benchx {__version__}")
        raise typer.Exit


def root(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
    _debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error (after a verb, too).")
    ] = False,
) -> None:
    """Benchmark kernels, models and serving engines for hybrid-attention LLMs (KDA, MLA).

    Start with: benchx run quickstart
    """


def build(arguments: Sequence[str]) -> typer.Typer:
    """The command with all verbs, of which only those that `arguments` name are imported.

    Its help is plain: rendering it with Rich would double the time that `benchx --help` takes.
    """
    app = typer.Typer(
        add_completion=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(root)
    for verb in VERBS:
        wanted = verb.name in arguments
        app.command(verb.name, help=None if wanted else verb.summary)(
            implementation(verb) if wanted else _not_imported
        )
    return app


def _not_imported() -> None:
    """Stands in for a verb that the command line does not name."""


def main() -> None:
    """Entry point of the console script; never shows a traceback unless `--debug` is given."""
    _lend_missing_streams()
    arguments = sys.argv[1:]
    debug = "--debug" in arguments
    arguments = with_resume_value([word for word in arguments if word != "--debug"])
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # an ASCII terminal must not end a run
    try:
        app = build(arguments)
        code = app(args=arguments or ["--help"], prog_name="benchx", standalone_mode=False)
        sys.stdout.flush()  # here a closed pipe can still be told from a defect
    except SystemExit as end:
        code = _code_of(end, debug=debug)
    except BrokenPipeError as error:
        code = _code_of_pipe(error, debug=debug)
    except KeyboardInterrupt:
        complain("interrupted")
        code = ExitCode.INTERRUPTED
    except Exception as error:
        if debug:
            raise
        code = explain(error)
    sys.exit(code or ExitCode.OK)


def _lend_missing_streams() -> None:
    """A closed stdout or stderr (`>&-`, some daemons) leads nowhere instead of failing a run."""
    if sys.stdout is None:
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 - lives as long as the process
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115


def _code_of(end: SystemExit, *, debug: bool) -> int:
    """Exit code of what leaves by SystemExit: a closed pipe, by way of Typer, or a third party.

    A third party's text is shown, as Python would show it, but does not end with Python's exit
    code 1, which here stands for a regression.
    """
    if isinstance(end.__context__, BrokenPipeError):
        return _code_of_pipe(end.__context__, debug=debug)
    if end.code is None or isinstance(end.code, int):
        return end.code or ExitCode.OK
    complain(str(end.code))
    return ExitCode.FAILED


def _code_of_pipe(error: BrokenPipeError, *, debug: bool) -> int:
    """Quiet only where it is our own output that nobody reads; else it is a worker's pipe, say."""
    gone = [stream for stream in (sys.stdout, sys.stderr) if _has_no_reader(stream)]
    if gone:
        return BROKEN_PIPE
    if debug:
        raise error
    return explain(error)


def _has_no_reader(stream: TextIO) -> bool:
    """Whether `head` or a pager has closed the pipe that a stream writes to.

    If so, the stream leads nowhere from here on: Python would complain when it flushes it.
    """
    try:
        fd = stream.fileno()
    except OSError:  # it was replaced by one that is no file
        return False
    poll = select.poll()
    poll.register(fd, 0)  # asks for errors only
    if not poll.poll(0):
        return False
    os.dup2(os.open(os.devnull, os.O_WRONLY), fd)
    return True


def explain(error: Exception) -> int:
    """Say in one line what went wrong; returns the exit code."""
    if isinstance(error, BenchxError):
        complain(error.message, error.hint)
        return error.exit_code
    if isinstance(error, _WrongUse):
        return _explain_usage(error)
    if isinstance(error, OSError) and (error.filename or error.errno == errno.ENOSPC):
        complain(f"{error.filename or 'the output'}: {error.strerror}")  # a stream has no name
        return ExitCode.FAILED
    complain(
        f"unexpected {type(error).__name__}: {error}",
        "this is a defect in benchx; please report it with the output of the same command"
        " with --debug, and of `benchx doctor --json`",
    )
    return ExitCode.FAILED


def _explain_usage(error: Exception) -> int:
    message = error.format_message()  # type: ignore[attr-defined]
    message = " ".join(message.replace("Value error, ", "").split()).rstrip(".")
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "benchx"
    complain(message[:1].lower() + message[1:], f"{command} --help")
    return ExitCode.USAGE
