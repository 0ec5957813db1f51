"""What a step of a fit over a mesh costs on accelerators, on paper: arithmetic, memory, links."""

from collections.abc import Iterator
from dataclasses import dataclass

# NVIDIA H100 SXM5 datasheet: dense FP32 outside of tensor cores, HBM3, and its size.
FLOPS = 67e12
MEMORY_RATE = 3.35e12  # bytes a second
MEMORY = 80e9
# The same: NVLink 4, 900 GB/s in both directions together.
LINK_IN_HOST = 450e9
# One port of NDR InfiniBand, 400 Gbit/s, for each accelerator (NVIDIA DGX H100 datasheet).
LINK_BETWEEN_HOSTS = 50e9
IN_HOST = 8
# A collective between hosts, from the first byte to the last: an assumption, of the order that
# latencies of InfiniBand (a microsecond a hop) and of launching a kernel (ten) add up to.
LATENCY = 50e-6
FLOAT = 4  # bytes: all in float32

DIM = 10
OUTPUTS = 1
# Of an entry of a Gram matrix: the distance, two operations a coordinate, and an exponential, taken
# as twenty.
OF_ENTRY = 2 * DIM + 20
# Of an entry that is not kept in registers: written once, read by each of two products.
TRAFFIC_OF_ENTRY = 3 * FLOAT
MATRICES = 8.3  # m x m numbers that `falkon` holds (kernax.core.operators.memory)
OF_FACTORS = 6  # m^3 operations: three factorisations, and solves with m columns
HELD_OF_FEATURES = 5.8  # n x D numbers of a QR in float32 (kernax.scale.recommendation)
# The part of one pass over the Gram matrix of a circle whose tiles serve rows and columns.
OF_CIRCLE = 0.5


@dataclass(frozen=True)
class Step:
    """One step of a fit on each of p devices.

    Attributes:
        operations: of floats.
        traffic: bytes read and written in its own memory.
        passed_on: bytes that it sends.
        collectives: how many there are one after the other.
        held: bytes.
    """

    operations: float
    traffic: float
    passed_on: float
    collectives: float
    held: float

    def seconds(self, p: int) -> dict[str, float]:
        """By each of the terms; the largest is the time where all of them overlap."""
        link = LINK_IN_HOST if p <= IN_HOST else LINK_BETWEEN_HOSTS
        latency = self.collectives * LATENCY if p > 1 else 0.0
        return {
            "arithmetic": self.operations / FLOPS,
            "memory": self.traffic / MEMORY_RATE,
            "links": self.passed_on / link + latency,
        }


def all_reduced(size: float, p: int) -> float:
    """Bytes that each of p devices sends for the sum of arrays of that many bytes, in a circle."""
    return 2 * (p - 1) / p * size


def product_with_gram(n: float, p: int) -> Step:
    """`K v` by blocks that are passed along a circle (`kernax.core.operators.mesh_gram`)."""
    entries = OF_CIRCLE * n**2 / p
    block = n / p * FLOAT * (DIM + 2 * OUTPUTS)
    hops = p // 2
    return Step(
        entries * (OF_ENTRY + 4 * OUTPUTS),
        entries * TRAFFIC_OF_ENTRY,
        hops * block,
        hops,
        3 * block,
    )


def sum_over_centres(n: float, m: float, p: int) -> Step:
    """A product of `falkon` with the Hessian: `K_nm^T W K_nm v`."""
    entries = n * m / p
    return Step(
        entries * (OF_ENTRY + 4 * OUTPUTS),
        entries * TRAFFIC_OF_ENTRY,
        all_reduced(m * OUTPUTS * FLOAT, p),
        1,
        n / p * FLOAT * (DIM + 4) + MATRICES * m**2 * FLOAT,
    )


def factors_over_centres(n: float, m: float, p: int) -> Step:
    """What `falkon` does once: the Hessian of 16 m rows, and the factors, which each device makes
    alike.
    """
    sample = 16 * m / p
    return Step(
        2 * 2 * sample * m**2 + OF_FACTORS * m**3,
        FLOAT * (3 * sample * m + 2 * OF_FACTORS * m**2),
        all_reduced(m**2 * FLOAT, p),
        1,
        n / p * FLOAT * (DIM + 4) + MATRICES * m**2 * FLOAT,
    )


