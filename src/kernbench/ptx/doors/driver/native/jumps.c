/* Jumps that are written over the beginning of a function, and copies of functions that have one. */
#include <sys/mman.h>
#include <unistd.h>

#include "driver.h"

enum { JUMP_BYTES = 16 };

#if defined(__x86_64__)
/* where a function that is nothing but a jump goes; a mark for indirect branches may stand before it */
static void *jump_target(const unsigned char *at) {
  static const unsigned char mark[4] = {0xf3, 0x0f, 0x1e, 0xfa};
  int32_t distance;
  if (!memcmp(at, mark, sizeof mark)) at += sizeof mark;
  memcpy(&distance, at + 1, 4);
  return *at == 0xe9 ? (void *)(at + 5 + distance) : NULL;
}

/* bytes of an instruction that does the same wherever it lies, of those that functions begin with; 0 for all others */
static size_t movable(const unsigned char *at) {
  static const unsigned char mark[4] = {0xf3, 0x0f, 0x1e, 0xfa}, plain[] = {0x31, 0x33, 0x81, 0x83, 0x85, 0x89, 0x8b, 0x8d};
  const unsigned char *next = at;
  if (!memcmp(at, mark, sizeof mark)) return sizeof mark;
  /* memory of the thread, then wide registers */
  if (*next == 0x64) next++;
  if (*next >> 4 == 4) next++;
  unsigned char code = *next++, form = *next;
  /* push of a register, of one byte, of four */
  if (code >> 3 == 0x50 >> 3) return (size_t)(next - at);
  if (code == 0x6a || code == 0x68) return (size_t)(next - at) + (code == 0x6a ? 1 : 4);
  if (!memchr(plain, code, sizeof plain)) return 0;
  unsigned mode = form >> 6, base = form & 7;
  next++;
  /* an address from here on */
  if (mode == 0 && base == 5) return 0;
  if (mode != 3 && base == 4 && (*next++ & 7) == 5 && mode == 0) next += 4;
  next += (mode == 1) + 4 * (mode == 2) + (code == 0x83) + 4 * (code == 0x81);
  return (size_t)(next - at);
}

/* jmp *0(%rip), then the address */
enum { WRITTEN = 14 };
static void write_jump(unsigned char *at, const void *to) {
  static const unsigned char code[6] = {0xff, 0x25, 0, 0, 0, 0};
  memcpy(at, code, sizeof code);
  memcpy(at + sizeof code, &to, sizeof to);
}
#elif defined(__aarch64__)
/* where a function that is nothing but a jump goes */
static void *jump_target(const unsigned char *at) {
  int32_t code;
  memcpy(&code, at, 4);
  return (uint32_t)code >> 26 == 5 ? (void *)(at + ((int64_t)(int32_t)((uint32_t)code << 6) >> 6) * 4) : NULL;
}

/* bytes of an instruction that does the same wherever it lies; 0 for branches and for addresses from here on */
static size_t movable(const unsigned char *at) {
  uint32_t code;
  memcpy(&code, at, 4);
  int branch = (code & 0x7c000000) == 0x14000000 || (code & 0xfe000000) == 0x54000000 || (code & 0x7c000000) == 0x34000000;
  int address = (code & 0x1f000000) == 0x10000000 || (code & 0x3b000000) == 0x18000000;
  return branch || address ? 0 : 4;
}

/* ldr x16, .+8; br x16, then the address */
enum { WRITTEN = 16 };
static void write_jump(unsigned char *at, const void *to) {
  static const uint32_t code[2] = {0x58000050, 0xd61f0200};
  memcpy(at, code, sizeof code);
  memcpy(at + sizeof code, &to, sizeof to);
}
#else
#error "the driver library runs on x86-64 and AArch64"
#endif

static int redirect(void *from, const void *to) {
  uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = (uintptr_t)from / page * page;
  size_t bytes = (uintptr_t)from + JUMP_BYTES - first;
  if (mprotect((void *)first, bytes, PROT_READ | PROT_WRITE)) return 0;
  write_jump(from, to);
  mprotect((void *)first, bytes, PROT_READ | PROT_EXEC);
  __builtin___clear_cache((char *)from, (char *)from + JUMP_BYTES);
  return 1;
}

/* What a function is when it begins with a jump to ours: its first instructions elsewhere, and a jump to the rest. NULL where one
 * of them would do something else there. */
static void *callable_copy(const unsigned char *at) {
  size_t bytes = 0, page = (size_t)sysconf(_SC_PAGESIZE);
  while (bytes < WRITTEN) {
    size_t one = movable(at + bytes);
    if (!one) return NULL;
    bytes += one;
  }
  unsigned char *made = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (made == MAP_FAILED) return NULL;
  memcpy(made, at, bytes);
  write_jump(made + bytes, at + bytes);
  if (mprotect(made, page, PROT_READ | PROT_EXEC)) return NULL;
  __builtin___clear_cache((char *)made, (char *)made + bytes + JUMP_BYTES);
  return made;
}
