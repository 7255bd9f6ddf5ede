// The program in which compiled kernels run. It loads a kernel's library, calls it with the arguments it is given, and
// sends what the kernel does as records; where the kernel reads a value it waits for the answer. The other side executes
// the operations. A kernel that crashes takes only this process with it, and the last record says where.
//
// Kernels are compiled with the hooks of a thread sanitizer (its calls, not its library): the compiler calls
// __tsan_readN / __tsan_writeN before each access to memory. Accesses to device memory, which is a reserved range of
// addresses, become records; all others pass.
#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>
#include <unordered_map>
#include <vector>

#include "intrinsic.h"
#include "kernbench/machine.h"
#include "tensor.h"

namespace {

constexpr uint64_t kDeviceBytes = 1ull << 38;
constexpr size_t kMostArguments = 50;
int commands = -1, records = -1, places = -1;
char *device = nullptr;
uint64_t page_bytes = 4096;

// Records that have not been sent

constexpr size_t kRoom = 1 << 16;
char buffer[kRoom];
size_t used = 0;

void write_all(const char *from, size_t count) {
    while (count) {
        const ssize_t done = write(records, from, count);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) _exit(3);
        from += done, count -= static_cast<size_t>(done);
    }
}

void read_all(void *into, size_t count) {
    char *at = static_cast<char *>(into);
    while (count) {
        const ssize_t done = read(commands, at, count);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) _exit(0);
        at += done, count -= static_cast<size_t>(done);
    }
}

void flush() {
    write_all(buffer, used);
    used = 0;
}

// a record: its size, its kind, the number of its name, its source location, its payload
struct Head {
    uint32_t size;
    uint16_t kind, name;
    uint32_t site;
};
enum Kind : uint16_t { kOperation, kQuestion, kName, kSite, kEnded, kCrashed, kLoaded, kFailed, kHello };

void put(Kind kind, uint16_t name, uint32_t site, const void *payload, uint32_t size) {
    const Head head{static_cast<uint32_t>(sizeof(Head) + size), kind, name, site};
    if (used + head.size > kRoom) flush();
    if (head.size > kRoom) {
        write_all(reinterpret_cast<const char *>(&head), sizeof head);
        write_all(static_cast<const char *>(payload), size);
        return;
    }
    std::memcpy(buffer + used, &head, sizeof head);
    if (size) std::memcpy(buffer + used + sizeof head, payload, size);
    used += head.size;
}

// Names and source locations have numbers, made known when they are met for the first time

std::unordered_map<const void *, uint16_t> names;
uint16_t name_number(const char *name) {
    const auto found = names.find(name);
    if (found != names.end()) return found->second;
    const auto number = static_cast<uint16_t>(names.size());
    names.emplace(name, number);
    put(kName, number, 0, name, static_cast<uint32_t>(std::strlen(name)));
    return number;
}

struct Spot {
    const char *file, *function;
    int line;
    bool operator==(const Spot &o) const { return file == o.file && function == o.function && line == o.line; }
};
struct SpotHash {
    size_t operator()(const Spot &s) const {
        return reinterpret_cast<size_t>(s.file) * 31 + reinterpret_cast<size_t>(s.function) * 17 + static_cast<size_t>(s.line);
    }
};
std::unordered_map<Spot, uint32_t, SpotHash> sites;
uint32_t last_site = 0;

// A write to device memory is announced before it happens: its value is read at the next event

struct {
    char *address = nullptr;
    uint32_t size = 0;
    uint64_t pc = 0;
} pending;

struct Access {
    uint64_t offset, size, pc;
    char value[16];
};

uint64_t relative(uint64_t pc) {
    Dl_info info;
    return dladdr(reinterpret_cast<void *>(pc), &info) ? pc - reinterpret_cast<uint64_t>(info.dli_fbase) : pc;
}

// libraries of kernels, by number
std::vector<void *> libraries;
std::vector<std::string> paths;

bool in_kernel(void *pc) {
    Dl_info info;
    if (!dladdr(pc, &info)) return false;
    for (const std::string &path : paths)
        if (path == info.dli_fname) return true;
    return false;
}

// Where the kernel is, innermost first: at `pc`, or where that is in a library that it calls, at its own calls there
constexpr int kDepth = 8;
struct SourceLocation {
    uint64_t at[kDepth];
};
SourceLocation kernel_location(uint64_t pc) {
    SourceLocation location{};
    void *frames[64];
    int found = 0;
    if (pc && in_kernel(reinterpret_cast<void *>(pc))) location.at[found++] = relative(pc);
    const int count = backtrace(frames, 64);
    for (int i = 0; i < count && found < kDepth; ++i)
        if (reinterpret_cast<uint64_t>(frames[i]) != pc && in_kernel(frames[i]))
            location.at[found++] = relative(reinterpret_cast<uint64_t>(frames[i])) - 1;
    return location;
}

