#include "model/compress/reconstruction/learning.h"

#include <numeric>

#include "base/threads/team.h"

namespace lumen::model::compress {

WindowDraw::WindowDraw(int64_t windows, int64_t at_once, uint64_t seed)
    : random_(seed), order_(windows), some_(std::min(windows, at_once)), at_(windows) {
  std::iota(order_.begin(), order_.end(), 0);
}

std::span<const int64_t> WindowDraw::next() {
  for (int64_t& w : some_) {
    if (at_ == order_.size()) {
      // Shuffled here: the standard does not specify the random sequence of std::shuffle.
      for (size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[random_() % i]);
      at_ = 0;
    }
    w = order_[at_++];
  }
  return some_;
}

void Adam::step(std::span<const float> gradient, float rate, std::span<float> values) {
  ++steps_;
  const float first = 1 - std::pow(double{beta1_}, steps_), second = 1 - std::pow(double{beta2_}, steps_);
  parallel_for(0, std::ssize(values), [&](int64_t i) {
    m_[i] += (1 - beta1_) * (gradient[i] - m_[i]);
    v_[i] += (1 - beta2_) * (gradient[i] * gradient[i] - v_[i]);
    const float root = std::sqrt(v_[i] / second);
    if (root > 0) values[i] -= rate * (m_[i] / first) / root;
  });
}

BestBlock::BestBlock(run::Engine& engine, BlockObjective& objective, std::span<const LearnedWeight> weights,
                     int64_t at_once, std::vector<std::vector<uint8_t>> plain)
    : objective_(objective), at_once_(at_once) {
  for (size_t i = 0; i < weights.size(); ++i) {
    const LearnedWeight& w = weights[i];
    objective_.set(i, engine.decode(w.format, plain[i].data(), w.rows, w.columns));
  }
  best_.blobs = std::move(plain);
  best_.before = best_.after = objective_.loss_of_all(at_once_);
}

bool is_looked_at(int64_t done, int64_t steps) {
  return done == steps || (done > 0 && done % std::max<int64_t>((steps + 3) / 4, 1) == 0);
}

}  // namespace lumen::model::compress
