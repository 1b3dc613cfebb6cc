"""Many runs, each a command: side by side on one machine or on a Ray cluster, retried, resumed, in order.

What a run is and what it needs to go on after a kill is its own business; here is only when and where it starts. All
that is known about a run stands in its folder (result.json: done), so a sweep that was stopped or killed is simply
started again.
"""

from mlcpc.sweep.jobs import Job, State
from mlcpc.sweep.schedule import sweep
from mlcpc.sweep.table import table, time_left

__all__ = ["Job", "State", "sweep", "table", "time_left"]