void settle_write() {
    if (!pending.address) return;
    Access access{static_cast<uint64_t>(pending.address - device), pending.size, relative(pending.pc), {}};
    std::memcpy(access.value, pending.address, pending.size);
    pending.address = nullptr;
    put(kOperation, name_number("gm_write"), last_site, &access, sizeof access);
}

bool in_device(const void *address) {
    return static_cast<uint64_t>(static_cast<const char *>(address) - device) < kDeviceBytes;
}

void open_page(char *address, uint32_t size) {
    static char *last = nullptr;
    char *first = device + (static_cast<uint64_t>(address - device) & ~(page_bytes - 1));
    if (first == last && address + size <= first + page_bytes) return;
    last = first;
    for (char *page = first; page < address + size; page += page_bytes) mprotect(page, page_bytes, PROT_READ | PROT_WRITE);
}

void device_read(void *address, uint32_t size, uint64_t pc) {
    settle_write();
    if (size > 16) size = 16;
    char *at = static_cast<char *>(address);
    open_page(at, size);
    Access access{static_cast<uint64_t>(at - device), size, relative(pc), {}};
    kb_ask("gm_read", last_site, &access, sizeof access, access.value, 16);
    std::memcpy(at, access.value, size);
}

void device_write(void *address, uint32_t size, uint64_t pc) {
    settle_write();
    if (size > 16) size = 16;
    open_page(static_cast<char *>(address), size);
    pending.address = static_cast<char *>(address), pending.size = size, pending.pc = pc;
}

// A block of memory: each piece of it in device memory is an access of its own, at the line that has it moved

constexpr uint32_t kPiece = 16;

void read_block(const void *address, size_t size, uint64_t pc) {
    char *at = const_cast<char *>(static_cast<const char *>(address));
    for (size_t done = 0; in_device(at) && done < size; done += kPiece)
        device_read(at + done, size - done < kPiece ? static_cast<uint32_t>(size - done) : kPiece, pc);
}

// what is written is known: each piece is stored and sent before the next
template <class Store> void write_block(void *address, size_t size, uint64_t pc, const Store &store) {
    char *at = static_cast<char *>(address);
    for (size_t done = 0; done < size; done += kPiece) {
        const size_t piece = size - done < kPiece ? size - done : kPiece;
        device_write(at + done, static_cast<uint32_t>(piece), pc);
        store(at + done, done, piece);
    }
    settle_write();
}

void *copy_block(void *to, const void *from, size_t size, uint64_t pc) {
    if (__builtin_expect(!in_device(to) && !in_device(from), 1)) return std::memmove(to, from, size);
    read_block(from, size, pc);
    if (!in_device(to)) return std::memmove(to, from, size);
    const std::string kept(static_cast<const char *>(from), size);
    write_block(to, size, pc, [&](char *at, size_t done, size_t piece) { std::memcpy(at, kept.data() + done, piece); });
    return to;
}

void *fill_block(void *to, int value, size_t size, uint64_t pc) {
    if (__builtin_expect(!in_device(to), 1)) return std::memset(to, value, size);
    write_block(to, size, pc, [&](char *at, size_t, size_t piece) { std::memset(at, value, piece); });
    return to;
}

// A crash is the kernel's: say where, and end

char signal_stack[1 << 16];
uint64_t counter(void *context) {
#if defined(__linux__) && defined(__aarch64__)
    return static_cast<ucontext_t *>(context)->uc_mcontext.pc;
#elif defined(__linux__) && defined(__x86_64__)
    return static_cast<uint64_t>(static_cast<ucontext_t *>(context)->uc_mcontext.gregs[REG_RIP]);
#else
    return context ? 0 : 0;
#endif
}

// somebody asks where the kernel is
void asked(int, siginfo_t *, void *context) {
    const int before = errno;
    const SourceLocation location = kernel_location(counter(context));
    if (write(places, &location, sizeof location) < 0) _exit(3);
    errno = before;
}

// numbers beside those of signals
enum End : uint64_t { kExited = 256, kThrown = 257 };

[[noreturn]] void end_with(uint64_t number, uint64_t address, const SourceLocation &location, const char *text) {
    const uint64_t words[3] = {number, address, in_device(reinterpret_cast<void *>(address))};
    std::string all(reinterpret_cast<const char *>(words), sizeof words);
    all.append(reinterpret_cast<const char *>(&location), sizeof location);
    all += text;
    put(kCrashed, 0, last_site, all.data(), static_cast<uint32_t>(all.size()));
    flush();
    _exit(4);
}

void crashed(int number, siginfo_t *info, void *context) {
    const auto address = reinterpret_cast<uint64_t>(info->si_addr);
    end_with(static_cast<uint64_t>(number), address, kernel_location(counter(context)), "");
}

