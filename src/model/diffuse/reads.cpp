#include "model/diffuse/reads.h"

#include <algorithm>
#include <memory>
#include <numeric>

#include "base/draws.h"
#include "base/error.h"
#include "graph/sites/read_values.h"

namespace lumen::model {
namespace {

constexpr const char* kReadsChange = "reads";
constexpr uint64_t kReadDraws = 0x7265616473;

// Numbers of `wanted` rows of `count`, drawn, rising.
std::vector<int64_t> drawn_rows(int64_t count, int64_t wanted, Draws draws) {
  std::vector<int64_t> all(count);
  std::iota(all.begin(), all.end(), 0);
  for (int64_t i = 0; i < std::min(wanted, count); ++i) std::swap(all[i], all[i + draws.below(count - i)]);
  all.resize(std::min(wanted, count));
  std::ranges::sort(all);
  return all;
}

void keep_some_of(ProductReads& to, const std::vector<float>& read, int64_t wanted, const Draws& draws) {
  const int64_t columns = to.site.columns, count = std::ssize(read) / columns;
  for (int64_t r = 0; r < count; ++r)
    for (int64_t k = 0; k < columns; ++k) {
      const float x = read[r * columns + k];
      if (!std::isfinite(x))
        throw Error(Exit::numeric, fmt::format("what '{}' reads holds {}", to.site.weight, x),
                    "the run broke; find out where");
      to.most[k] = std::max(to.most[k], x);
      to.least[k] = std::max(to.least[k], -x);
    }
  for (const int64_t r : drawn_rows(count, wanted, draws))
    to.rows.insert(to.rows.end(), read.begin() + r * columns, read.begin() + (r + 1) * columns);
}

}  // namespace

std::vector<ProductReads> collect_reads(Network& network, const std::vector<int32_t>& labels, Sampling how,
                                        const KeptReads& options, const std::atomic<bool>* stop,
                                        const std::function<void(int64_t)>& told) {
  auto out = std::make_shared<std::vector<ProductReads>>();
  network.define(kReadsChange, [out](graph::Graph g) {
    std::vector<std::string> names;
    out->clear();
    for (const graph::ProductSite& site : graph::product_sites(g)) {
      out->push_back({site, std::vector<float>(site.columns, 0), std::vector<float>(site.columns, 0), {}});
      names.push_back(site.weight);
    }
    return graph::hand_back_reads(std::move(g), names);
  });
  how.change = kReadsChange;
  const int64_t batches = (std::ssize(labels) + how.batch - 1) / how.batch;
  // Each run gives its share, the last ones fewer where shares were rounded up.
  const int64_t runs = std::max<int64_t>(1, batches * how.steps), share = (options.rows + runs - 1) / runs;
  int64_t run = 0;
  (void)sampled(network, labels, how, stop, told, [&](const std::map<std::string, std::vector<float>>& results) {
    uint64_t product = 0;
    for (ProductReads& reads : *out)
      keep_some_of(reads, results.at(graph::read_value(reads.site.weight)),
                   std::min(share, options.rows - reads.count()), Draws(options.seed ^ kReadDraws, run, product++));
    ++run;
  });
  network.define(kReadsChange, [](graph::Graph g) { return g; });
  if (out->empty()) throw user_error("family '{}' has no products with matrices", network.settings().family);
  return *out;
}

}  // namespace lumen::model
