"""Parameters, pointers, arrays in every space, loads and stores."""

from collections.abc import Sequence
from math import prod
from typing import Unpack

from kernbench.common.errors import unknown
from kernbench.ptx.builder.issuing.issue import Issuer
from kernbench.ptx.builder.values.banks import agrees, memory_type, scalar, variable_type
from kernbench.ptx.builder.values.numbers import immediate, needs_register
from kernbench.ptx.builder.values.options import Accessing, Condition, Number, Registers, Targets, Value, Values, Where
from kernbench.ptx.builder.values.pointer import Location, Pointer, location_of
from kernbench.ptx.builder.values.values import Register
from kernbench.ptx.text.module import Address, Initial, Instruction, Name, Variable

__kernbench_internal__ = True

DYNAMIC_SHARED = "dynamic_shared"
BLOCK_SHARED = "shared_memory"
# modifiers of accesses: slots of the table
_ACCESS = frozenset(("sem", "scope", "cop", "nc", "l1", "l2", "fetch", "mmio"))


class Memory(Issuer):
    """Parameters, variables, loads and stores."""

    # Parameters

    def param(self, name: str, type: str | None = None, *, offset: int = 0) -> Register:
        """The value of a parameter; `type` and `offset` (in bytes) select a part of an array parameter."""
        variable = self._parameter(name)
        if type is None and variable.dims:
            raise self.error(f"parameter {name!r} is an array: say which type= to load, and its offset= in bytes")
        type = type or variable.type
        if offset + scalar(type).nbytes > (variable.size or 0):
            raise self.error(f"{type} at byte {offset} reaches past parameter {name!r} of {variable.size} bytes")
        location = Location(name, offset, (), type, "param")
        return self.issue("ld", {"space": "param", "type": memory_type(type)}, (location,), keep=type)  # type: ignore[no-any-return]

    def _parameter(self, name: str) -> Variable:
        known = {variable.name: variable for variable in self.body.params}
        if name not in known:
            raise self.error(unknown("parameter", name, known))
        return known[name]

    def pointer(self, source: str | Register, type: str, space: str = "global") -> Pointer:
        """A pointer from a parameter or a 64-bit register that holds a generic address; `space` "" keeps it generic."""
        scalar(type)
        base = self.param(source) if isinstance(source, str) else self.needs_register("pointer", source)
        if base.type not in ("u64", "b64", "s64"):
            raise self.error(f"{source!r} is {base.type}, and an address has 64 bits")
        name = source if isinstance(source, str) else ""
        return Pointer(self.cvta(base, space) if space else base, type, space, 0, name)  # type: ignore[attr-defined]

    def element_address(self, base: Register, index: Register, nbytes: int, out: Register | None = None) -> Register:
        """base + index * nbytes, for an index of any integer type."""
        wide, index_bits = scalar(base.type).bits == 64, scalar(index.type).bits
        if index_bits < 32 or (index_bits == 64 and not wide):
            index = index.to(f"{index.kind}32")
            index_bits = 32
        part = "wide" if wide and index_bits == 32 else "lo"
        made: Register = self.issue("mad", {"part": part, "type": index.type}, (index, nbytes, base), out=out)
        if out is None:
            made.type = base.type
        return made

    # Arrays

    def shared(self, type: str, count: int | Sequence[int], *, align: int = 16, name: str = "shared") -> Pointer:
        """An array in the block's shared memory."""
        return self._array("shared", type, count, align, name, "u32")

    def local(self, type: str, count: int | Sequence[int], *, align: int = 16, name: str = "local") -> Pointer:
        """A local array of each thread."""
        return self._array("local", type, count, align, name, "u64")

    def _array(self, space: str, type: str, count: int | Sequence[int], align: int, name: str, base: str) -> Pointer:
        dims = self._dims(count)
        variable = Variable(space, variable_type(type), self.body.unique(name), dims, self._alignment(type, align))
        self.body.variables[variable.name] = variable
        return self._pointer_to(variable.name, type, space, base)

    def dynamic_shared(self, type: str = "b8", *, align: int = 16, offset: int = 0) -> Pointer:
        """The dynamic shared memory (`shared_bytes` of a launch), from byte `offset` on."""
        known = self.body.module_variables.get(DYNAMIC_SHARED)
        align = max(self._alignment(type, align), (known.alignment or 1) if known else 1)
        variable = Variable("shared", "b8", DYNAMIC_SHARED, (None,), align, linkage="extern")
        self.body.module_variables[DYNAMIC_SHARED] = variable
        return self._pointer_to(DYNAMIC_SHARED, type, "shared", "u32").shifted(offset)

    def shared_memory(self, type: str = "b8", *, offset: int = 0) -> Pointer:
        """The shared memory declared with `PtxKernel.shared_memory(bytes)`, from byte `offset` on."""
        variable = self.body.variables.get(BLOCK_SHARED)
        if variable is None:
            raise self.error(f"'{self.body.name}' has no shared memory: declare it with .shared_memory(bytes)")
        if not 0 <= offset < (variable.size or 0):
            raise self.error(f"byte {offset} lies outside the {variable.size} bytes of shared memory")
        return self._pointer_to(BLOCK_SHARED, type, "shared", "u32").shifted(offset)

    def constant(self, type: str, values: Sequence[Number], *, name: str = "constant") -> Pointer:
        """A table of numbers in constant memory."""
        return self._module_array("const", type, len(values), tuple(immediate(value, type) for value in values), name)

    def global_array(
        self, type: str, count: int | Sequence[int], values: Sequence[Number] | None = None, *, name: str = "global"
    ) -> Pointer:
        """A module-scope array in global memory, zero-initialised unless values are given."""
        initial = None if values is None else tuple(immediate(value, type) for value in values)
        return self._module_array("global", type, count, initial, name)

    def _module_array(
        self, space: str, type: str, count: int | Sequence[int], initial: tuple[Initial, ...] | None, stem: str
    ) -> Pointer:
        name = self.body.unique(f"{self.body.name}_{stem}")
        dims = self._dims(count)
        if initial is not None and len(initial) > prod(dims):
            raise self.error(f"{len(initial)} values do not fit an array of {prod(dims)}")
        variable = Variable(space, variable_type(type), name, dims, self._alignment(type, 16), initial=initial)
        self.body.module_variables[name] = variable
        return self._pointer_to(name, type, space, "u64")

    def _pointer_to(self, symbol: str, type: str, space: str, base: str) -> Pointer:
        register = self.reg(base)
        self.move(register, Name(symbol), (), base)
        self.body.bases[register.name] = symbol
        return Pointer(register, type, space, 0, symbol)

    def _dims(self, count: int | Sequence[int]) -> tuple[int, ...]:
        dims = tuple(count) if isinstance(count, (tuple, list)) else (count,)
        if not dims or any(not isinstance(n, int) or n < 1 for n in dims):
            raise self.error(f"an array has a positive number of elements; got {count!r}")
        return (prod(dims),)

    def _alignment(self, type: str, align: int) -> int:
        if not isinstance(align, int) or align < 1 or align & (align - 1):
            raise self.error(f"align={align}: an alignment is a power of two")
        return max(align, scalar(type).nbytes)

    # Loads and stores

    def location_and_type(self, where: Where, index: Value | None, type: str | None) -> tuple[Location, str]:
        """The location of an access, and the type of its elements."""
        if index is not None:
            if not isinstance(where, Pointer):
                raise self.error(f"{where!r} has no elements to index: make a pointer with ctx.pointer")
            where = where[index]
        location = location_of(where)
        if location is None:
            raise self.error(f"{where!r} is no location in memory: give a pointer, one of its elements, or an address")
        narrow = isinstance(location.base, Register) and scalar(location.base.type).bits < 64
        if narrow and not location.space:
            raise self.error(
                f"{location.base!r} is no generic address, which has 64 bits: make a pointer with ctx.shared, or "
                "ctx.pointer(address, type, space)"
            )
        found = type or location.type
        if not found:
            raise self.error("the type of what lies at this address is not known: say type=")
        scalar(found)
        return location, found

    def _slots(
        self, location: Location, type: str, vec: int, how: Accessing
    ) -> tuple[dict[str, object], tuple[Value, ...]]:
        """Modifiers of an access by slot, and its cache policy as a further operand."""
        policy = how.pop("policy", None)
        strange = next((name for name in how if name not in _ACCESS), None)
        if strange is not None:
            raise self.error(unknown("option of an access", strange, sorted({*_ACCESS, "policy"})))
        slots: dict[str, object] = {**how, "space": location.space or None, "type": memory_type(type)}
        if vec != 1:
            slots["vec"] = f"v{vec}"
        if policy is not None:
            slots["hint"] = "L2::cache_hint"
        return slots, () if policy is None else (policy,)

    def load(
        self,
        where: Where,
        index: Value | None = None,
        *,
        type: str | None = None,
        vec: int = 1,
        mask: Condition | None = None,
        other: Values | None = None,
        out: Targets = None,
        **how: Unpack[Accessing],
    ) -> Registers:
        """Load from a pointer, one of its elements, or an address: a register, or a tuple of `vec` of them.

        With a `mask`, threads that do not load get the value `other` (or keep that of `out`). `cop`, `nc`, `sem`,
        `scope`, `l1`, `l2`, `fetch` and `policy` are modifiers of the access.
        """
        location, found = self.location_and_type(where, index, type)
        slots, policy = self._slots(location, found, vec, how)
        if mask is not None:
            out = self._masked(found, vec, other, out)
        elif other is not None:
            raise self.error("other= is the value of masked threads, and there is no mask=")
        return self.issue("ld", slots, (location, *policy), out=out, pred=mask, keep=found)

    def _masked(self, type: str, vec: int, other: Values | None, out: Targets) -> Targets:
        """Registers initialised for a masked load."""
        if other is None:
            if out is None:
                raise self.error(
                    "a masked load needs other=, the value of threads that do not load, or out=, registers with one"
                )
            return out
        outs: Sequence[Register | None]
        if out is None:
            outs = tuple(self.reg(type) for _ in range(vec))
        else:
            outs = (out,) if isinstance(out, Register) else out
        others = other if isinstance(other, (tuple, list)) else (other,) * vec
        if len(others) != vec:
            raise self.error(f"other= has {len(others)} values for {vec} registers")
        for register, value in zip(outs, others, strict=True):
            if register is not None:
                register.set(value)
        return outs if vec > 1 else outs[0]

    def store(
        self,
        where: Where,
        value: Values,
        index: Value | None = None,
        *,
        type: str | None = None,
        mask: Condition | None = None,
        **how: Unpack[Accessing],
    ) -> None:
        """Store a value, or a vector as a tuple, at a pointer, one of its elements, or an address."""
        location, found = self.location_and_type(where, index, type or _type_of(where, value))
        values = tuple(value) if isinstance(value, (tuple, list)) else (value,)
        values = tuple(self._stored(found, one) for one in values)
        slots, policy = self._slots(location, found, len(values), how)
        self.issue("st", slots, (location, values[0] if len(values) == 1 else values, *policy), pred=mask)

    def _stored(self, type: str, value: Value) -> Value:
        if isinstance(value, Register):
            if not agrees(type, value.type, wider=scalar(type).bits < 16):
                raise self.error(f"store: the value is {value!r}, and {type} lies there: convert it with .to({type!r})")
            return value
        return self.const(value, type) if needs_register(type) else value

    def store_param(self, name: str, value: Value, type: str, offset: int = 0) -> None:
        """Store a parameter or result of a call."""
        slots = {"space": "param", "type": memory_type(type)}
        self.issue("st", slots, (Location(name, offset, (), type, "param"), self._stored(type, value)))

    def load_param(self, name: str, type: str, offset: int = 0) -> Register:
        """Load a parameter or result of a call."""
        made = self.reg(type)
        source = Address(Name(name), offset)
        self._append(Instruction("ld", ("param", memory_type(type)), (Name(made.name), source)), (), [made])
        return made

    def prefetch(self, where: Where, level: str = "L1", *, pred: Condition | None = None) -> None:
        """Prefetch a line of global or local memory to "L1" or "L2"."""
        location, _ = self.location_and_type(where, None, "b8")
        self.issue("prefetch", {"space": location.space or None, "level": level}, (location,), pred=pred)


def _type_of(where: Where, value: Values) -> str | None:
    """The type of a stored value, if its destination does not determine it."""
    first = value[0] if isinstance(value, (tuple, list)) and value else value
    location = location_of(where)
    known = isinstance(where, Pointer) or (location is not None and location.type)
    return first.type if isinstance(first, Register) and not known else None
