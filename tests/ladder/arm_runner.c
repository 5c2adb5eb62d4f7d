/* Runs the kernels of table[] on buffers from stdin, on a processor the test emulates. Input, little-endian, per kernel: buffer count,
   tasks, then size and bytes of each buffer. Output: the bytes of every buffer. */
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

int main(void) {
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
    table[k](buffers, (int64_t)tasks / 2, (int64_t)tasks, status);
    table[k](buffers, 0, (int64_t)tasks / 2, status);
    if (status[0] != 0) return 3;
    for (uint64_t i = 0; i < count; ++i) {
      fwrite(buffers[i], 1, sizes[i], stdout);
      free(buffers[i]);
    }
  }
  return 0;
}
