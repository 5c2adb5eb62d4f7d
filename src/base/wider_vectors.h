// LUMEN_WIDER_VECTORS before a function compiles it for several widths of vectors, of which the processor's widest is
// used. Nothing is contracted or reassociated, so that all of them give the same bits.
#pragma once

// Dispatch runs before a sanitizer's runtime starts, so that its builds do without.
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define LUMEN_WIDER_VECTORS __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define LUMEN_WIDER_VECTORS
#endif
