#include "apps/diffuse/reads.h"

#include <algorithm>
#include <memory>
#include <numeric>

#include "apps/diffuse/sites/read_values.h"
#include "apps/draws/draws.h"
#include "base/error.h"

namespace lumen::diffuse {
namespace {

constexpr const char* kReadsChange = "reads";
constexpr uint64_t kReadDraws = 0x7265616473;

// `wanted` random indices below `count`, ascending.
std::vector<int64_t> drawn_rows(int64_t count, int64_t wanted, Draws draws) {
  std::vector<int64_t> all(count);
  std::iota(all.begin(), all.end(), 0);
  for (int64_t i = 0; i < std::min(wanted, count); ++i) std::swap(all[i], all[i + draws.below(count - i)]);
  all.resize(std::min(wanted, count));
  std::ranges::sort(all);
  return all;
}

// The inputs of products with one weight in one run: values, and positions of rows in them.
struct ReadValues {
  std::vector<const std::vector<float>*> values;
  std::vector<graph::ReadRows> rows;
};

void keep_some_of(ProductReads& to, const ReadValues& read, int64_t wanted, const Draws& draws) {
  int64_t count = 0;
  for (const graph::ReadRows& rows : read.rows) count += rows.count();
  const std::vector<int64_t> drawn = drawn_rows(count, wanted, draws);
  auto next = drawn.begin();
  int64_t before = 0;  // rows of earlier products
  for (size_t i = 0; i < read.rows.size(); ++i) {
    const std::vector<int64_t> steps = read.rows[i].column_steps();
    const int64_t own = read.rows[i].count();
    for (int64_t r = 0; r < own; ++r) {
      const float* const first = read.values[i]->data() + read.rows[i].first_of(r);
      const bool is_kept = next != drawn.end() && *next == before + r;
      if (is_kept) ++next;
      for (int64_t k = 0; k < std::ssize(steps); ++k) {
        const float x = first[steps[k]];
        if (!std::isfinite(x))
          throw Error(Exit::numeric, fmt::format("the input of '{}' contains {}", to.site.weight, x),
                      "the run broke; find out where");
        to.most[k] = std::max(to.most[k], x);
        to.least[k] = std::max(to.least[k], -x);
        if (is_kept) to.rows.push_back(x);
      }
    }
    before += own;
  }
}

}  // namespace

std::vector<ProductReads> collect_reads(apps::Network& network, const std::vector<int32_t>& labels, Sampling how,
                                        const KeptReads& options, const std::atomic<bool>* stop,
                                        const std::function<void(int64_t)>& told,
                                        std::vector<graph::LeftWeight>* left) {
  struct Seen {
    std::vector<ProductReads> products;
    std::map<std::string, std::vector<graph::ReadRows>> rows;
    std::vector<graph::LeftWeight> left;
  };
  auto seen = std::make_shared<Seen>();
  network.define(kReadsChange, [seen](graph::Graph g) {
    std::vector<std::string> names;
    *seen = {{}, {}, graph::left_weights(g)};
    for (const graph::ProductSite& site : graph::product_sites(g)) {
      seen->products.push_back({site, std::vector<float>(site.columns, 0), std::vector<float>(site.columns, 0), {}});
      names.push_back(site.weight);
    }
    graph::HandedReads handed = graph::hand_back_reads(std::move(g), names);
    seen->rows = std::move(handed.rows);
    return std::move(handed.graph);
  });
  how.change = kReadsChange;
  const int64_t batches = (std::ssize(labels) + how.batch - 1) / how.batch;
  // Each run contributes an equal share, rounded up; the last ones fewer.
  const int64_t runs = std::max<int64_t>(1, batches * how.steps), share = (options.rows + runs - 1) / runs;
  int64_t run = 0;
  (void)sampled(network, labels, how, stop, told, [&](const std::map<std::string, std::vector<float>>& results) {
    uint64_t product = 0;
    for (ProductReads& reads : seen->products) {
      ReadValues read{{}, seen->rows.at(reads.site.weight)};
      for (size_t i = 0; i < read.rows.size(); ++i)
        read.values.push_back(&results.at(graph::read_value(reads.site.weight, i)));
      keep_some_of(reads, read, std::min(share, options.rows - reads.count()),
                   Draws(options.seed ^ kReadDraws, run, product++));
    }
    ++run;
  });
  network.define(kReadsChange, [](graph::Graph g) { return g; });
  if (seen->products.empty()) throw user_error("family '{}' has no products with matrices", network.settings().family);
  if (left) *left = seen->left;
  return std::move(seen->products);
}

}  // namespace lumen::diffuse
