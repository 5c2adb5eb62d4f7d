// Products of a plan that a library of the device's vendor computes faster than our kernels. Both are compared and
// measured once, when a program is compiled: a library with a different result is not used, and the user is told. The
// choice is stored with the compiled kernels: for this machine, driver and library, until our kernel changes. Another
// summation order gives different bits, so this is opt-in (Engine::Options::libraries). Proved by
// tests/run/engine/product_choice_test.cpp.
#pragma once

#include "run/device/product.h"
#include "run/engine/compile/compile.h"
#include "run/engine/compile/repeat.h"

namespace lumen::run {

struct ChosenProduct {
  std::shared_ptr<Product> product;  // null: our kernels
  std::vector<size_t> values;        // for each of its buffers: position in GroupForm::values
  std::string plan;
};

// Indexed by distinct form.
std::vector<ChosenProduct> choose_products(const CompileContext& context, const graph::Plan& plan,
                                           const CompileOptions& options, const DistinctKernels& kernels);

}  // namespace lumen::run
