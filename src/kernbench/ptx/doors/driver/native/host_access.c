/* What of device memory the program itself may touch. As on a GPU, memory of cudaMalloc is none of the host's: its pages
 * cannot be accessed at their addresses, and this library moves bytes by a second mapping of the same file. A program that
 * reads or writes through a device pointer is told at which line, and ends by the signal by which it would end there. */
#include <dlfcn.h>
#include <execinfo.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include "driver.h"

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

static struct {
  Address base;
  size_t bytes;
  char *ours;
  struct sigaction before;
} device;

static int is_of_device(Address address) { return device.ours && address - device.base < device.bytes; }

/* Where this library finds what lies at an address. */
void *ours_at(Address address) { return is_of_device(address) ? device.ours + (address - device.base) : (void *)address; }

/* The host may touch a range from now on. Where the system has no room for one more mapping, all memory may be touched. */
void grant(Address address, size_t bytes) {
  if (!is_of_device(address) || !bytes) return;
  Address page = (Address)sysconf(_SC_PAGESIZE), first = address / page * page;
  if (mprotect((void *)first, address + bytes - first, PROT_READ | PROT_WRITE) == 0) return;
  mprotect((void *)device.base, device.bytes, PROT_READ | PROT_WRITE);
}

static Address instruction_of(const void *state) {
  const ucontext_t *at = state;
#if defined(__x86_64__)
  return (Address)at->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
  return (Address)at->uc_mcontext.pc;
#else
  return (void)at, 0;
#endif
}

/* Whether an address lies in this library, or in C's or C++'s own, which act for whoever calls them (memcpy, free, printf). */
static int is_of_libraries(Address address, const Dl_info *ours) {
  static const char *const theirs[] = {"libc.", "libc-", "libstdc++.", "libc++."};
  Dl_info at;
  if (!dladdr((void *)address, &at) || !at.dli_fname) return 0;
  const char *slash = strrchr(at.dli_fname, '/'), *name = slash ? slash + 1 : at.dli_fname;
  for (size_t i = 0; i < sizeof theirs / sizeof *theirs; i++)
    if (!strncmp(name, theirs[i], strlen(theirs[i]))) return 1;
  return at.dli_fbase == ours->dli_fbase;
}

/* Where the program's own code is that made an access: behind it, as a return address is. */
static Address behind_access(Address from, const Dl_info *ours) {
  enum { FRAMES = 32 };
  void *frames[FRAMES];
  if (!is_of_libraries(from, ours)) return from + 1;
  int count = backtrace(frames, FRAMES);
  for (int i = 0; i < count; i++)
    if (!is_of_libraries((Address)frames[i], ours)) return (Address)frames[i];
  return from + 1;
}

static struct {
  Address address, from;
} refused;

/* Report an access; in a child of fork() nobody may, as the link is its parent's. */
static void report_access(void) {
  Dl_info ours, theirs;
  Address address = refused.address, from = refused.from;
  Reply reply;
  if (!from || !dladdr((void *)report_access, &ours) || !initialised()) return;
  if (dladdr((void *)from, &theirs) && theirs.dli_fbase == ours.dli_fbase) return;
  ASK(&reply, REQUEST_TOUCHED, NULL, 0, address);
  if (reply.count) say_caller_at(reply.words[0], behind_access(from, &ours));
  release(&reply);
}

/* A stack that the program gave for signals may have 8 KiB, which printing alone takes. */
static void report_with_room(void) {
  static char room[1 << 17];
  static ucontext_t here, there;
  stack_t now;
  if (sigaltstack(NULL, &now) || !(now.ss_flags & SS_ONSTACK) || getcontext(&there)) {
    report_access();
    return;
  }
  there.uc_stack.ss_sp = room, there.uc_stack.ss_size = sizeof room, there.uc_link = &here;
  makecontext(&there, report_access, 0);
  swapcontext(&here, &there);
}

/* The instruction that was refused runs again when this returns, and the program ends, or gets to its own handler. Threads
 * that come here meanwhile wait, or one of them would end the program before the first access is reported; a fault in here
 * ends the program. A signal that somebody sent is sent again, as no instruction does that. */
static void refuse_access(int number, siginfo_t *what, void *state) {
  static int entered;
  static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
  int sent = what->si_code <= 0;
  pthread_mutex_lock(&one);
  if (!entered++) {
    refused.address = (Address)what->si_addr, refused.from = instruction_of(state);
    if (!sent && is_of_device(refused.address)) report_with_room();
    sigaction(number, &device.before, NULL);
  }
  pthread_mutex_unlock(&one);
  if (sent) raise(number);
}

/* Map the file that holds device memory at its addresses; returns whether they are free. */
int map_for_host(int file, Address base, size_t bytes) {
  void *wanted = (void *)base;
  void *got = mmap(wanted, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE | MAP_NORESERVE, file, 0);
  if (got != wanted) return 0;
  void *ours = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
  struct sigaction refuse = {.sa_sigaction = refuse_access, .sa_flags = SA_SIGINFO | SA_ONSTACK};
  if (ours == MAP_FAILED) return 1;
  if (mprotect(wanted, bytes, PROT_NONE) || sigaction(SIGSEGV, &refuse, &device.before)) {
    mprotect(wanted, bytes, PROT_READ | PROT_WRITE);
    munmap(ours, bytes);
    return 1;
  }
  device.base = base, device.bytes = bytes, device.ours = ours;
  return 1;
}