// nobody catches what the kernel throws: its frames are still there
void thrown() {
    const std::exception_ptr what = std::current_exception();
    if (!what) std::abort();
    const SourceLocation location = kernel_location(0);
    try {
        std::rethrow_exception(what);
    } catch (const std::exception &error) {
        end_with(kThrown, 0, location, error.what());
    } catch (...) {
        end_with(kThrown, 0, location, "");
    }
}

void exited() { end_with(kExited, 0, kernel_location(0), ""); }

void prepare_ends() {
    // the first call loads what later ones need
    void *here[1];
    backtrace(here, 1);
    std::set_terminate(thrown);
    std::atexit(exited);
    stack_t stack{};
    stack.ss_sp = signal_stack, stack.ss_size = sizeof signal_stack;
    sigaltstack(&stack, nullptr);
    struct sigaction action {};
    action.sa_sigaction = crashed;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESETHAND;
    for (int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP}) sigaction(number, &action, nullptr);
    action.sa_sigaction = asked;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
    sigaction(SIGUSR1, &action, nullptr);
}

// Commands

struct Argument {
    uint64_t is_tensor, bits, bytes, start;
    uint32_t dtype, ndims, shapes[5], strides[5];
};
struct Call {
    uint32_t library, arguments;
    int32_t block, blocks, sub_block, unused;
    char symbol[128];
};
int32_t lane = 0;

ChipTensor tensor_of(const Argument &given) {
    ChipTensor found{};
    found.buffer = {reinterpret_cast<uint64_t>(device) + given.bits, given.bytes};
    found.owner_task_id = PTO2TaskId::invalid();
    found.start_offset = given.start, found.ndims = given.ndims, found.dtype = static_cast<DataType>(given.dtype);
    for (int i = 0; i < 5; ++i) found.shapes[i] = given.shapes[i], found.strides[i] = given.strides[i];
    found.kb_settle();
    return found;
}

void load(const std::string &path) {
    void *library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *why = dlerror();
        put(kFailed, 0, 0, why, static_cast<uint32_t>(std::strlen(why)));
    } else {
        libraries.push_back(library);
        paths.push_back(path);
        put(kLoaded, 0, 0, nullptr, 0);
    }
    flush();
}

void *find(const Call &call) {
    void *found = call.library < libraries.size() ? dlsym(libraries[call.library], call.symbol) : nullptr;
    if (!found) put(kFailed, 0, 0, call.symbol, static_cast<uint32_t>(std::strlen(call.symbol)));
    return found;
}

void run_kernel(const Call &call, const std::vector<Argument> &given) {
    static ChipTensor tensors[kMostArguments];
    static int64_t args[kMostArguments + 2];
    static GlobalContext global;
    static LocalContext local;
    void *entry = find(call);
    if (!entry) return;
    std::memset(args, 0, sizeof args);
    for (size_t i = 0; i < given.size() && i < kMostArguments; ++i) {
        if (given[i].is_tensor) tensors[i] = tensor_of(given[i]);
        args[i] = given[i].is_tensor ? reinterpret_cast<int64_t>(&tensors[i]) : static_cast<int64_t>(given[i].bits);
    }
    global.sub_block_id = lane = call.sub_block;
    local.block_idx = call.block, local.block_num = call.blocks;
    args[SPMD_LOCAL_CONTEXT_INDEX] = reinterpret_cast<int64_t>(&local);
    args[SPMD_GLOBAL_CONTEXT_INDEX] = reinterpret_cast<int64_t>(&global);
    reinterpret_cast<void (*)(int64_t *)>(entry)(args);
}

// an orchestration takes its arguments as kb_begin_orchestration of its own library arranges them
void run_orchestration(const Call &call, const std::vector<Argument> &given) {
    static ChipTensor tensors[1024];
    static uint64_t scalars[1024];
    void *entry = find(call);
    if (!entry) return;
    auto arrange = reinterpret_cast<void (*)(void *, const ChipTensor *, int, const uint64_t *, int)>(
        dlsym(libraries[call.library], "kb_orchestrate"));
    if (!arrange) {
        const char *why = "it does not include pto_orchestration_api.h";
        put(kFailed, 0, 0, why, static_cast<uint32_t>(std::strlen(why)));
        return;
    }
    int count = 0, numbers = 0;
    for (const Argument &one : given) {
        if (one.is_tensor) tensors[count++] = tensor_of(one);
        else scalars[numbers++] = one.bits;
    }
    arrange(entry, tensors, count, scalars, numbers);
}

}  // namespace

