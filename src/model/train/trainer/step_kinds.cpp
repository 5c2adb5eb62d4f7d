#include "model/train/trainer/step_kinds.h"

namespace lumen::model::train {

std::vector<std::string> Trainer::StepKind::broken() {
  return t_.pass_->broken();
}

class Trainer::LocalStep : public StepKind {
 public:
  using StepKind::StepKind;
  void run(Step& step, int64_t part) override {
    t_.read_part(part);
    compute(step, part);
  }
  void finish(Step& step) override {
    step.norm = t_.pass_->finish();
    t_.require_finite_step(step);
    if (t_.updates_) t_.update(step.norm);
  }

 protected:
  void compute(Step& step, int64_t part) {
    if (part == 0) t_.begin_activation_scales();
    t_.pass_->run(step, part);
  }
};

// Every rank of the group reads the same batch and computes its parts of products.
class Trainer::TensorParallelStep : public LocalStep {
 public:
  using LocalStep::LocalStep;
  void run(Step& step, int64_t part) override {
    t_.agree_among_all(RankedStep::attempt([&] { t_.read_part(part); }));
    compute(step, part);
    t_.share_histories();
  }
  void finish(Step& step) override {
    if (t_.asked_now(t_.asked_)) t_.all_asked_ = true;
    LocalStep::finish(step);
  }
};

// Ranks share each batch; every rank has the whole sums of gradients and computes all updates.
class Trainer::ReplicatedStep : public StepKind {
 public:
  using StepKind::StepKind;
  void run(Step& step, int64_t part) override {
    RankedStep& ranks = *t_.ranked_;
    if (part == 0) failure_.reset();
    if (!failure_) failure_ = RankedStep::attempt([&] { t_.read_part(part); });
    t_.agree_before_exchanges(failure_);
    if (!t_.scales_are_known_ && !t_.activation_scales().empty()) {
      ranks.agree(failure_);
      t_.begin_activation_scales();
    }
    const bool reduces = ranks.reduces_each_batch() || part + 1 == t_.given_.accumulate;
    const bool overlaps = ranks.overlaps_gradients();
    if (overlaps) {
      ranks.agree(failure_);  // all ranks exchange the batch's results, or none
      ranks.before_batch(*t_.pass_->program(), reduces);
    }
    t_.pass_->run_among_ranks(step, part, &failure_);
    if (failure_ && overlaps && !ranks.is_launched()) throw Error(*failure_);  // others wait for its data
    if (!reduces && t_.states_of(graph::kHistoryState).empty()) return;
    ranks.agree(failure_);
    t_.share_histories();
    if (reduces) t_.pass_->reduce();
  }
  void finish(Step& step) override {
    t_.sum_over_ranks(step);
    update(step);
  }
  void give_up() override { t_.ranked_->clear(); }  // after a rollback sums start from zero

 protected:
  virtual void update(Step& step) { t_.pass_->update_among_ranks(step); }

 private:
  std::optional<Error> failure_;
};

// Likewise, but each rank updates its parts of the parameters.
class Trainer::ShardedStep : public ReplicatedStep {
 public:
  using ReplicatedStep::ReplicatedStep;

 protected:
  void update(Step& step) override {
    step.norm = t_.ranked_->norm();
    t_.require_finite_step(step);
    t_.ranked_->apply(step.norm, t_.update_seed());
    t_.share_bounds();
    t_.ranked_->share_parameters();
  }

 public:
  std::vector<std::string> broken() override { return t_.ranked_->broken(); }
};

std::unique_ptr<Trainer::StepKind> Trainer::make_step_kind() {
  if (ranked_ && ranked_->holds_parts()) return std::make_unique<ShardedStep>(*this);
  if (ranked_) return std::make_unique<ReplicatedStep>(*this);
  if (tensor_parts_) return std::make_unique<TensorParallelStep>(*this);
  return std::make_unique<LocalStep>(*this);
}

}  // namespace lumen::model::train
