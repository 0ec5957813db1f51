"""One call that asks everything of an accelerator: `python -m benchmarks --device gpu --json FILE`,
within a given time.

`rows` says what is timed and what the CPU checks it against, `worker` measures it, `run` keeps to
the time and writes the file, `suite` runs a part of the tests on the device.
"""
