"""Collects the tasks of whole zoos of networks, in several sizes, and tunes the most useful ones before anybody asks.

Files: collector.py (takes networks in, in a process of their own), usefulness.py (pure: which task is worth trials),
filler.py (tunes the most useful tasks for some time, or while nothing else is to do).
"""
