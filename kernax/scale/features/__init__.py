"""Maps that approximate a kernel: Nystrom's, and random Fourier features."""

# May import: kernax.core, kernax.scale.data, kernax.scale.cluster, kernax.scale.centres.
