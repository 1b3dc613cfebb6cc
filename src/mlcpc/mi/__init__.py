"""Mutual information: tasks with a known answer, critics, and what the objectives report on them."""
