// needs: none. Index notation against loops: random products over random indices, summed over random ones, in random
// orders.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "graph/elaborate/elaborate.h"
#include "graph/ir/eval.h"
#include "graph/ir/text.h"
#include "graph/ir/verify.h"
#include "lang/parser.h"

namespace lumen::graph {
namespace {

constexpr int kIndices = 4;
const char* const kNames[kIndices] = {"i", "j", "k", "l"};

struct Factor {
  std::vector<int> over;  // indices, in the order of its axes
  Tensor value;
  double at(const std::vector<int64_t>& position) const {
    size_t flat = 0;
    for (size_t d = 0; d < over.size(); ++d)
      flat = flat * static_cast<size_t>(value.type.shape[d].number()) +
             static_cast<size_t>(position[static_cast<size_t>(over[d])]);
    return value.values[flat];
  }
};

std::vector<int> some_indices(int least) {
  std::vector<int> all = {0, 1, 2, 3};
  for (size_t i = all.size(); i > 1; --i) std::swap(all[i - 1], all[*rc::gen::inRange<size_t>(0, i)]);
  all.resize(*rc::gen::inRange<size_t>(static_cast<size_t>(least), kIndices));
  return all;
}

std::string list(const std::vector<int>& indices) {
  std::string out;
  for (int i : indices) out += (out.empty() ? "" : ", ") + std::string(kNames[i]);
  return out;
}

TEST(IndexNotation, AgreesWithLoops) {
  EXPECT_TRUE(rc::check([] {
    const auto extent = *rc::gen::container<std::vector<int64_t>>(kIndices, rc::gen::inRange<int64_t>(1, 4));
    std::vector<Factor> factors(*rc::gen::inRange<size_t>(1, 4));
    std::vector<int> used;
    std::string head = "fn f(", product;
    std::map<std::string, Tensor> inputs;
    for (size_t f = 0; f < factors.size(); ++f) {
      Factor& x = factors[f];
      x.over = some_indices(1);
      int64_t count = 1;
      std::string dims;
      for (int i : x.over) {
        x.value.type.shape.emplace_back(extent[static_cast<size_t>(i)]);
        count *= extent[static_cast<size_t>(i)];
        dims += (dims.empty() ? "" : ", ") + std::to_string(extent[static_cast<size_t>(i)]);
        if (std::find(used.begin(), used.end(), i) == used.end()) used.push_back(i);
      }
      for (int64_t n = 0; n < count; ++n) x.value.values.push_back(*rc::gen::inRange(-4, 5));
      const std::string name = "x" + std::to_string(f);
      head += (f > 0 ? ", " : "") + name + ": f32[" + dims + "]";
      product += (f > 0 ? " * " : "") + name + "[" + list(x.over) + "]";
      inputs[name] = x.value;
    }
    // The rest are summed, in one or two reductions.
    std::vector<int> free, summed;
    for (int i : used) (*rc::gen::inRange(0, 2) == 0 ? free : summed).push_back(i);
    if (free.empty()) {
      free.push_back(summed.back());
      summed.pop_back();
    }
    std::string body = product;
    if (summed.size() > 1 && *rc::gen::inRange(0, 2) == 0) {
      body = "sum(" + std::string(kNames[summed[0]]) + ") (sum(" + list({summed.begin() + 1, summed.end()}) + ") " +
             product + ")";
    } else if (!summed.empty()) {
      body = "sum(" + list(summed) + ") " + product;
    }
    const std::string text = head + ")\n  y[" + list(free) + "] = " + body + "\n";
    RC_LOG() << text;
    const lang::File file = lang::parse_file(std::make_shared<Source>(Source{"random", text}));
    Scope scope;
    scope.files = {&file};
    const Graph g = elaborate_function(scope, file.functions[0]);
    RC_LOG() << print(g);
    RC_ASSERT(verify(g).empty());
    const Tensor got = eval(g, inputs).at(0);

    // By loops: small whole numbers, so sums are exact in any order.
    std::vector<double> want;
    std::vector<int64_t> position(kIndices, 0);
    const std::function<void(size_t)> fill = [&](size_t d) {
      if (d < free.size()) {
        const auto i = static_cast<size_t>(free[d]);
        for (position[i] = 0; position[i] < extent[i]; ++position[i]) fill(d + 1);
        return;
      }
      double total = 0;
      const std::function<void(size_t)> sum = [&](size_t s) {
        if (s < summed.size()) {
          const auto i = static_cast<size_t>(summed[s]);
          for (position[i] = 0; position[i] < extent[i]; ++position[i]) sum(s + 1);
          return;
        }
        double p = 1;
        for (const Factor& x : factors) p *= x.at(position);
        total += p;
      };
      sum(0);
      want.push_back(total);
    };
    fill(0);
    RC_ASSERT(got.values == want);
  }));
}

}  // namespace
}  // namespace lumen::graph
