"""What takes in PTX that comes as files, and the commands on it (`kernbench ptx`).

The front of a target may see what commands see (benches, reports, the console); nothing imports it: the registry names
its modules.
"""
