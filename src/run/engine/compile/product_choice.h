// Products of a plan that a library of the device's vendor does faster than our kernels. Both are compared and measured
// once, when a program is compiled: a library whose result is another is not used, and people hear of it. The choice is
// kept beside the compiled kernels: for this machine, driver and library, until our kernel changes. Other sums are
// other bits, so nothing of this happens unless it is asked for (Engine::Options::libraries). Proved by
// tests/run/engine/product_choice_test.cpp.
#pragma once

#include "run/device/product.h"
#include "run/engine/compile/compile.h"
#include "run/engine/compile/repeat.h"

namespace lumen::run {

struct ChosenProduct {
  std::shared_ptr<Product> product;  // null: our kernels
  std::vector<size_t> values;        // of its buffers: positions in GroupForm::values
  std::string plan;
};

// By distinct form.
std::vector<ChosenProduct> choose_products(const CompileContext& context, const graph::Plan& plan,
                                           const CompileOptions& options, const DistinctKernels& kernels);

}  // namespace lumen::run
