/* Whether the processor at hand, or the emulator of one, adds outer products of bytes as the architecture says: status 0 or 1. QEMU before
   8.2.2 did not (it took two sums of 32 bits for neighbours that are none). */
#include <stdint.h>

int main(void) {
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
      if (sum != sums[i * side + j]) return 1;
    }
  return 0;
}
