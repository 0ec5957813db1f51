"""Questions about kernax's speed and memory, each answered next to its peers: `python -m benchmarks
--list`.
"""
