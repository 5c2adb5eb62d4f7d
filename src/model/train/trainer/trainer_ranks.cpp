// The trainer's part that works together with other ranks.
#include <chrono>
#include <cmath>

#include "base/check.h"
#include "model/train/trainer/trainer.h"

namespace lumen::model {

void Trainer::meet() const {
  if (communicator_) communicator_->barrier();
}

const std::atomic<bool>* Trainer::asked_to_stop(const std::atomic<bool>* own) {
  if (!communicator_) return own;
  asked_ = own;
  return &all_asked_;
}

// The mean by all ranks' totals; an error in one of them is all ranks'.
double Trainer::mean_over_ranks(double total, double weight, const std::optional<Error>& failure) {
  if (!ranked_) {
    if (failure) throw Error(*failure);
    return total / weight;
  }
  ranked_->agree(failure);
  const std::vector<double> sums = ranked_->sum({total, weight});
  return sums[0] / sums[1];
}

Trainer::Step Trainer::step_among_ranks() {
  const auto start = std::chrono::steady_clock::now();
  Step result;
  begin_step(result);
  try {
    std::optional<Error> failure;
    for (int64_t part = 0; part < given_.accumulate; ++part) {
      if (!failure) failure = RankedStep::attempt([&] { run_part(result, part); });
      if (!ranked_->reduces_each_batch() && part + 1 < given_.accumulate) continue;
      ranked_->agree(failure);
      ranked_->reduce(*accumulate_);
    }
    sum_over_ranks(result);
    update_among_ranks(result);
  } catch (const run::RankLost&) {
    throw;
  } catch (const Error&) {
    ranked_->clear();  // a run that goes back begins with no sums
    throw;
  }
  ++done_;
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

// What a step says is of all ranks; and whether one of them has been asked to stop.
void Trainer::sum_over_ranks(Step& step) {
  std::vector<double> numbers = {step.loss, asked_ && asked_->load() ? 1.0 : 0.0};
  for (const auto& [name, value] : step.metrics) numbers.push_back(value);
  numbers = ranked_->sum(std::move(numbers));
  step.loss = numbers[0];
  if (numbers[1] > 0) all_asked_ = true;
  for (size_t i = 0; i < step.metrics.size(); ++i) step.metrics[i].second = numbers[2 + i];
}

void Trainer::update_among_ranks(Step& step) {
  if (!ranked_->holds_parts()) {
    ranked_->share_sums();
    ranked_->agree(RankedStep::attempt([&] { apply_->run(); }));
    step.norm = scalar(*apply_, "norm");
    if (!std::isfinite(step.loss) || !std::isfinite(step.norm)) throw_not_finite(step, broken_gradients());
    return;
  }
  step.norm = ranked_->norm();
  if (!std::isfinite(step.loss) || !std::isfinite(step.norm)) throw_not_finite(step, broken_gradients());
  ranked_->apply(step.norm);
  ranked_->share_parameters();
}

// Means that ranks hold in parts: whole ones take the weights' places, and go again.
void Trainer::exchange_parts_of_average() {
  if (!averages_.empty()) {
    for (auto& [name, weight] : averages_) tensors_.at(name) = std::move(weight);
    averages_.clear();
  } else {
    for (const Parameter& p : method_.trained()) {
      const std::string name = average_of(p.name);
      const std::vector<uint8_t> bytes = ranked_->whole_state(name, true);
      auto whole = std::make_shared<run::DeviceTensor>(engine_.device(), ranked_->states().at(name));
      whole->upload(bytes.data(), std::ssize(bytes));
      averages_[p.name] = std::exchange(tensors_.at(p.name), whole);
    }
  }
  for (const auto& program : {step_, accumulate_, evaluate_, divergence_})
    if (program) bind_all(*program);
}

}  // namespace lumen::model
