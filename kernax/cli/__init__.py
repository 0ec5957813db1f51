"""The command line, which needs `pip install 'kernax-toolkit[cli]'`.

`import kernax` imports nothing of it.
"""
