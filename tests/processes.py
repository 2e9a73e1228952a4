"""Processes that tests look for: any of them may end while it is looked at."""

from __future__ import annotations

import psutil


def command_of(process: psutil.Process) -> list[str]:
    """Its command line; empty where it has ended, whether its parent knows yet or not."""
    try:
        return process.cmdline()
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return []


def children_of(process: psutil.Process, *, recursive: bool = True) -> list[psutil.Process]:
    """What it started and what has not ended."""
    try:
        found = process.children(recursive=recursive)
    except psutil.NoSuchProcess:
        return []
    return [child for child in found if is_alive(child)]


def children_running(
    program: str, parent: psutil.Process | None = None, *, recursive: bool = True
) -> list[psutil.Process]:
    """Children of ``parent``, or of this process, that have ``program`` among their arguments."""
    found = children_of(parent or psutil.Process(), recursive=recursive)
    return [child for child in found if program in command_of(child)]


def is_alive(process: psutil.Process) -> bool:
    """Whether it runs: one that has ended and was not waited for does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
