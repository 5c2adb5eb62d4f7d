/* Runs the kernels of table[] on buffers from stdin, on a processor the test emulates. Input, little-endian, per kernel: buffer count,
   tasks, then size and bytes of each buffer. Output: the bytes of every buffer.
   With LUMEN_OUTER kernels are called by somebody whose tiles (ZA) are in use and may be saved for him, as the procedure call standard says:
   they are in their place behind each call, or in the memory that he gave. */
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

int main(void) {
#ifdef LUMEN_OUTER
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
