#include "cli/measured_quality.h"

#include <fmt/format.h>

#include <cmath>
#include <ctime>

namespace lumen::cli {

model::report::MeasuredQuality quality_of(const model::infer::Divergence& d) {
  model::report::MeasuredQuality q;
  q.kl = d.mean;
  q.kl_error = d.error;
  q.kl_p99 = d.p99;
  q.kl_most = d.most;
  q.same_top = d.same_top;
  q.ppl = std::exp(d.nats);
  q.ppl_error = std::exp(d.nats) * d.nats_error;
  return q;
}

model::report::MeasuredQuality base_quality_of(const model::infer::Divergence& d) {
  model::report::MeasuredQuality q;
  q.ppl = std::exp(d.other_nats);
  q.ppl_error = std::exp(d.other_nats) * d.other_nats_error;
  return q;
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  return fmt::format("{:04}-{:02}-{:02}", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday);
}

}  // namespace lumen::cli
