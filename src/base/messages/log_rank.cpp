#include "base/messages/log_rank.h"

#include <fmt/format.h>

namespace lumen {
namespace {

int own = -1;

}  // namespace

void set_log_rank(int rank) {
  own = rank;
}
bool is_secondary_rank() {
  return own > 0;
}
std::string rank_prefix() {
  return is_secondary_rank() ? fmt::format("rank {}: ", own) : std::string();
}

}  // namespace lumen
