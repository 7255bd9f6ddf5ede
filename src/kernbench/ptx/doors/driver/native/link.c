/* The link to the emulator: a function of this process (Python in it registers one), or a Unix socket to a worker that
 * shares its device memory with this process at the same addresses. */
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <stdarg.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "driver.h"

typedef int (*Local)(uint32_t, const uint64_t *, size_t, const void *, size_t, uint64_t *, uint32_t *, const void **, size_t *);

typedef struct {
  uint32_t request, count;
  uint64_t bytes;
} Header;

Reply hello;
int runtime_in_use;
_Thread_local int unseen;
static Local local;
/* Python answered, and has ended */
static int silent;
static int connection = -1;
static pid_t owner;
static pthread_mutex_t talk = PTHREAD_MUTEX_INITIALIZER, state = PTHREAD_MUTEX_INITIALIZER;

void lock(void) { pthread_mutex_lock(&state); }
void unlock(void) { pthread_mutex_unlock(&state); }

void complain(const char *format, ...) {
  va_list rest;
  va_start(rest, format);
  flockfile(stderr);
  fputs("kernbench: ", stderr);
  vfprintf(stderr, format, rest);
  fputc('\n', stderr);
  funlockfile(stderr);
  va_end(rest);
}

void *fresh(uint32_t magic, size_t bytes) {
  uint32_t *made = calloc(1, bytes);
  if (made) *made = magic;
  return made;
}

uint64_t next_id(void) {
  static uint64_t last;
  return __atomic_add_fetch(&last, 1, __ATOMIC_RELAXED);
}

static int move(int sending, void *data, size_t bytes) {
  char *at = data;
  while (bytes) {
    ssize_t n = sending ? send(connection, at, bytes, MSG_NOSIGNAL) : recv(connection, at, bytes, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return 0;
    at += n;
    bytes -= (size_t)n;
  }
  return 1;
}

static int lost(Reply *reply) {
  static int said;
  if (silent) return reply->status = DEINITIALIZED;
  if (!said++) complain("the emulator's process ended, which it does where a launch needs more memory than there is; this program has no GPU any more");
  return reply->status = LAUNCH_FAILED;
}

static int over_socket(const Header *header, const uint64_t *words, const void *data, Reply *reply) {
  Header answer;
  if (connection < 0) return lost(reply);
  if (!move(1, (void *)header, sizeof *header) || !move(1, (void *)words, 8 * header->count) ||
      !move(1, (void *)data, header->bytes) || !move(0, &answer, sizeof answer) || answer.count > REPLY_WORDS)
    return lost(reply);
  reply->status = (int)answer.request;
  reply->count = answer.count;
  reply->bytes = answer.bytes;
  reply->data = malloc(answer.bytes + 1);
  if (!reply->data || !move(0, reply->words, 8 * answer.count) || !move(0, reply->data, answer.bytes)) return lost(reply);
  reply->data[answer.bytes] = 0;
  return reply->status;
}

static int in_process(const Header *header, const uint64_t *words, const void *data, Reply *reply) {
  const void *answer = NULL;
  reply->status = local(header->request, words, header->count, data, header->bytes, reply->words, &reply->count, &answer, &reply->bytes);
  reply->data = malloc(reply->bytes + 1);
  if (!reply->data) return reply->status = OUT_OF_MEMORY;
  if (reply->bytes) memcpy(reply->data, answer, reply->bytes);
  reply->data[reply->bytes] = 0;
  return reply->status;
}

/* Why a request failed is said to the person, as a program has a code only; of a program that goes on and on, the beginning. */
static void explain(const Reply *reply) {
  enum { MOST = 100 };
  static unsigned said;
  if (!reply->bytes || said > MOST) return;
  if (said++ < MOST) complain("%s", reply->data);
  else complain("more calls failed; what is wrong with them is not shown");
}

void say_caller_at(uint64_t fault, Address address) {
  Dl_info at;
  Reply reply;
  uint64_t base = 0;
  char file[4096] = "";
  if (!address || !dladdr((void *)address, &at)) address = 0;
  else {
    base = (uint64_t)at.dli_fbase;
    /* the program itself has the name that it was called by */
    if (!realpath(at.dli_fname, file)) {
      ssize_t length = readlink("/proc/self/exe", file, sizeof file - 1);
      file[length < 0 ? 0 : length] = 0;
    }
  }
  ASK(&reply, REQUEST_CALLER, file, strlen(file), fault, (uint64_t)pthread_self(), base, address);
  release(&reply);
}

/* Where the program made a call on memory that was refused: the innermost return address that is not in this library, and
 * the file that is mapped there. */
static void say_caller(uint64_t fault) {
  enum { FRAMES = 32 };
  void *frames[FRAMES];
  Dl_info ours, at;
  Address address = 0;
  if (!dladdr((void *)say_caller, &ours)) return;
  int count = backtrace(frames, FRAMES);
  for (int i = 0; i < count && !address; i++)
    if (dladdr(frames[i], &at) && at.dli_fbase != ours.dli_fbase) address = (Address)frames[i];
  say_caller_at(fault, address);
}

int ask(uint32_t request, const uint64_t *words, size_t count, const void *data, size_t bytes, Reply *reply) {
  Header header = {request, (uint32_t)count, bytes};
  memset(reply, 0, sizeof *reply);
  /* what a library gives back when Python has ended is gone with it */
  if (silent && (request == REQUEST_FREE || request == REQUEST_UNLOAD || request == REQUEST_UNREGISTER || request == REQUEST_RESET))
    return SUCCESS;
  if (local) {
    in_process(&header, words, data, reply);
  } else {
    pthread_mutex_lock(&talk);
    over_socket(&header, words, data, reply);
    pthread_mutex_unlock(&talk);
  }
  if (reply->status) explain(reply);
  /* a fault of the program, by its number; a copy of what nobody wrote succeeds */
  if (reply->count && (request == REQUEST_FREE || request == REQUEST_COPY || request == REQUEST_SET)) {
    if (reply->status) unseen = 1;
    say_caller(reply->words[0]);
  }
  return reply->status;
}

void release(Reply *reply) {
  free(reply->data);
  reply->data = NULL;
}

/* The worker sends the file that holds device memory, and where it is to be mapped. */
static int map_device_memory(void) {
  uint64_t words[2];
  char room[CMSG_SPACE(sizeof(int))] = {0};
  struct iovec part = {words, sizeof words};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
  if (recvmsg(connection, &message, MSG_WAITALL | MSG_CMSG_CLOEXEC) != sizeof words) return 0;
  struct cmsghdr *control = CMSG_FIRSTHDR(&message);
  if (!control || control->cmsg_type != SCM_RIGHTS) return 0;
  int file;
  memcpy(&file, CMSG_DATA(control), sizeof file);
  int mapped = map_for_host(file, words[0], words[1]);
  close(file);
  if (!mapped) complain("addresses from %p on are not free in this process: device memory cannot be mapped", (void *)words[0]);
  return mapped;
}

static int connect_to(const char *path) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  if (strlen(path) >= sizeof address.sun_path) return 0;
  strcpy(address.sun_path, path);
  connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connection < 0) return 0;
  uint64_t process = (uint64_t)getpid();
  if (connect(connection, (struct sockaddr *)&address, sizeof address) == 0 && move(1, &process, sizeof process) && map_device_memory()) return 1;
  close(connection);
  connection = -1;
  return 0;
}

