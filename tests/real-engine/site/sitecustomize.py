"""Read by every Python process of an engine, because serve.sh puts this folder on its path.

vLLM's processes wait for each other by calling sched_yield in a loop. On Linux 6.18 with two cores, engines that did so beside NIXL's threads, which never sleep, stood
still for half a minute at a time; with a short sleep in its place they never did. That the kernel makes a task pay for yielding is what we suspect, and have not proven.
"""
import os
import time

os.sched_yield = lambda: time.sleep(0.0002)
