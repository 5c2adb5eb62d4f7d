// Few rows of activations, rounded to 16-bit floats, times a weight whose codes stand for numbers: each number is one
// 16-bit float, or the sum of two, whose bytes the machine looks up; its dot of pairs adds their products in f32. For
// formats that do not factor into integers. Proved by tests/kernel/synth/gemm/dot_short_test.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernel/synth/gemm/choose.h"
#include "kernel/synth/order/factor.h"
#include "kernel/synth/step/step.h"

namespace lumen::synth {

struct ShortDot {
  ScaledForm form;
  machine::DotRow row;
  int code_field = -1;
  std::vector<std::vector<uint16_t>> parts;  // by code: each element is the sum of these; one if that is exact
  bool whole_words = false;                  // codes are few enough that the machine looks up words, not their bytes
  bool whole_rows = false;                   // no scale, or one that is constant over a row
};

// nullopt if elements are not such numbers or the machine cannot look them up; `why` is then the reason.
std::optional<ShortDot> factor_short(const Format& f, const machine::Machine& m, std::string* why);

// The steps: activations rounded into scratch in the order of the weight's codes, then the products.
void write_short_kernels(const graph::Graph& g, const DotProblem& p, const RowsPlan& rows, const ShortDot& d,
                         const machine::Machine& m, bool invariant, Synthesis& out);

}  // namespace lumen::synth
