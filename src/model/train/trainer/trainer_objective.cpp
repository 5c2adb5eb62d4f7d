// Objectives: the reference's outputs for rows, and the loss on validation data.
#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "base/error.h"
#include "model/train/ranks/rank_batches.h"
#include "model/train/trainer/trainer.h"

namespace lumen::model::train {

void Trainer::put_rows(const char* name, const std::vector<float>& numbers) {
  tensor(name, {{std::ssize(numbers)}, {Scalar::f32, nullptr}})->upload(numbers.data(), numbers.size() * sizeof(float));
}

void Trainer::require_rows() const {
  if (grid_.data && batches_->form() == data::RowForm::pairs && recipe_.batch % 2 != 0)
    throw Error(Exit::usage,
                fmt::format("a batch of {} rows leaves pairs apart in {} ranks", given_.batch, grid_.data->size()),
                "--batch is the batch of all ranks together: name a multiple of twice their number");
  const recipe::Objective* objective = method_.objective();
  if (!objective && batches_->form() != data::RowForm::sequences)
    throw Error(Exit::user, "rows of pairs or with labels need an objective",
                fmt::format("--objective NAME: {}", fmt::join(recipe::objective_names(), ", ")));
  if (objective) {
    if (objective->is_of_pairs() && batches_->form() != data::RowForm::pairs)
      throw Error(Exit::user, fmt::format("the objective '{}' is of pairs, but the data has none", objective->name()),
                  "rows with 'chosen' and 'rejected' are pairs");
    if (objective->reads(recipe::kLabels) && batches_->form() != data::RowForm::labels)
      throw Error(Exit::user, fmt::format("the objective '{}' needs labels, but the data has none", objective->name()),
                  "rows with 'prompt', 'completion' and 'label' have one");
  }
}

void Trainer::put_training_batch(const data::Batch& batch) {
  require_rows();
  if (const recipe::Objective* objective = method_.objective()) {
    if (objective->reads(recipe::kDivergence)) {
      const data::Batch other = recipe::mismatched(batch);
      const std::vector<float> theirs = reference_of(other), own = recipe::answer_logp(other, losses_of(other));
      double sum = 0;
      for (size_t r = 0; r < own.size(); ++r) sum += static_cast<double>(own[r]) - theirs[r];
      set_scalar(recipe::kDivergence, std::max(0.0, sum / own.size()));
    }
    if (objective->reads(recipe::kReference)) put_rows(recipe::kReference, reference_of(batch));
    if (objective->reads(recipe::kLabels)) put_rows(recipe::kLabels, batch.labels);
  }
  put_batch(batch);
}

// From the model without its adapter, or from the log computed before the first step.
std::vector<float> Trainer::reference_of(const data::Batch& batch) {
  if (!has_adapter() || goes_on_ || !reference_log_.empty()) return reference_log_.of(batch);
  if (!reference_) reference_ = compile(method_.reference());
  put_batch(batch);
  reference_->run();
  std::vector<float> losses(batch.rows * batch.length);
  reference_->result(arch::kResult)->download(losses.data(), losses.size() * sizeof(float));
  return recipe::answer_logp(batch, losses);
}

void Trainer::remember_reference(const std::atomic<bool>* stop) {
  const recipe::Objective* objective = method_.objective();
  if (!objective || !objective->reads(recipe::kReference) || (has_adapter() && !goes_on_) || done_ > 0) return;
  const auto add_rows = [&](const data::Batch& batch) {
    if (!reference_log_.has(batch)) reference_log_.add(batch, recipe::answer_logp(batch, losses_of(batch)));
  };
  const auto add = [&](const data::Batch& batch) {
    add_rows(batch);
    if (objective->reads(recipe::kDivergence)) add_rows(recipe::mismatched(batch));
  };
  // A run that rolls back skips batches and reads as many after its last one: at most as many as it has steps.
  const int64_t steps = recipe_.schedule.steps;
  const int64_t more = recipe_.on_nan == "rollback" ? std::min(RunState::most_skipped(recipe_.rollbacks), steps) : 0;
  for (int64_t step = 0; step < steps + more; ++step) {
    if (asked_now(stop)) return;
    for (int64_t part = 0; part < given_.accumulate; ++part) {
      // Rows of every rank: the log is saved, and a resumed run may have another number of ranks.
      const data::Batch batch = all_batches_->training(step, part);
      const int64_t ranks = batch.rows / recipe_.batch;
      for (int64_t r = 0; r < ranks; ++r) add(share_of(batch, r, ranks));
    }
  }
  const int64_t rows = batches_->validation_rows() / recipe_.batch * recipe_.batch;
  for (int64_t first = 0; first < rows; first += recipe_.batch) add(batches_->validation(first, recipe_.batch));
}

// An objective is measured on whole batches.
void Trainer::require_validation() const {
  if (!method_.objective() || batches_->validation_rows() >= recipe_.batch) return;
  throw Error(Exit::user,
              fmt::format("{} rows of validation data are less than one batch of {}", batches_->validation_rows(),
                          recipe_.batch),
              "give more data, a larger --validation, or a smaller --batch");
}

double Trainer::evaluate_objective(int64_t rows, const std::atomic<bool>* stop) {
  rows = evaluated_rows(rows);
  if (rows < 1) require_validation();
  know_activation_scales();
  if (!objective_loss_) objective_loss_ = compile(method_.objective_loss());
  double total = 0, weight = 0;
  for (int64_t first = 0; first < rows; first += recipe_.batch) {
    if (asked_now(stop)) return -1;
    const data::Batch batch = batches_->validation(first, recipe_.batch);
    put_training_batch(batch);
    objective_loss_->run();
    const bool of_rows = method_.objective()->reads("logp");
    const double loss = scalar(*objective_loss_, "loss");
    total += of_rows || batch.weights.empty() ? loss * recipe_.batch : loss;
    weight += of_rows || batch.weights.empty() ? recipe_.batch
                                               : std::accumulate(batch.weights.begin(), batch.weights.end(), 0.0);
  }
  return total / weight;
}

}  // namespace lumen::model::train
