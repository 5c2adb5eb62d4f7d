// Functions and data that the compiled code, LLVM's libraries and the compiler's own refer to, and that glibc 2.31 lacks
// (old_glibc.py). Each is hidden: other libraries of the process keep those of the glibc that is there.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

// Of glibc before 2.33.
int __xstat(int layout, const char* path, struct stat* to);
int __lxstat(int layout, const char* path, struct stat* to);
int __fxstat(int layout, int fd, struct stat* to);
int __fxstatat(int layout, int fd, const char* path, struct stat* to, int flags);
int __xmknod(int layout, const char* path, mode_t mode, dev_t* device);

#pragma GCC visibility push(hidden)

// 2.32: libstdc++ counts references without atomic instructions where this is not 0.
char __libc_single_threaded = 0;

// 2.33: before that, calls of these were calls of functions with the layout's version.
#ifdef __aarch64__
enum { kLayout = 0 };
#else
enum { kLayout = 1 };
#endif

int stat(const char* path, struct stat* to) {
  return __xstat(kLayout, path, to);
}
int lstat(const char* path, struct stat* to) {
  return __lxstat(kLayout, path, to);
}
int fstat(int fd, struct stat* to) {
  return __fxstat(kLayout, fd, to);
}
int fstatat(int fd, const char* path, struct stat* to, int flags) {
  return __fxstatat(kLayout, fd, path, to, flags);
}
int mknod(const char* path, mode_t mode, dev_t device) {
  return __xmknod(0, path, mode, &device);
}
// With 64-bit offsets both layouts are one.
int stat64(const char* path, struct stat64* to) __attribute__((alias("stat")));
int lstat64(const char* path, struct stat64* to) __attribute__((alias("lstat")));
int fstat64(int fd, struct stat64* to) __attribute__((alias("fstat")));
int fstatat64(int fd, const char* path, struct stat64* to, int flags) __attribute__((alias("fstatat")));

// 2.33. LLVM asks how much memory is allocated.
struct mallinfo2 mallinfo2(void) {
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  const struct mallinfo old = mallinfo();
  return (struct mallinfo2){.arena = (unsigned)old.arena, .hblkhd = (unsigned)old.hblkhd, .uordblks = (unsigned)old.uordblks};
}

// 2.36. libstdc++'s random_device.
uint32_t arc4random(void) {
  uint32_t out;
  if (getentropy(&out, sizeof out) != 0) abort();
  return out;
}

// 2.35. Where the unwinder finds the table of the frames of a loaded object.
struct search {
  uintptr_t address;
  struct dl_find_object* found;
};

static int has_address(struct dl_phdr_info* info, size_t size, void* data) {
  (void)size;
  struct search* search = data;
  const ElfW(Phdr)* frames = NULL;
  uintptr_t begin = UINTPTR_MAX, end = 0;
  int is_inside = 0;
  for (int n = 0; n < info->dlpi_phnum; ++n) {
    const ElfW(Phdr)* p = &info->dlpi_phdr[n];
    if (p->p_type == PT_GNU_EH_FRAME) frames = p;
    if (p->p_type != PT_LOAD) continue;
    const uintptr_t from = info->dlpi_addr + p->p_vaddr, to = from + p->p_memsz;
    if (search->address >= from && search->address < to) is_inside = 1;
    if (from < begin) begin = from;
    if (to > end) end = to;
  }
  if (!is_inside || !frames) return is_inside;  // 1 ends the search
  *search->found = (struct dl_find_object){.dlfo_map_start = (void*)begin,
                                           .dlfo_map_end = (void*)end,
                                           .dlfo_eh_frame = (void*)(info->dlpi_addr + frames->p_vaddr)};
  return 1;
}

int _dl_find_object(void* address, struct dl_find_object* found) {
  struct search search = {(uintptr_t)address, found};
  found->dlfo_eh_frame = NULL;
  dl_iterate_phdr(has_address, &search);
  return found->dlfo_eh_frame ? 0 : -1;
}

#pragma GCC visibility pop
