"""Machine code: LLVM compiles a module's IR, and the object file is loaded and called."""

import ctypes
from collections.abc import Callable
from functools import cache

from llvmlite import binding as llvm

from kernbench.common.native.entry import address_of

Code = Callable[..., object]
_FASTCALL = 0x0080


class _Method(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("about", ctypes.c_char_p),
    )


@cache
def _machine() -> "llvm.TargetMachine":
    return _made_machine(2)


@cache
def _quick_machine() -> "llvm.TargetMachine":
    return _made_machine(0)


def _made_machine(level: int) -> "llvm.TargetMachine":
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    features = llvm.get_host_cpu_features().flatten()
    return target.create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=features, opt=level, reloc="pic", codemodel="jitdefault", jit=True
    )


def pointers_are_plain() -> bool:
    """Whether LLVM has opaque pointers, which our IR uses: from version 15 on."""
    return bool(llvm.llvm_version_info >= (15,))


@cache
def machine_name() -> str:
    """The target of the machine code: triple, processor and features."""
    return f"{llvm.get_process_triple()} {llvm.get_host_cpu_name()} {llvm.get_host_cpu_features().flatten()}"


@cache
def _linker() -> "llvm.LLJIT":
    """The linker that loads object files: JITLink.

    LLVM's older loader (RuntimeDyld) allocates code and data pages separately, wherever the system has some. Code
    reaches its data only within 4 GiB on 64-bit ARM and 2 GiB on x86-64. If the pages are further apart, for example
    around address space reserved for an emulated device, that loader aborts the process. JITLink allocates one range of
    addresses for everything that is loaded together.
    """
    return llvm.create_lljit_compiler(_machine(), use_jit_link=True)


def translated(text: str, beside: str = "", entry: str = "", vectorised: bool = False, optimised: bool = True) -> bytes:
    """Compile a module's IR to an object file; `beside` is another module whose functions it calls.

    With `beside`, only the entry and its table are exported, and unused functions are dropped. Short code that is
    already written as it should run need not be `optimised`, which takes half of the time.

    Loops are vectorised only on request (for rows of registers). Loops over lanes gather and scatter, and their inner
    loops, over the rows of a vector, mostly have one iteration: vectorising makes loads of checked launches a fifth
    slower.
    """
    module = _parsed(text)
    if beside:
        module.link_in(llvm.parse_assembly(beside))
        seen = {entry, f"table.{entry}"}
        for value in (*module.functions, *module.global_variables):
            if not value.is_declaration and value.name not in seen:
                value.linkage = "internal"
    if optimised:
        options = llvm.create_pipeline_tuning_options(speed_level=2)
        options.loop_vectorization = vectorised
        options.slp_vectorization = vectorised
        builder = llvm.create_pass_builder(_machine(), options)
        builder.getModulePassManager().run(module, builder)
    code: bytes = _machine().emit_object(module)
    return code


def quickly_translated(text: str) -> bytes:
    """Compile a module's IR in a sixth of the time, to code that takes several times as long, with the same results.

    Only SROA and CFG simplification run, which takes less time than they save in code generation.
    """
    module = _parsed(text)
    builder = llvm.create_pass_builder(_quick_machine(), llvm.create_pipeline_tuning_options(speed_level=0))
    passes = llvm.create_new_module_pass_manager()
    passes.add_sroa_pass()
    passes.add_simplify_cfg_pass()
    passes.run(module, builder)
    code: bytes = _quick_machine().emit_object(module)
    return code


def _parsed(text: str) -> "llvm.ModuleRef":
    module = llvm.parse_assembly(text)
    module.triple = llvm.get_process_triple()
    module.data_layout = str(_machine().target_data)
    return module


def loaded(code: bytes, name: str, table: list[str], kept_as: str = "") -> Code:
    """Load an object file, fill in its table, and return its entry as a function for Python.

    `kept_as` is the name of its cache file, if that is not the entry's name.
    """
    known = kept_as or name
    if known in _LOADED:
        return _LOADED[known]
    library = llvm.JITLibraryBuilder().add_object_img(code).export_symbol(name).export_symbol(f"table.{name}")
    linked = library.link(_linker(), known)
    _LINKED.append(linked)
    slots = linked[f"table.{name}"]
    (ctypes.c_void_p * max(len(table), 1)).from_address(slots)[: len(table)] = [address_of(entry) for entry in table]
    # the function object reads the method definition when it is freed, perhaps after this module's globals: never free
    # it
    method = _Method(name.encode(), linked[name], _FASTCALL, None)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(method))
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype, make.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
    _LOADED[known] = make(ctypes.addressof(method), None, None)
    return _LOADED[known]


def located(codes: dict[str, bytes]) -> dict[str, int]:
    """Addresses of functions that only machine code calls; each object file exports one, by its name."""
    missing = [name for name in codes if name not in _LOCATED]
    if missing:
        library = llvm.JITLibraryBuilder()
        for name in missing:
            library.add_object_img(codes[name])
            library.export_symbol(name)
        linked = library.link(_linker(), f"with {missing[0]}")
        _LINKED.append(linked)
        _LOCATED.update((name, linked[name]) for name in missing)
    return {name: _LOCATED[name] for name in codes}


_LOADED: dict[str, Code] = {}
_LOCATED: dict[str, int] = {}
# a tracker keeps its machine code alive
_LINKED: "list[llvm.ResourceTracker]" = []
