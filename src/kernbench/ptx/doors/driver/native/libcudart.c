/* A stand-in for libcudart.so: each function, also in its forms for a default stream of each thread, jumps to libcuda.so.1.
 * The file is built once for each version of the runtime, as its symbols carry that version. */
#if defined(__x86_64__)
#define JUMP "jmp kernbench_"
#define FAR "@PLT"
#else
#define JUMP "b kernbench_"
#define FAR ""
#endif

#define LABEL(name) ".globl " name "\n.type " name ", %function\n" name ":\n"
#define RUNTIME(name) __asm__(".text\n" LABEL(#name) LABEL(#name "_ptsz") LABEL(#name "_ptds") JUMP #name FAR "\n");
#define ABSENT(name) RUNTIME(name)
#include "runtime.def"
