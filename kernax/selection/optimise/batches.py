"""Many fits in one program: one after another on each core of a CPU, together elsewhere."""

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh
from jaxtyping import PyTree

from kernax.core.base.boundary import as_arrays, check_axes, check_mesh
from kernax.core.base.numerics import is_concrete
from kernax.core.base.parameters import check_count
from kernax.core.base.printing import bar_of
from kernax.core.base.stacks import points_at
from kernax.core.base.threads import linear_algebra_threads
from kernax.core.operators.memory import available_memory
from kernax.core.operators.mesh import RowsOverMesh, on_parts, rows_over_mesh

_PIECES = 50  # how often the bar is redrawn
_SHARE = 0.5  # of an accelerator's free memory that the members computed together may take
_AXIS = "members"
Devices = Mesh | Sequence[Any]  # of jax.Device, which type checkers take for a variable


def batched(
    function: Callable[..., Any],
    *,
    in_axes: int | tuple[int | None, ...] = 0,
    batch_size: int | None = None,
    devices: Devices | None = None,
    progress: bool = False,
) -> Callable[..., Any]:
    """Maps `function` over the leading axes of its arguments, as `jax.vmap` does, for many fits at
    once.

    Unlike `vmap`, it computes the members of the batch one after another on a CPU, so that none
    waits for a slower one, and memory is that of one member. On an accelerator it computes as many
    together as fit into memory, and all take as many steps as the slowest. Several devices share
    the members evenly. A member that fails raises for all; if the fit has `throw=False`, its values
    are NaN and it has its own status. Under `jit` and over several devices use `throw=False`: where
    a check raises on one device, the others wait for it.

    Arguments:
        function: a function of one member, such as `lambda X, y, w: kernax.kernel_ridge(kernel, X,
            y, 0.1, weights=w, throw=False)`. It may return any pytree, modules included. Define it
            once: it compiles once for each size of a batch.
        in_axes: 0, or a tuple with 0 or None for each argument; None is for an argument that all
            members share.
        batch_size: how many members each device computes together, by `vmap`. Default: 1 on a CPU;
            on an accelerator as many as fit into half of the free memory, which is estimated by
            compiling the program of one member.
        devices: the devices to spread the members over, such as `jax.devices()`, or a mesh, which
            shares the members among all its axes; either may span several processes, which all make
            the same call. The cores of a CPU are devices after
            `jax.config.update("jax_num_cpu_devices", 2)`, before anything is computed: the call
            then waits for its results, and BLAS computes on one thread for each where
            `threadpoolctl` is installed; elsewhere set `OPENBLAS_NUM_THREADS=1` before Python
            starts. Default: the device of the arguments, or the mesh that their first axis is
            spread over.
        progress: draw a bar on standard error, redrawn after every fiftieth part of the batch
            (needs `rich`; not under a transformation).

    Returns:
        A function of batches that returns results with the members along their first axis. It is
        differentiable, and may itself be transformed. Results stay on the devices that computed
        them, where these share the members evenly.

    Raises:
        ValueError: no member, arguments of different lengths, an argument without the axis that
            `in_axes` names, or members over explicit axes of a mesh.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> Y = jnp.sin(jnp.outer(jnp.array([3.0, 6.0]), X[:, 0]))  # two data sets
        >>> def fit(y):
        ...     return kernax.kernel_ridge(kernax.RBF(0.3), X, y, ridge=0.01, throw=False)
        ...
        >>> solutions = kernax.batched(fit)(Y)
        >>> solutions.value.coefficients.shape
        (2, 5)
    """
    axes = in_axes if isinstance(in_axes, tuple) else (in_axes,)
    if any(axis is not None and axis != 0 for axis in axes) or all(axis is None for axis in axes):
        raise ValueError(
            "in_axes must be 0, or a tuple with a 0 for each argument that has members along its "
            f"first axis and None for the others, but is {in_axes!r}"
        )
    if batch_size is not None:
        check_count(batch_size, "batch_size")
    chosen = _checked_devices(devices)

    @wraps(function, updated=())
    def of_batches(*args: PyTree) -> Any:
        # The arrays with members, and the function of one of them.
        of_members = in_axes if isinstance(in_axes, tuple) else (in_axes,) * len(args)
        if len(of_members) != len(args):
            raise ValueError(
                f"in_axes has {len(of_members)} entries, but there are {len(args)} arguments"
            )
        args = tuple(as_arrays(arg) for arg in args)
        has_members = tuple(
            jax.tree.map(lambda leaf, axis=axis: axis == 0 and eqx.is_array(leaf), arg)
            for arg, axis in zip(args, of_members)
        )
        members, others = eqx.partition(args, has_members)
        fit = _MemberFit(function, others)
        size = _size_of(members)
        over = chosen
        if chosen is None:
            # The mesh that the members are spread over already.
            for leaf in jax.tree.leaves(members):
                check_axes(leaf, "members")
            over = rows_over_mesh(members)
        if over is not None:
            check_mesh(over.mesh.abstract_mesh, "devices")
        layout = _Layout(batch_size or _usual_batch_size(fit, members, over), over)
        if progress:
            if not is_concrete(members, fit):
                raise ValueError(
                    "progress=True needs concrete values: leave it out under jit, grad and vmap"
                )
            return _first(size, _with_bar(fit, members, layout))
        return _first(size, _run_and_wait(fit, members, layout))

    return of_batches


