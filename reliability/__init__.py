"""Campaigns that try to break mlcpc: kills, faults, hostile files, hard numbers, long use. Outside the library.

    python -m reliability [NAME] [--minutes M]     crash, faults, hostile, numerics, soak; all of them without a name

Each writes what it found to <out>/<name>.json with date, commit and machine; docs/reliability.md tells the figures.
"""
