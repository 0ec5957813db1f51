"""Machines that keep few of the points."""
