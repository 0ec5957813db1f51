"""Figures that papers and toolboxes report, and those of kernax under the same protocol.

`contents.py` and `rows_of_*.py` hold the rows; `machines.py`, `vectors.py`, `processes.py` and
`sequences.py` measure them; `record.py` keeps what was measured, and `page.py` writes the table.
"""
