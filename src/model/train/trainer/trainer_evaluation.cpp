// Losses without training: of the next batch, and of validation data.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "model/train/trainer/guard.h"
#include "model/train/trainer/step_kinds.h"

namespace lumen::model::train {
namespace {

constexpr const char* kBrokenHint =
    "the model that training begins with is broken, or --precision names a type that does not hold its values";

// Mean of losses, weighted by position.
struct LossSum {
  double total = 0, weight = 0;
  void add(const std::vector<float>& losses, const data::Batch& batch) {
    for (size_t i = 0; i < losses.size(); ++i) {
      const double w = batch.weights.empty() ? 1.0 : batch.weights[i];
      if (w == 0) continue;
      total += w * losses[i];
      weight += w;
    }
  }
};

// Adds rows of weight 0 up to the row count that the program was compiled for.
void fill_up(data::Batch& batch, int64_t rows) {
  const size_t size = rows * batch.length;
  batch.rows = rows;
  batch.tokens.resize(size, 0);
  batch.targets.resize(size, 0);
  batch.weights.resize(size, 0.0F);
  if (!batch.starts.empty()) batch.starts.resize(size, 0);
}

}  // namespace

// Rows x length losses of the batch given to put_batch. Null: a step by layers computes them.
run::Program* Trainer::evaluation() {
  know_activation_scales();
  return pass_->evaluation();
}

std::vector<float> Trainer::losses_of(const data::Batch& batch) {
  return of_positions(evaluation(), batch);
}

std::vector<float> Trainer::of_positions(run::Program* program, const data::Batch& batch) {
  put_batch(batch);
  if (program) program->run();
  std::vector<float> losses(batch.rows * batch.length);
  (program ? program->result(arch::kResult) : pass_->losses())->download(losses.data(), losses.size() * sizeof(float));
  return losses;
}

double Trainer::prove() {
  LossSum sum;
  data::Batch batch;
  auto failure = RankedStep::attempt([&] { batch = batches_->training(state_.batch_of(done_), 0); });
  agree_before_exchanges(failure);
  if (!failure) failure = RankedStep::attempt([&] { sum.add(losses_of(batch), batch); });
  const double loss = mean_over_ranks(sum.total, sum.weight, failure);
  if (std::isfinite(loss)) return loss;
  diverged_ = true;
  throw Error(Exit::numeric,
              done_ == 0
                  ? fmt::format("before the first step the loss is {}; training stopped", loss)
                  : fmt::format("after step {} the loss with the new weights is {}; training stopped", done_, loss),
              done_ == 0 ? kBrokenHint : kDivergedHint);
}

double Trainer::evaluate(int64_t rows, const std::atomic<bool>* stop) {
  const int64_t all = batches_->validation_rows();
  if (all < 1) require_data();
  if (method_.objective()) {
    const double loss = evaluate_objective(rows, stop);
    if (std::isfinite(loss)) return loss;
    diverged_ = true;
    throw Error(Exit::numeric, fmt::format("after step {} the validation loss is {}; training stopped", done_, loss),
                kDivergedHint);
  }
  const double loss = mean_of_validation(evaluation(), rows, stop);
  if (std::isfinite(loss)) return loss;
  diverged_ = true;
  throw Error(Exit::numeric, fmt::format("after step {} the validation loss is {}; training stopped", done_, loss),
              kDivergedHint);
}

int64_t Trainer::evaluated_rows(int64_t rows) const {
  // An objective's value depends on the number of rows in a batch.
  const int64_t batch = method_.objective() ? recipe_.batch : 1, all = batches_->validation_rows() / batch * batch;
  return rows == 0 ? all : std::min((rows + batch - 1) / batch * batch, all);
}

// The mean loss of the first rows of the validation data; -1 when `stop` became true.
double Trainer::mean_of_validation(run::Program* program, int64_t rows, const std::atomic<bool>* stop) {
  rows = std::min(rows == 0 ? batches_->validation_rows() : rows, batches_->validation_rows());
  LossSum sum;
  // Ranks take batches in turn. With sharded parameters every rank runs, even without rows: others wait for its parts.
  const int64_t ranks = data_ranks(), rank = data_rank();
  const bool together = has_parts_of_parameters() || tensor_parts_;
  bool stopped = false;
  std::optional<Error> failure;
  for (int64_t turn = 0; turn < rows && !stopped && !failure; turn += ranks * recipe_.batch) {
    const int64_t first = turn + rank * recipe_.batch;
    if (first >= rows && !together) break;
    stopped = stop && stop->load();
    if (tensor_parts_)
      stopped = asked_now(stop);
    else if (together)
      stopped = ranked_->any(stopped);
    if (stopped) break;
    data::Batch batch;
    failure = RankedStep::attempt([&] {
      const int64_t count = std::min(recipe_.batch, rows - first);
      batch = batches_->validation(count > 0 ? first : 0, std::max<int64_t>(count, 1));
      batch.weights.resize(batch.tokens.size(), 1.0F);
      if (count < 1) std::fill(batch.weights.begin(), batch.weights.end(), 0.0F);
      fill_up(batch, recipe_.batch);
    });
    agree_before_exchanges(failure);
    if (!failure) failure = RankedStep::attempt([&] { sum.add(of_positions(program, batch), batch); });
    if (has_parts_of_parameters()) ranked_->agree(failure);
    if (failure && tensor_parts_) throw Error(*failure);  // others may wait in an exchange
  }
  const double mean = mean_over_ranks(sum.total, sum.weight, failure);
  return stopped ? -1 : mean;
}

double Trainer::divergence(int64_t rows, const std::atomic<bool>* stop) {
  know_activation_scales();
  if (!divergence_) divergence_ = compile(method_.divergence());
  const double far = mean_of_validation(divergence_.get(), rows, stop);
  if (std::isfinite(far)) return far;
  diverged_ = true;
  throw Error(Exit::numeric,
              fmt::format("after step {} the divergence from the reference is {}; training stopped", done_, far),
              kDivergedHint);
}

}  // namespace lumen::model::train
