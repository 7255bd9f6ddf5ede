"""The base of machine descriptions of all kinds: keys, hash, TOML text, and copies with changed keys."""

import json
from collections.abc import Mapping
from functools import cached_property
from hashlib import sha256
from typing import ClassVar, Self

from kernbench.common.errors import unknown
from kernbench.machine.document import document
from kernbench.machine.keys import LABEL, SHAPE, Key
from kernbench.machine.schema import Entry, KeyInfo, Table
from kernbench.result.reading import Data


class Description(Table):
    """Base of the outermost table of a machine file."""

    called: ClassVar[str] = "machine"
    """The kind's name in messages."""

    @property
    def hash(self) -> str:
        """Twelve hex digits that are equal if all keys but the name are: same results, same times."""
        return self._hash

    @cached_property
    def _hash(self) -> str:
        content = {name: key.data(value) for name, key, value in self.entries() if key.role != LABEL}
        return sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]

    def shape_key(self) -> tuple[tuple[str, object], ...]:
        """The shape keys with their values, hashable; machines with equal ones share a functional pass."""
        return tuple((name, value) for name, key, value in self.entries() if key.role == SHAPE)

    def keys(self) -> list[KeyInfo]:
        """Every key with its unit, value, allowed values, help and role, in the order of the file."""
        return [
            KeyInfo(name, key.unit, key.data(value), key.show(value), self.allowed(name, key), key.help, key.role)
            for name, key, value in self.entries()
        ]

    def to_toml(self) -> str:
        """A commented file that loads as this machine."""
        return document(self)

    def override(self, changes: Mapping[str, object]) -> Self:
        """This machine with some dotted keys changed: `{"ipcq.depth": 1, "link.bandwidth": "64 GB/s"}`."""
        if all(isinstance(self._entry(name), Key) for name in changes):
            tree: Data = {}
            for name, value in changes.items():
                *tables, last = name.split(".")
                inner = tree
                for table in tables:
                    inner = inner.setdefault(table, {})
                inner[last] = value
            made = self.changed(tree)
            if made is not None:
                return made
        # this error is reported together with all others
        return self._rebuilt(changes)

    def _entry(self, name: str) -> Entry | None:
        """The table or key of a dotted name."""
        entry: Entry | None = type(self)
        for part in name.split("."):
            entry = None if entry is None or isinstance(entry, Key) else entry.schema.get(part)
        return entry

    def _rebuilt(self, changes: Mapping[str, object]) -> Self:
        known = [name for name, _, _ in self.entries()]
        tree = self.to_dict()
        problems = [unknown(f"{self.called} key", name, known) for name in changes if name not in known]
        for name, value in changes.items():
            if name in known:
                _plant(tree, name, value)
        return type(self).build(tree, "override", problems)


def _plant(tree: Data, name: str, value: object) -> None:
    *tables, last = name.split(".")
    for table in tables:
        tree = tree[table]
    tree[last] = value
