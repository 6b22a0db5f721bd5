"""What a tree means before it runs: types of nodes, overloads of calls, checks of literals."""
