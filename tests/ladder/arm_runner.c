/* Runs the kernels of table[] on buffers from stdin, on a processor the test emulates. Input, little-endian, per kernel: buffer count,
   tasks, then size and bytes of each buffer. Output: the bytes of every buffer.
   With LUMEN_OUTER kernels are called by somebody whose tiles (ZA) are in use and may be saved for him, as the procedure call standard says:
   they are in their place behind each call, or in the memory that he gave. Without kernels: whether bytes are multiplied, status 0 or 1. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef void (*kernel)(void* const* buffers, int64_t begin, int64_t end, int64_t* status);
extern const kernel table[];
extern const int table_size;

static uint64_t number(void) {
  uint64_t x = 0;
  if (fread(&x, 8, 1, stdin) != 1) exit(2);
  return x;
}

#ifdef LUMEN_OUTER
static uint8_t tiles[256 * 256], saved[256 * 256];
static struct {
  void* place;
  uint16_t rows;
  uint8_t zero[6];
} block;

static uint64_t bytes_of_row(void) {
  uint64_t bytes;
  __asm__ volatile(".arch armv9-a+sme\n rdsvl %0, #1" : "=r"(bytes));
  return bytes;
}

static void begin_tiles(void) {
  const uint64_t bytes = bytes_of_row();
  for (uint64_t i = 0; i < bytes * bytes; ++i) {
    tiles[i] = (uint8_t)(i * 37 >> 3);
    saved[i] = 0;
  }
  block.place = saved;
  block.rows = (uint16_t)bytes;
  __asm__ volatile(
      "smstart za\n"
      "mov w12, #0\n"
      "mov x9, %0\n"
      "1: ldr za[w12, 0], [x9]\n"
      "add x9, x9, %1\n"
      "add w12, w12, #1\n"
      "cmp w12, %w1\n"
      "b.lo 1b\n"
      "msr S3_3_C13_C0_5, %2\n" ::"r"(tiles),
      "r"(bytes), "r"(&block)
      : "x9", "x12", "cc", "memory");
}

/* Whether they are as they were; `saves` counts the times that they had to be saved. */
static int end_tiles(int* saves) {
  const uint64_t bytes = bytes_of_row();
  uint64_t asleep;
  __asm__ volatile("mrs %0, S3_3_C13_C0_5" : "=r"(asleep)::"memory");
  if (asleep) {
    __asm__ volatile(
        "mov w12, #0\n"
        "mov x9, %0\n"
        "1: str za[w12, 0], [x9]\n"
        "add x9, x9, %1\n"
        "add w12, w12, #1\n"
        "cmp w12, %w1\n"
        "b.lo 1b\n"
        "msr S3_3_C13_C0_5, xzr\n"
        "smstop za\n" ::"r"(saved),
        "r"(bytes)
        : "x9", "x12", "cc", "memory");
  } else {
    ++*saves;
  }
  for (uint64_t i = 0; i < bytes * bytes; ++i)
    if (saved[i] != tiles[i]) return 0;
  return 1;
}
#endif

#ifdef LUMEN_OUTER
/* Whether outer products of bytes are added as the architecture says. QEMU 7.2 does not add them so: it takes two sums for neighbours that
   are none. */
static int multiplies_bytes(void) {
  int8_t a[256], b[256];
  static int32_t sums[64 * 64];
  for (int i = 0; i < 256; ++i) {
    a[i] = (int8_t)(i * 7 % 23 - 11);
    b[i] = (int8_t)(i * 5 % 19 - 9);
  }
  uint64_t bytes;
  __asm__ volatile(".arch armv9-a+sme\n rdsvl %0, #1" : "=r"(bytes));
  const uint64_t side = bytes / 4;
  __asm__ volatile(
      "smstart\n"
      "ptrue p0.b\n"
      "zero {za}\n"
      "ld1b {z0.b}, p0/z, [%0]\n"
      "ld1b {z1.b}, p0/z, [%1]\n"
      "smopa za0.s, p0/m, p0/m, z0.b, z1.b\n"
      "mov w12, #0\n"
      "mov x9, %2\n"
      "1: st1w {za0h.s[w12, 0]}, p0, [x9]\n"
      "add x9, x9, %3\n"
      "add w12, w12, #1\n"
      "cmp w12, %w4\n"
      "b.lt 1b\n"
      "smstop\n" ::"r"(a),
      "r"(b), "r"(sums), "r"(bytes), "r"(side)
      : "x9", "x12", "memory", "cc", "d0", "d1", "d8", "d9", "d10", "d11", "d12", "d13", "d14", "d15");
  for (uint64_t i = 0; i < side; ++i)
    for (uint64_t j = 0; j < side; ++j) {
      int32_t sum = 0;
      for (int k = 0; k < 4; ++k) sum += a[4 * i + k] * b[4 * j + k];
      if (sum != sums[i * side + j]) return 0;
    }
  return 1;
}
#endif

int main(void) {
#ifdef LUMEN_OUTER
  if (table_size == 0) return !multiplies_bytes();
  int saves = 0;
#endif
  for (int k = 0; k < table_size; ++k) {
    const uint64_t count = number(), tasks = number();
    void* buffers[16];
    uint64_t sizes[16];
    if (count > 16) return 2;
    for (uint64_t i = 0; i < count; ++i) {
      sizes[i] = number();
      buffers[i] = aligned_alloc(64, (sizes[i] + 127) / 64 * 64);
      if (sizes[i] && fread(buffers[i], sizes[i], 1, stdin) != 1) return 2;
    }
    int64_t status[2] = {0, 0};
#ifdef LUMEN_OUTER
    begin_tiles();
#endif
    table[k](buffers, (int64_t)tasks / 2, (int64_t)tasks, status);
#ifdef LUMEN_OUTER
    if (!end_tiles(&saves)) return 4;
#endif
    table[k](buffers, 0, (int64_t)tasks / 2, status);
    if (status[0] != 0) return 3;
    for (uint64_t i = 0; i < count; ++i) {
      fwrite(buffers[i], 1, sizes[i], stdout);
      free(buffers[i]);
    }
  }
#ifdef LUMEN_OUTER
  if (saves == 0) return 5;
#endif
  return 0;
}
