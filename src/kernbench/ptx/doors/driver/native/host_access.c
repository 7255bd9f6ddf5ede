/* What of device memory the program itself may touch. As on a GPU, memory of cudaMalloc is none of the host's: its pages
 * cannot be accessed at their addresses, and this library moves bytes by a second mapping of the same file. A program that
 * reads or writes through a device pointer is told at which line, and ends by the signal by which it would end there. */
#include <dlfcn.h>
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

/* Tell the emulator of an access; in a child of fork() nobody may, as the link is its parent's. */
static void tell_of_access(Address address, Address from) {
  Dl_info ours, theirs;
  Reply reply;
  if (!from || !dladdr((void *)tell_of_access, &ours) || !initialised()) return;
  if (dladdr((void *)from, &theirs) && theirs.dli_fbase == ours.dli_fbase) return;
  ASK(&reply, REQUEST_TOUCHED, NULL, 0, address);
  if (reply.count) say_caller_at(reply.words[0], from + 1);
  release(&reply);
}

/* The instruction that was refused runs again when this returns, and the program ends, or gets to its own handler. That is
 * set last: other threads that make such an access meanwhile come here as well, and a fault in here ends the program. A
 * signal that somebody sent comes again, as no instruction does. */
static void refuse_access(int number, siginfo_t *what, void *state) {
  Address address = (Address)what->si_addr;
  int sent = what->si_code <= 0;
  if (!sent && is_of_device(address)) tell_of_access(address, instruction_of(state));
  sigaction(number, &device.before, NULL);
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
