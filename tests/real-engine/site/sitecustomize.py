"""Read by every Python process of an engine, because serve.sh puts this folder on its path.

vLLM's processes wait for each other by calling sched_yield in a loop. Linux 6.18 makes a task that yields pay for it in virtual time: one that does nothing else has
gone so far ahead after a second that it was not run for half a minute, as long as anything else wanted the core (seen on two cores, with NIXL's threads, which never
sleep). A short sleep waits as well, and leaves the core to the others.
"""
import os
import time

os.sched_yield = lambda: time.sleep(0.0002)
