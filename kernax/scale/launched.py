"""Runs a script as Python does, in a process that `kernax.scale.launch` has started.

It imports nothing that the script might want to prepare first, such as JAX, whose settings are read
from the environment when it is imported.
"""

import os
import sys
import types
from typing import Any


def run(script: str, arguments: list[str]) -> None:
    """Runs a script with arguments.

    In a process that is connected with others, `sys.exit` with a failure ends it at once: JAX would
    wait for the others, which wait for this one, and fail in one of those first. Where a script has
    used JAX without being connected, and succeeds, a message on standard error says so.
    """
    main = types.ModuleType("__main__")
    main.__dict__.update(__file__=script, __builtins__=__builtins__)
    sys.modules["__main__"] = main
    sys.argv = [script, *arguments]
    if not sys.flags.safe_path:
        sys.path[0] = os.path.dirname(os.path.realpath(script))
    with open(script, "rb") as file:
        code = compile(file.read(), script, "exec")
    try:
        exec(code, main.__dict__)
    except SystemExit as end:
        if end.code not in (None, 0) and not _is_alone():
            _end_at_once(end.code)
        if end.code in (None, 0):
            _say_if_alone()
        raise
    _say_if_alone()


def _is_alone() -> bool:
    """Whether nothing has connected this process with others."""
    jax = sys.modules.get("jax")
    return jax is None or not (jax.distributed.is_initialized() or jax.process_count() > 1)


def _end_at_once(code: Any) -> None:
    """Ends this process as `sys.exit` does, but does not wait for the others."""
    is_number = isinstance(code, int)
    if not is_number:
        print(code, file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if is_number else 1)


def _say_if_alone() -> None:
    """Says that a process of several has computed by itself."""
    processes = os.environ["KERNAX_PROCESSES"]
    if "jax" in sys.modules and processes != "1" and _is_alone():
        print(
            f"kernax.scale.launch: this is one of {processes} processes, but the script never "
            "called kernax.scale.connect(), so that each of them has computed everything by itself",
            file=sys.stderr,
            flush=True,
        )


if __name__ == "__main__":
    run(sys.argv[1], sys.argv[2:])