extern "C" {

uint32_t kb_site(const char *file, int line, const char *function) {
    const Spot spot{file, function, line};
    const auto found = sites.find(spot);
    if (found != sites.end()) return found->second;
    const auto number = static_cast<uint32_t>(sites.size() + 1);
    sites.emplace(spot, number);
    const std::string text = std::string(file) + '\n' + std::to_string(line) + '\n' + function;
    put(kSite, 0, number, text.data(), static_cast<uint32_t>(text.size()));
    return number;
}

void kb_record(const char *name, uint32_t site, const void *payload, uint32_t size) {
    settle_write();
    last_site = site;
    const uint16_t number = name_number(name);
    put(kOperation, number, site, payload, size);
}

void kb_ask(const char *name, uint32_t site, const void *payload, uint32_t size, void *answer, uint32_t wanted) {
    settle_write();
    last_site = site;
    const uint16_t number = name_number(name);
    put(kQuestion, number, site, payload, size);
    flush();
    uint32_t given = 0;
    read_all(&given, sizeof given);
    std::vector<char> bytes(given);
    read_all(bytes.data(), given);
    std::memset(answer, 0, wanted);
    std::memcpy(answer, bytes.data(), given < wanted ? given : wanted);
}

int32_t kb_lane() { return lane; }
uint64_t kb_device() { return reinterpret_cast<uint64_t>(device); }

// What the compiler calls before accesses to memory

#define KB_PC reinterpret_cast<uint64_t>(__builtin_return_address(0))
#define KB_HOOK(NAME, SIZE, WHAT) \
    void NAME(void *address) { if (__builtin_expect(in_device(address), 0)) WHAT(address, SIZE, KB_PC); }
#define KB_HOOKS(SIZE)                                        \
    KB_HOOK(__tsan_read##SIZE, SIZE, device_read)             \
    KB_HOOK(__tsan_unaligned_read##SIZE, SIZE, device_read)   \
    KB_HOOK(__tsan_volatile_read##SIZE, SIZE, device_read)    \
    KB_HOOK(__tsan_write##SIZE, SIZE, device_write)           \
    KB_HOOK(__tsan_unaligned_write##SIZE, SIZE, device_write) \
    KB_HOOK(__tsan_volatile_write##SIZE, SIZE, device_write)
KB_HOOKS(1) KB_HOOKS(2) KB_HOOKS(4) KB_HOOKS(8) KB_HOOKS(16)
void __tsan_read_range(void *address, unsigned long size) { read_block(address, size, KB_PC); }
void __tsan_write_range(void *address, unsigned long size) {
    for (unsigned long at = 0; in_device(address) && at < size; at += 16)
        device_write(static_cast<char *>(address) + at, size - at < 16 ? static_cast<uint32_t>(size - at) : 16, KB_PC);
}
void __tsan_init() {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit() {}
void __tsan_vptr_read(void *) {}
void __tsan_vptr_update(void *, void *) {}
// Blocks: clang calls the first three, and kernels are linked so that what they call themselves comes to the others
void *__tsan_memcpy(void *to, const void *from, size_t count) { return copy_block(to, from, count, KB_PC); }
void *__tsan_memmove(void *to, const void *from, size_t count) { return copy_block(to, from, count, KB_PC); }
void *__tsan_memset(void *to, int value, size_t count) { return fill_block(to, value, count, KB_PC); }
void *__wrap_memcpy(void *to, const void *from, size_t count) { return copy_block(to, from, count, KB_PC); }
void *__wrap_memmove(void *to, const void *from, size_t count) { return copy_block(to, from, count, KB_PC); }
void *__wrap_memset(void *to, int value, size_t count) { return fill_block(to, value, count, KB_PC); }
void __tsan_atomic_thread_fence(int) {}
void __tsan_atomic_signal_fence(int) {}
}

int main(int count, char **words) {
    if (count < 4) return 2;
    commands = std::atoi(words[1]), records = std::atoi(words[2]), places = std::atoi(words[3]);
    page_bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
#ifdef __linux__
    prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
    const rlimit none{0, 0};
    setrlimit(RLIMIT_CORE, &none);
    void *room = mmap(nullptr, kDeviceBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED) return 5;
    device = static_cast<char *>(room);
    prepare_ends();
    const uint64_t base = reinterpret_cast<uint64_t>(device);
    put(kHello, 0, 0, &base, sizeof base);
    flush();
    for (;;) {
        uint32_t head[2];
        read_all(head, sizeof head);
        std::vector<char> body(head[1]);
        read_all(body.data(), body.size());
        if (head[0] == 1) {
            load(std::string(body.begin(), body.end()));
            continue;
        }
        Call call;
        std::memcpy(&call, body.data(), sizeof call);
        std::vector<Argument> given(call.arguments);
        if (!given.empty()) std::memcpy(given.data(), body.data() + sizeof call, given.size() * sizeof(Argument));
        last_site = 0;
        if (head[0] == 2) run_kernel(call, given);
        else run_orchestration(call, given);
        settle_write();
        put(kEnded, 0, last_site, nullptr, 0);
        flush();
    }
}
