/* Runs the kernels of table[] on buffers from stdin, on a processor the test emulates.
   Input, little-endian, per kernel: buffer count, tasks, then size and bytes of each buffer. Output: the bytes of the last buffer
   and the status. */
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
    uint64_t size = 0;
    for (uint64_t i = 0; i < count; ++i) {
      size = number();
      buffers[i] = aligned_alloc(64, (size + 127) / 64 * 64);
      if (size && fread(buffers[i], size, 1, stdin) != 1) return 2;
    }
    int64_t status[2] = {0, 0};
    table[k](buffers, 0, (int64_t)tasks / 2, status);
    table[k](buffers, (int64_t)tasks / 2, (int64_t)tasks, status);
    fwrite(buffers[count - 1], 1, size, stdout);
    fwrite(status, 8, 2, stdout);
    for (uint64_t i = 0; i < count; ++i) free(buffers[i]);
  }
  return 0;
}
