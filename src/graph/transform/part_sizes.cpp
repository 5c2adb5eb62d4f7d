#include "graph/transform/part_sizes.h"

#include "base/error.h"

namespace lumen::graph {

void check_part_sizes(std::string_view weight, const std::vector<int64_t>& sizes, int64_t all, std::string_view unit) {
  int64_t sum = 0;
  for (const int64_t n : sizes) {
    if (n < 1 || n > all) throw user_error("'{}' has {} {}, of which no part can have {}", weight, all, unit, n);
    sum += n;
  }
  if (sizes.size() < 2 || sum != all)
    throw user_error("the {} parts of '{}' have {} {}, but it has {}", sizes.size(), weight, sum, unit, all);
}

}  // namespace lumen::graph
