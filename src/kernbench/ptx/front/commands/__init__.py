"""The commands on PTX and on programs that launch it, one file each, imported only when used."""
