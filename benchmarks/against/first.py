"""The process of a first call: kernax is imported, then the clock starts."""

import json
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.against.rows import Missing, is_absent
from benchmarks.against.versions import HERE

# kernax comes first, from its own root, which may hold a `benchmarks` of its time as well.
CODE = """
import sys
sys.path.insert(0, {root!r})
import kernax
sys.path[0] = {here!r}
from benchmarks.against.first import main
main({name!r}, {size!r})
"""


def call(name: str, size: int, root: Path, wide: bool) -> tuple[float, Any]:
    """Seconds of the first call of a row in a new process, and its answer as lists of numbers.

    Raises Missing where that version has no such call.
    """
    settings = {"JAX_ENABLE_COMPILATION_CACHE": "false", "JAX_ENABLE_X64": str(int(wide))}
    code = CODE.format(root=str(root), here=str(HERE), name=name, size=size)
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | settings, capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    found = json.loads(done.stdout.splitlines()[-1])
    if not Path(found["file"]).is_relative_to(root.resolve()):
        raise ImportError(f"kernax was to come from {root}, but came from {found['file']}")
    if found["absent"] is not None:
        raise Missing(found["absent"])
    return found["seconds"], [np.asarray(leaf) for leaf in found["answer"]]


def main(name: str, size: int) -> None:
    """Prints what `call` wants to know, as JSON."""
    import kernax
    from benchmarks.against import ROWS

    warnings.simplefilter("ignore")
    (row,) = (row for row in ROWS if row.name == name)
    found = {"seconds": None, "answer": None, "absent": None}
    try:
        found |= _timed(row.program(kernax, size))
    except (Missing, AttributeError, TypeError) as error:
        if not is_absent(error, kernax):
            raise
        found["absent"] = str(error)
    print(json.dumps(found | {"file": str(Path(kernax.__file__).resolve())}))


def _timed(program: Any) -> dict[str, Any]:
    import jax
    import numpy as np

    start = time.perf_counter()
    answer = jax.block_until_ready(program())
    seconds = time.perf_counter() - start
    leaves = [np.asarray(leaf, np.float64).tolist() for leaf in jax.tree.leaves(answer)]
    return {"seconds": seconds, "answer": leaves}
