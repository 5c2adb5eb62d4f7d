// Makes one kind of system call fail at a chosen call, in a program that preloads this library: for tests of what the
// program does then. Calls count from the moment main() begins; what runs before is the loader's and the libraries'.
//
//   LD_PRELOAD=libfault_injector.so FAULT=KIND:N[:always] FAULT_COUNTS=FILE program ..
//
// KIND is a row of kKinds; N counts from one; with `always` every later call fails as well, as on a full disk.
// FAULT_COUNTS gets a line "KIND CALLS" for each kind when the program ends. Nothing is injected into standard error,
// where the program must be able to say what happened, and nothing into what this library does itself.
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

enum Kind {
  kReadShort,
  kReadEio,
  kReadEintr,
  kWriteShort,
  kWriteEnospc,
  kWriteEio,
  kWriteEintr,
  kOpenEmfile,
  kFsyncEio,
  kRenameEio,
  kMalloc,
  kMmap,
  kThread,
  kClockBack,
  kClockForward,
  kKinds
};
constexpr const char* kNames[kKinds] = {"read-short", "read-eio",    "read-eintr",  "write-short", "write-enospc",
                                        "write-eio",  "write-eintr", "open-emfile", "fsync-eio",   "rename-eio",
                                        "malloc",     "mmap",        "thread",      "clock-back",  "clock-forward"};

std::atomic<bool> in_main{false};
std::atomic<uint64_t> calls[kKinds];
int chosen = -1;
uint64_t first = 0;
bool always = false;
pid_t owner = 0;

thread_local bool inside __attribute__((tls_model("initial-exec"))) = false;

// Whether this call of `kind` is the one, or one of those, that fails.
bool fails(Kind kind) {
  if (!in_main.load(std::memory_order_relaxed) || inside) return false;
  const uint64_t call = calls[kind].fetch_add(1, std::memory_order_relaxed) + 1;
  return kind == chosen && (call == first || (always && call > first));
}

template <class Function>
Function next(const char* name) {
  const bool before = inside;
  inside = true;  // dlsym may allocate
  Function function = reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
  inside = before;
  return function;
}

void write_counts() {
  const char* path = getenv("FAULT_COUNTS");
  if (!path || getpid() != owner) return;
  inside = true;
  const int fd = next<int (*)(const char*, int, ...)>("open")(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
  if (fd < 0) return;
  char line[64];
  for (int kind = 0; kind < kKinds; ++kind) {
    const int size =
        snprintf(line, sizeof line, "%s %llu\n", kNames[kind], static_cast<unsigned long long>(calls[kind].load()));
    if (next<ssize_t (*)(int, const void*, size_t)>("write")(fd, line, static_cast<size_t>(size)) != size) break;
  }
  close(fd);
}

void read_settings() {
  owner = getpid();
  const char* fault = getenv("FAULT");
  if (!fault) return;
  for (int kind = 0; kind < kKinds; ++kind) {
    const size_t size = strlen(kNames[kind]);
    if (strncmp(fault, kNames[kind], size) != 0 || fault[size] != ':') continue;
    char* end = nullptr;
    first = strtoull(fault + size + 1, &end, 10);
    always = strcmp(end, ":always") == 0;
    chosen = kind;
  }
  if (chosen < 0) {
    fprintf(stderr, "fault_injector: FAULT=%s names no kind\n", fault);
    _exit(99);
  }
}

int (*real_main)(int, char**, char**) = nullptr;

int counted_main(int argc, char** argv, char** environment) {
  read_settings();
  atexit(write_counts);
  in_main = true;
  return real_main(argc, argv, environment);
}

ssize_t refused(int error) {
  errno = error;
  return -1;
}

// -1 and errno where reading fails, 0 where it goes on with `size` bytes, which may have become fewer.
int before_read(size_t& size) {
  if (fails(kReadEio)) return static_cast<int>(refused(EIO));
  if (fails(kReadEintr)) return static_cast<int>(refused(EINTR));
  if (fails(kReadShort) && size > 1) size = size / 2;
  return 0;
}

int before_write(int fd, size_t& size) {
  if (fd == 2) return 0;
  if (fails(kWriteEnospc)) return static_cast<int>(refused(ENOSPC));
  if (fails(kWriteEio)) return static_cast<int>(refused(EIO));
  if (fails(kWriteEintr)) return static_cast<int>(refused(EINTR));
  if (fails(kWriteShort) && size > 1) size = size / 2;
  return 0;
}

void shift(clockid_t clock, timespec* time) {
  // A wall clock may be set to any time; the monotonic one never goes back, but jumps ahead on some virtual machines.
  if (fails(kClockBack) && clock == CLOCK_REALTIME) time->tv_sec -= 3600;
  if (fails(kClockForward)) time->tv_sec += 3600;
}

}  // namespace

