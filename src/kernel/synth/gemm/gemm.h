// The contraction as a problem (batch, M, N, K and strides), its writer, and what all its kernels share: plans of the
// cost model, packing of panels, sorting of rows that pick their matrix (grouped GEMM).
//
// May include: base, graph/fuse, graph/group, graph/match, kernel/loop, kernel/machine, kernel/synth/step,
// kernel/synth/unpack.
#pragma once

#include "kernel/synth/gemm/choose.h"
#include "kernel/synth/gemm/code_words.h"
#include "kernel/synth/gemm/dense_product.h"
#include "kernel/synth/gemm/dot_group.h"
#include "kernel/synth/gemm/dot_parts.h"
#include "kernel/synth/gemm/dot_problem.h"
#include "kernel/synth/gemm/dot_write.h"
#include "kernel/synth/gemm/pack.h"
#include "kernel/synth/gemm/product_schedule.h"
