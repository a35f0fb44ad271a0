"""Passes over Relax modules: graph in, graph out. (Relay, which gave this package its name, is gone from TVM.)"""
