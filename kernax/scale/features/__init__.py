"""Feature maps that approximate a kernel: the Nystrom method, and random Fourier features."""

# May import: kernax.core, kernax.scale.data, kernax.scale.cluster, kernax.scale.centres.
