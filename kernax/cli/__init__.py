"""The command line. Needs `pip install 'kernax-toolkit[cli]'`; nothing here is imported by `import kernax`."""
