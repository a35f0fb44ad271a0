"""Passes that form one composite per operator, and regions of composites."""
