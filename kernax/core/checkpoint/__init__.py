"""Checkpoints: folders from which a killed computation resumes, their checksums and arrays, and the
facts that identify a call.
"""

# May import: kernax.core.base.