extern "C" {

int __libc_start_main(int (*main)(int, char**, char**), int argc, char** argv, void (*init)(), void (*fini)(),
                      void (*rtld_fini)(), void* stack_end) {
  using Start = int (*)(int (*)(int, char**, char**), int, char**, void (*)(), void (*)(), void (*)(), void*);
  real_main = main;
  return next<Start>("__libc_start_main")(counted_main, argc, argv, init, fini, rtld_fini, stack_end);
}

ssize_t read(int fd, void* data, size_t size) {
  static auto real = next<ssize_t (*)(int, void*, size_t)>("read");
  return before_read(size) ? -1 : real(fd, data, size);
}

ssize_t pread(int fd, void* data, size_t size, off_t at) {
  static auto real = next<ssize_t (*)(int, void*, size_t, off_t)>("pread");
  return before_read(size) ? -1 : real(fd, data, size, at);
}

ssize_t pread64(int fd, void* data, size_t size, off64_t at) {
  static auto real = next<ssize_t (*)(int, void*, size_t, off64_t)>("pread64");
  return before_read(size) ? -1 : real(fd, data, size, at);
}

ssize_t write(int fd, const void* data, size_t size) {
  static auto real = next<ssize_t (*)(int, const void*, size_t)>("write");
  return before_write(fd, size) ? -1 : real(fd, data, size);
}

ssize_t pwrite(int fd, const void* data, size_t size, off_t at) {
  static auto real = next<ssize_t (*)(int, const void*, size_t, off_t)>("pwrite");
  return before_write(fd, size) ? -1 : real(fd, data, size, at);
}

ssize_t pwrite64(int fd, const void* data, size_t size, off64_t at) {
  static auto real = next<ssize_t (*)(int, const void*, size_t, off64_t)>("pwrite64");
  return before_write(fd, size) ? -1 : real(fd, data, size, at);
}

// Of a vector only the first part is written or read when the call is to be short.
ssize_t readv(int fd, const iovec* parts, int count) {
  static auto real = next<ssize_t (*)(int, const iovec*, int)>("readv");
  size_t size = 2;
  if (before_read(size)) return -1;
  return real(fd, parts, size == 1 && count > 1 ? 1 : count);
}

ssize_t writev(int fd, const iovec* parts, int count) {
  static auto real = next<ssize_t (*)(int, const iovec*, int)>("writev");
  size_t size = 2;
  if (before_write(fd, size)) return -1;
  return real(fd, parts, size == 1 && count > 1 ? 1 : count);
}

#define OPEN_OF(name)                                                 \
  int name(const char* path, int flags, ...) {                        \
    static auto real = next<int (*)(const char*, int, ...)>(#name);   \
    va_list rest;                                                     \
    va_start(rest, flags);                                            \
    const mode_t mode = va_arg(rest, mode_t);                         \
    va_end(rest);                                                     \
    if (fails(kOpenEmfile)) return static_cast<int>(refused(EMFILE)); \
    return real(path, flags, mode);                                   \
  }
OPEN_OF(open)
OPEN_OF(open64)

int openat(int folder, const char* path, int flags, ...) {
  static auto real = next<int (*)(int, const char*, int, ...)>("openat");
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = va_arg(rest, mode_t);
  va_end(rest);
  if (fails(kOpenEmfile)) return static_cast<int>(refused(EMFILE));
  return real(folder, path, flags, mode);
}

FILE* fopen(const char* path, const char* mode) {
  static auto real = next<FILE* (*)(const char*, const char*)>("fopen");
  if (fails(kOpenEmfile)) return refused(EMFILE), nullptr;
  return real(path, mode);
}

FILE* fopen64(const char* path, const char* mode) {
  static auto real = next<FILE* (*)(const char*, const char*)>("fopen64");
  if (fails(kOpenEmfile)) return refused(EMFILE), nullptr;
  return real(path, mode);
}

int fsync(int fd) {
  static auto real = next<int (*)(int)>("fsync");
  return fails(kFsyncEio) ? static_cast<int>(refused(EIO)) : real(fd);
}

int fdatasync(int fd) {
  static auto real = next<int (*)(int)>("fdatasync");
  return fails(kFsyncEio) ? static_cast<int>(refused(EIO)) : real(fd);
}

int rename(const char* from, const char* to) {
  static auto real = next<int (*)(const char*, const char*)>("rename");
  return fails(kRenameEio) ? static_cast<int>(refused(EIO)) : real(from, to);
}

// Memory. dlsym itself may ask for some while the real functions are looked up: a small arena serves it.
alignas(64) static char arena[1 << 16];
static std::atomic<size_t> arena_used{0};

static void* from_arena(size_t size) {
  const size_t at = arena_used.fetch_add((size + 63) / 64 * 64);
  return at + size <= sizeof arena ? arena + at : nullptr;
}
static bool is_of_arena(const void* memory) {
  return memory >= arena && memory < arena + sizeof arena;
}

static void* (*real_malloc)(size_t) = nullptr;
static void* (*real_calloc)(size_t, size_t) = nullptr;
static void* (*real_realloc)(void*, size_t) = nullptr;
static void (*real_free)(void*) = nullptr;
static thread_local bool looking __attribute__((tls_model("initial-exec"))) = false;

static bool found_memory() {
  if (real_free) return true;
  if (looking) return false;
  looking = true;
  real_malloc = reinterpret_cast<void* (*)(size_t)>(dlsym(RTLD_NEXT, "malloc"));
  real_calloc = reinterpret_cast<void* (*)(size_t, size_t)>(dlsym(RTLD_NEXT, "calloc"));
  real_realloc = reinterpret_cast<void* (*)(void*, size_t)>(dlsym(RTLD_NEXT, "realloc"));
  real_free = reinterpret_cast<void (*)(void*)>(dlsym(RTLD_NEXT, "free"));
  looking = false;
  return true;
}

void* malloc(size_t size) {
  if (!found_memory()) return from_arena(size);
  if (fails(kMalloc)) return refused(ENOMEM), nullptr;
  return real_malloc(size);
}

void* calloc(size_t count, size_t size) {
  if (!found_memory()) return from_arena(count * size);
  if (fails(kMalloc)) return refused(ENOMEM), nullptr;
  return real_calloc(count, size);
}

void* realloc(void* memory, size_t size) {
  if (!found_memory()) return from_arena(size);
  if (is_of_arena(memory)) {
    void* moved = real_malloc(size);
    if (moved)
      memcpy(moved, memory,
             size < static_cast<size_t>(arena + sizeof arena - static_cast<char*>(memory))
                 ? size
                 : static_cast<size_t>(arena + sizeof arena - static_cast<char*>(memory)));
    return moved;
  }
  if (fails(kMalloc)) return refused(ENOMEM), nullptr;
  return real_realloc(memory, size);
}

void free(void* memory) {
  if (is_of_arena(memory) || !found_memory()) return;
  real_free(memory);
}

int posix_memalign(void** memory, size_t alignment, size_t size) {
  static auto real = next<int (*)(void**, size_t, size_t)>("posix_memalign");
  return fails(kMalloc) ? ENOMEM : real(memory, alignment, size);
}

void* aligned_alloc(size_t alignment, size_t size) {
  static auto real = next<void* (*)(size_t, size_t)>("aligned_alloc");
  if (fails(kMalloc)) return refused(ENOMEM), nullptr;
  return real(alignment, size);
}

void* mmap(void* address, size_t size, int protection, int flags, int fd, off_t at) {
  static auto real = next<void* (*)(void*, size_t, int, int, int, off_t)>("mmap");
  if (fails(kMmap)) return refused(ENOMEM), MAP_FAILED;
  return real(address, size, protection, flags, fd, at);
}

void* mmap64(void* address, size_t size, int protection, int flags, int fd, off64_t at) {
  static auto real = next<void* (*)(void*, size_t, int, int, int, off64_t)>("mmap64");
  if (fails(kMmap)) return refused(ENOMEM), MAP_FAILED;
  return real(address, size, protection, flags, fd, at);
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*), void* argument) {
  static auto real = next<int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*)>("pthread_create");
  return fails(kThread) ? EAGAIN : real(thread, attributes, start, argument);
}

int clock_gettime(clockid_t clock, timespec* time) {
  static auto real = next<int (*)(clockid_t, timespec*)>("clock_gettime");
  const int result = real(clock, time);
  if (result == 0) shift(clock, time);
  return result;
}

}  // extern "C"
