"""Checkpoints: folders from which a computation that was killed goes on, the checksums that guard
them, the arrays in them, and what identifies a call.
"""

# May import: kernax.core.base.
