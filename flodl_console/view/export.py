"""The rank table and the windows as CSV and JSON, for a file or a clipboard.

What it is: pure text of the facts as the run gave them, with units in the names.
What it is not: what is on screen; nothing is rounded, sorted or left out.
Who drives it: the app's export action.
"""
