"""The core object that a kernel programs: tiles, and the operations on them as methods, from arithmetic to
transfers.
"""
