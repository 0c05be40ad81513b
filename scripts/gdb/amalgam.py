"""ULTs in gdb, in a live process or a core that the kernel wrote. x86-64 and AArch64.

    (gdb) source PREFIX/share/amalgam/gdb/amalgam.py
    (gdb) amalgam ults              every ULT: address, name, what it does
    (gdb) amalgam bt NAME|ADDRESS   the call stack of one

The parts of Amalgam that this reads have their debug information in every build, unless somebody
stripped it; functions of a program that was built without -g are shown without files and lines.
"""
import gdb
from gdb.unwinder import Unwinder, register_unwinder

# A suspended stack, from its pointer up: src/tasks/stacks/switch_x86_64.hpp, switch_aarch64.hpp.
FRAME_BYTES = 0x10
PARKED = 2  # waiter::parked
LEFT_FOR_GOOD = 8  # ult_core::left_for_good
OUTERMOST = ("amalgam_begin_stack", "amalgam::detail::dispatcher::ult_main")


class Registers:
    """Their names: of the stack and the program, and those that a suspended stack holds."""

    def __init__(self, frame):
        arm = frame.architecture().name().startswith("aarch64")
        self.sp, self.pc, base = ("sp", "pc", "x29") if arm else ("rsp", "rip", "rbp")
        self.saved = {base: 0x00, self.pc: 0x08}


def global_value(name):
    symbol = gdb.lookup_global_symbol(name) or gdb.lookup_static_symbol(name)
    if symbol is None:
        raise gdb.GdbError(f"no symbol {name}: the program does not use Amalgam, or was built without -g")
    return symbol.value()


def atomic(value):
    """What a std::atomic of libstdc++ holds."""
    names = [field.name for field in value.type.fields()]
    if "_M_b" in names:  # that of a pointer
        value, names = value["_M_b"], ["_M_p"]
    elif "_M_i" not in names:  # that of an integer
        value = value[value.type.fields()[0]]
    return value[names[0] if names[0] in ("_M_p", "_M_i") else "_M_i"]


def all_ults():
    """The cores of all ULTs that have not ended."""
    # The list may be in the middle of a change, and is walked without its lock.
    each, seen = global_value("amalgam::detail::ult_registry::first_"), set()
    while int(each) != 0 and int(each) not in seen:
        seen.add(int(each))
        gone = int(atomic(each["requests"])) & LEFT_FOR_GOOD
        if int(atomic(each["home_"])) != 0 and not gone:
            yield each
        each = each["next_known_"]


def name_of(core):
    return core["name"]["_M_elems"].string(errors="replace")


def running_ults():
    """The cores that a thread runs, each with that thread."""
    found = {}
    was = gdb.selected_thread()
    try:
        for thread in gdb.selected_inferior().threads():
            thread.switch()
            frame = gdb.newest_frame()
            sp = int(frame.read_register(Registers(frame).sp))
            for core in all_ults():
                memory = core["memory_"]
                low = int(memory["low"])
                if low <= sp < int(core):
                    found[int(core)] = thread
    finally:
        if was is not None:
            was.switch()
    return found


def state_of(core, running):
    if int(core) in running:
        return f"running in thread {running[int(core)].num}"
    at = atomic(core["waiting_on"])
    if int(at) == 0:
        return "ready"
    waiter = at.cast(gdb.lookup_type("amalgam::waiter").pointer())
    if int(atomic(waiter["state_"])) != PARKED:
        return "ready"
    return "waits for " + waiter["what_"].string(errors="replace")


class FrameId:
    def __init__(self, sp, pc):
        self.sp, self.pc = sp, pc


class SuspendedStack(Unwinder):
    """Says that the caller of a thread's newest frame is a suspended ULT: works without writing
    registers, so in cores too."""

    def __init__(self):
        super().__init__("amalgam-suspended-stack")
        self.where = None
        self.newest = None
        self.names = None

    def begin(self, frame, where):
        """From now on the caller of this frame is what is suspended there."""
        self.names = Registers(frame)
        self.newest = tuple(int(frame.read_register(name)) for name in (self.names.sp, self.names.pc))
        self.where = where
        gdb.invalidate_cached_frames()

    def end(self):
        self.where = None
        gdb.invalidate_cached_frames()

    def __call__(self, pending):
        if self.where is None:
            return None
        sp, pc = pending.read_register(self.names.sp), pending.read_register(self.names.pc)
        if (int(sp), int(pc)) != self.newest:
            return None
        caller = pending.create_unwind_info(FrameId(sp, pc))
        word = gdb.lookup_type("unsigned long")
        for register, offset in self.names.saved.items():
            at = gdb.Value(self.where + offset).cast(word.pointer())
            caller.add_saved_register(register, at.dereference())
        caller.add_saved_register(self.names.sp, gdb.Value(self.where + FRAME_BYTES))
        return caller


suspended_stack = SuspendedStack()
register_unwinder(None, suspended_stack, replace=True)


def print_suspended(core):
    suspended_stack.begin(gdb.newest_frame(), int(core["saved"]["stack"]["pointer"]))
    try:
        frame, number = gdb.newest_frame().older(), 0
        while frame is not None and frame.is_valid():
            name = frame.name()
            if (name or "").startswith(OUTERMOST):
                break
            where = frame.find_sal()
            line = f" at {where.symtab.filename}:{where.line}" if where.symtab else ""
            print(f"#{number:<2} {frame.pc():#x} in {name or '??'}{line}")
            frame, number = frame.older(), number + 1
    finally:
        suspended_stack.end()


class Amalgam(gdb.Command):
    """Looks at the ULTs of Amalgam: `amalgam ults`, `amalgam bt NAME|ADDRESS`."""

    def __init__(self):
        super().__init__("amalgam", gdb.COMMAND_STACK, prefix=True)


class Ults(gdb.Command):
    """Lists every ULT: its address, its name, and what it does."""

    def __init__(self):
        super().__init__("amalgam ults", gdb.COMMAND_STACK)

    def invoke(self, argument, from_tty):
        running = running_ults()
        for core in all_ults():
            print(f"{int(core):#x} '{name_of(core)}' {state_of(core, running)}")


class Backtrace(gdb.Command):
    """Prints the call stack of the ULTs of that name, or of the one at that address."""

    def __init__(self):
        super().__init__("amalgam bt", gdb.COMMAND_STACK)

    def invoke(self, argument, from_tty):
        wanted = argument.strip()
        if not wanted:
            raise gdb.GdbError("give the name or the address of a ULT; see: amalgam ults")
        chosen = [core for core in all_ults() if wanted in (name_of(core), hex(int(core)))]
        if not chosen:
            raise gdb.GdbError(f"no ULT has the name or the address '{wanted}'; see: amalgam ults")
        running = running_ults()
        for core in chosen:
            print(f"ULT {int(core):#x} '{name_of(core)}' {state_of(core, running)}")
            if int(core) not in running:
                print_suspended(core)
                continue
            was = gdb.selected_thread()
            try:
                running[int(core)].switch()
                gdb.execute("bt")
            finally:
                was.switch()


Amalgam()
Ults()
Backtrace()