def held_features(n: float, features: float, p: int) -> Step:
    """A ridge in features that are held, whose factor is one QR on each device and one of what
    these leave.
    """
    return Step(
        4 * n / p * features**2 + 4 * p * features**3,
        2 * HELD_OF_FEATURES * FLOAT * n / p * features,
        (p - 1) * features**2 * FLOAT,
        1,
        HELD_OF_FEATURES * FLOAT * n / p * features + p * features**2 * FLOAT,
    )


SIZES = ((1e6, 1), (1e7, 8), (1e8, 64))
STEPS = {
    "a product with K": product_with_gram,
    "a product of `falkon`, 2000 centres": lambda n, p: sum_over_centres(n, 2e3, p),
    "a product of `falkon`, 20 000 centres": lambda n, p: sum_over_centres(n, 2e4, p),
    "the factors of `falkon`, 20 000 centres": lambda n, p: factors_over_centres(n, 2e4, p),
    "`kernel_ridge`, 5000 stored features": lambda n, p: held_features(n, 5e3, p),
}


def sections() -> Iterator[str]:
    """The model as Markdown: a table, and what breaks first."""
    yield "## On paper: to 1e8 points on 64 accelerators"
    yield ""
    yield (
        f"Float32, d = {DIM}, one output. An accelerator has {FLOPS / 1e12:.0f} TFLOP/s, "
        f"{MEMORY_RATE / 1e12:.2f} TB/s of {MEMORY / 1e9:.0f} GB, {LINK_IN_HOST / 1e9:.0f} GB/s to "
        f"the others of its host ({IN_HOST} in all), and {LINK_BETWEEN_HOSTS / 1e9:.0f} GB/s to "
        "other hosts. `benchmarks/cost_model.py` has the sources, and the operations that each "
        "term counts. The table gives the seconds of each term. The largest of them is a lower "
        "bound of the time (the roofline)."
    )
    yield ""
    yield "| step | points | devices | arithmetic | memory | links | bound by | memory each, GB |"
    yield "|---|---|---|---|---|---|---|---|"
    for name, step_of in STEPS.items():
        for n, p in SIZES:
            yield _line(name, n, p, step_of(n, p))
    yield ""
    yield from _what_breaks()


def _line(name: str, n: float, p: int, step: Step) -> str:
    terms = step.seconds(p)
    worst = max(terms, key=lambda term: terms[term])
    fits = "" if step.held <= MEMORY else ", **does not fit**"
    times = " | ".join(f"{seconds:.3g}" for seconds in terms.values())
    return f"| {name} | {n:.0e} | {p} | {times} | {worst} | {step.held / 1e9:.3g}{fits} |"


def _what_breaks() -> Iterator[str]:
    """In words, with the sizes at which it happens."""
    n, p = SIZES[-1]
    most_centres = (MEMORY / (MATRICES * FLOAT)) ** 0.5
    even = n / p * (OF_ENTRY + 4 * OUTPUTS)  # operations of a product, for each centre
    as_long = (even / OF_FACTORS) ** 0.5
    product = product_with_gram(n, p).seconds(p)
    most_features = MEMORY / (HELD_OF_FEATURES * FLOAT * n / p)
    yield "The limits, at 1e8 points on 64 devices:"
    yield ""
    yield (
        f"- **Products with K** by n^2: {max(product.values()):.0f} s each, a hundred steps of "
        f"conjugate gradients {max(product.values()) / 36:.1f} hours, and the arithmetic alone "
        f"{product['arithmetic'] / 36:.1f}, if tiles never left the chip. The exchange of blocks "
        f"takes {product['links']:.2g} s, so that the speed grows with the number of devices."
    )
    yield (
        "- **falkon** by the work that every device repeats: its m x m matrices fill the memory of "
        f"a device at {most_centres:.0f} centres, whatever the number of devices, and the "
        f"arithmetic of its factors exceeds that of a product from {as_long:.0f} centres on. A "
        "product is bound by writing and reading tiles of K_nm, because XLA does not keep them in "
        "registers; the exchange of sums is bound by latency."
    )
    yield (
        f"- **Stored features** by memory: {most_features:.0f} of them fill each device. `falkon` "
        "without centres stores none, and has the limits above."
    )