/* For Python in this process: answer requests here instead of over the socket. */
EXPORT void kernbench_answer(Local function) {
  silent = local && !function;
  local = function;
}

static int open_link(void) {
  const char *path = getenv("KERNBENCH_DRIVER");
  if (!local && !path) {
    complain("this libcuda.so.1 is kernbench's; run the program with `kernbench exec -- ...`");
    return NO_DEVICE;
  }
  if (!local && !connect_to(path)) {
    complain("no emulator answers at %s; run the program with `kernbench exec -- ...`", path);
    return NO_DEVICE;
  }
  return ask(REQUEST_HELLO, NULL, 0, NULL, 0, &hello);
}

/* As with the real driver, a child made by fork() after cuInit() has no GPU. */
static int forked(void) {
  static pid_t said;
  if (!owner || owner == getpid()) return 0;
  if (said != getpid()) complain("process %d was forked from one that used the GPU already: fork before the first CUDA call, or use exec or spawn", (int)getpid());
  said = getpid();
  return 1;
}

EXPORT int cuInit(unsigned flags) {
  static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
  if (flags) return INVALID_VALUE;
  pthread_mutex_lock(&once);
  int status = SUCCESS;
  if (!owner) {
    status = open_link();
    if (status == SUCCESS) owner = getpid();
  } else if (forked()) {
    status = NOT_INITIALIZED;
  }
  pthread_mutex_unlock(&once);
  return status;
}

/* For Python in this process: a front end that has no CUDA runtime here stands for one, which would have initialised the
 * driver and given each thread the primary context. */
EXPORT void kernbench_runtime_in_use(void) { runtime_in_use = 1; }

int initialised(void) {
  if (owner == getpid()) return 1;
  if (!owner && runtime_in_use) return cuInit(0) == SUCCESS;
  forked();
  return 0;
}