def _with_bar(fit: "_MemberFit", members: PyTree, layout: "_Layout") -> Any:
    """The results of all members, piece by piece, with a bar redrawn after each piece."""
    size = _size_of(members)
    # A piece fills the batches of all devices.
    length = -(-size // _PIECES)
    of_each_device = -(-size // layout.shares)
    length += -length % (layout.shares * min(layout.batch_size, of_each_device))
    # The last member is repeated until all pieces have one length.
    places = np.pad(np.arange(size), (0, -size % length), mode="edge")
    results = []
    with bar_of("fitting", size) as show:
        for piece in places.reshape(-1, length):
            out = _run_and_wait(fit, points_at(members, piece), layout)
            results.append(eqx.partition(jax.block_until_ready(out), eqx.is_array))
            show(min(size, len(results) * length), size)
    parts, rests = zip(*results)
    joined = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *parts)
    return eqx.combine(joined, rests[0])


class _Layout(eqx.Module):
    """How many members are computed together, and the mesh they are spread over; None leaves them
    where they are.
    """

    batch_size: int = eqx.field(static=True)
    over: RowsOverMesh | None = eqx.field(static=True)

    @property
    def shares(self) -> int:
        """The number of parts that a batch is divided into."""
        return 1 if self.over is None else self.over.parts


def _checked_devices(devices: Any) -> RowsOverMesh | None:
    """The devices to spread members over. Raises ValueError for anything else."""
    if devices is None:
        return None
    if isinstance(devices, Mesh):
        return _all_axes(devices.devices, devices.axis_names)
    given = tuple(devices) if isinstance(devices, Iterable) else ()
    if not given or not all(isinstance(device, jax.Device) for device in given):
        raise ValueError(
            "devices must be a list of devices, such as jax.devices(), or a mesh, but is "
            f"{devices!r}"
        )
    return _all_axes(np.array(given), (_AXIS,))


def _all_axes(devices: np.ndarray, names: tuple[str, ...]) -> RowsOverMesh:
    """Every axis of a mesh."""
    return RowsOverMesh(Mesh(devices, names, axis_types=(AxisType.Auto,) * len(names)), names)


def _usual_batch_size(fit: "_MemberFit", members: PyTree, over: RowsOverMesh | None) -> int:
    """One on a CPU; elsewhere as many members as fit into the memory of a device."""
    mesh = None if over is None else over.mesh
    if isinstance(mesh, Mesh):
        first = mesh.local_devices[0]
    else:
        # Under a transformation, the device where JAX computes.
        leaf = jax.tree.leaves(members)[0]
        first = next(iter(leaf.devices())) if is_concrete(leaf) else jax.devices()[0]
    if first.platform == "cpu":
        return 1
    size = _members_within(int(_SHARE * available_memory([first])), fit, members)
    if not isinstance(mesh, Mesh) or not mesh.is_multi_process:
        return size
    # All processes have to run one program.
    return int(np.min(multihost_utils.process_allgather(np.asarray(size))))


class _MemberFit(eqx.Module):
    """A function of one member that joins its arguments from the arrays of the member and those
    that all members share.

    Attributes:
        function: the function of the user.
        others: the arguments, with None in place of every array of members.
    """

    function: Callable[..., Any]
    others: tuple[PyTree, ...]

    def __call__(self, member: tuple[PyTree, ...]) -> Any:
        return self.function(*eqx.combine(member, self.others))


def _size_of(members: PyTree) -> int:
    """The number of members. Raises ValueError unless it is one number >= 1."""
    shapes = [leaf.shape for leaf in jax.tree.leaves(members)]
    sizes = {shape[:1] for shape in shapes}
    if len(sizes) != 1 or sizes <= {(), (0,)}:
        shown = ", ".join(map(str, shapes)) or "no array"
        raise ValueError(
            "a batch must have the same number of members, one or more, along the first axis of "
            f"every array, but holds {shown}: in_axes=None marks arguments that all members share"
        )
    return shapes[0][0]


def _members_within(free: int, fit: _MemberFit, members: PyTree) -> int:
    """A power of two, at least one, of members that together need at most that many bytes."""
    one = points_at(members, 0)
    lowered: Any = _arrays_of_one.lower(fit, one)  # pyright: ignore[reportFunctionMemberAccess]
    memory = lowered.compile().compiled.memory_analysis()
    needed = memory.temp_size_in_bytes + memory.output_size_in_bytes + memory.argument_size_in_bytes
    together = min(max(1, free // max(1, needed)), _size_of(members))
    # Few sizes: free memory changes, and every size needs a program.
    return 1 << (together.bit_length() - 1)


@eqx.filter_jit
def _arrays_of_one(fit: _MemberFit, member: PyTree) -> PyTree:
    """The arrays of one member."""
    return eqx.filter(fit(member), eqx.is_array)


def _run_and_wait(fit: _MemberFit, members: PyTree, layout: _Layout) -> Any:
    """`_run`; of several devices of a CPU until they are ready, on one thread of BLAS for each."""
    mesh = None if layout.over is None else layout.over.mesh
    devices = mesh.local_devices if isinstance(mesh, Mesh) else ()
    on_cores = len(devices) > 1 and devices[0].platform == "cpu"
    if not on_cores or not is_concrete(members, fit):
        return _run(fit, members, layout)
    # OpenBLAS has one set of threads, for which the devices would wait in turn: 200 Gaussian
    # processes over two cores took 7.5 s instead of 1.5.
    with linear_algebra_threads(threads=1):
        return jax.block_until_ready(_run(fit, members, layout))


@eqx.filter_jit
def _run(fit: _MemberFit, members: PyTree, layout: _Layout) -> Any:
    """The results of all members, and of copies of the last one that pad the shares of devices."""
    if layout.over is None:
        arrays, rest = _on_one_device(fit, members, layout.batch_size)
    else:
        # Members are divided evenly among devices.
        missing = -_size_of(members) % layout.over.parts
        again = lambda leaf: jnp.concatenate([leaf, jnp.repeat(leaf[-1:], missing, 0)])
        shared = jax.tree.map(again, members) if missing else members
        static_parts = []  # filled while tracing

        def of_share(fit: _MemberFit, share: PyTree) -> PyTree:
            arrays, other = _on_one_device(fit, share, layout.batch_size)
            static_parts.append(other)
            return arrays

        # `on_parts` does not track variation over devices. If it did, the gradient that a member
        # takes in a value that all members share, such as the start of learning, would be summed
        # over the devices.
        arrays = on_parts(of_share, layout.over, fit, shared)
        rest = static_parts[-1]
    return eqx.combine(arrays, rest)


def _on_one_device(fit: _MemberFit, members: PyTree, batch_size: int) -> tuple[PyTree, PyTree]:
    """The results of members, computed `batch_size` at a time: the arrays, and the other leaves."""
    static_parts = []  # filled while tracing, because lax.map returns arrays only

    def arrays_of(member: PyTree) -> PyTree:
        arrays, rest = eqx.partition(fit(member), eqx.is_array)
        static_parts.append(rest)
        return arrays

    together = min(batch_size, _size_of(members))
    arrays = lax.map(arrays_of, members, batch_size=None if together == 1 else together)
    return arrays, static_parts[-1]


def _first(size: int, results: PyTree) -> PyTree:
    """The results of that many members, without those of the copies that padded a share.

    Not in the program of the members, where devices would wait for one another: if a check at run
    time raises on one of them, the others would wait for ever.
    """
    return jax.tree.map(
        lambda leaf: leaf[:size] if eqx.is_array(leaf) and len(leaf) > size else leaf, results
    )
