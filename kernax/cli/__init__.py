"""The command line, which needs `pip install 'kernax-toolkit[cli]'`.

`import kernax` imports nothing of it.
"""

# May import: kernax.core, kernax.kernels, kernax.supervised, kernax.gp, kernax.sparse,
# kernax.unsupervised, kernax.online, kernax.scale, kernax.selection, kernax.metrics,
# kernax.preparation, kernax.files, kernax.plot.
