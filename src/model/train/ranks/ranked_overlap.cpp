// RankedStep's overlap of exchanges with a step's launches, on GPUs whose exchanges run on a stream. Gradients are sent
// and summed in buckets as soon as the backward pass has produced them. Updated parameters arrive while the next step
// begins, which waits for each before its first use. The host never waits, and a recorded step (CUDA graph) includes
// all of this. Results equal those of RankedStep without overlap, bit for bit.
#include <algorithm>
#include <memory>
#include <numeric>
#include <span>

#include "base/check.h"
#include "model/train/ranks/rank_graphs.h"
#include "model/train/ranks/ranks.h"

namespace lumen::model::train {
namespace {

// Event numbers of the stream.
constexpr size_t kSummed = run::Communicator::kFreePoint;
constexpr size_t gathered_point(size_t bucket) {
  return kSummed + 1 + bucket;
}

}  // namespace

RankedStep::~RankedStep() {
  if (!stream_) return;
  try {
    engine_.device().hold_awaited();
  } catch (const Error&) {
    // the driver has failed, and nothing is launched any more
  }
}

// Sorted by positions in rank 0's program: all ranks exchange in the same order, whatever their plans.
std::vector<const Cut*> RankedStep::in_order(const std::function<int64_t(const Cut&)>& place) const {
  std::vector<int64_t> places;
  for (const Cut& cut : cuts_) places.push_back(place(cut));
  ranks_->broadcast(std::as_writable_bytes(std::span(places)), 0);
  std::vector<size_t> order(cuts_.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return places[a] < places[b]; });
  std::vector<const Cut*> out;
  for (const size_t i : order) out.push_back(&cuts_[i]);
  return out;
}

void RankedStep::begin_overlap(run::Program& gradients) {
  gradients_ = &gradients;
  for (const Bucket& bucket : buckets_)
    for (const Cut* cut : bucket.cuts)
      if (exchanged_in(*cut, reduced_in_))
        bucket.encode->bind(recipe::kGradient + cut->whole.name, gradient(gradients, *cut));

  run::LaunchHooks reading;
  const bool gathers = holds_parts() && !gathered_in_ && stream_->holds_replays();
  if (holds_parts() && !gathered_in_) {
    gathered_ = buckets_of(in_order([&](const Cut& cut) { return gradients.first_use(cut.whole.name); }));
    for (size_t b = 0; b < gathered_.size(); ++b) stream_->mark(gathered_point(b));  // no exchange is pending
  }
  reading.begin = [this, gathers] {
    is_launched_ = false;
    if (gathers)
      engine_.device().launches_wait_themselves(true);
    else
      engine_.device().hold_awaited();
  };
  reading.launched = [this, gathers] {
    is_launched_ = true;
    if (gathers) engine_.device().launches_wait_themselves(false);
  };
  std::vector<size_t> bucket_of;
  for (size_t b = 0; gathers && b < gathered_.size(); ++b)
    for (const Cut* cut : gathered_[b]) {
      reading.read.push_back(cut->whole.name);
      bucket_of.push_back(b);
    }
  const auto hold = [this](size_t bucket) {
    if (!is_held_[bucket]) stream_->hold_launches(gathered_point(bucket));
    is_held_[bucket] = true;
  };
  reading.at_begin = [this, gathers] { is_held_.assign(gathers ? gathered_.size() : 0, false); };
  reading.before_read = [hold, bucket_of](size_t i) { hold(bucket_of[i]); };
  reading.at_end = [this, hold] {
    if (!is_held_.empty()) hold(is_held_.size() - 1);  // the last one arrives after all others
  };

  run::LaunchHooks reducing = reading;
  std::vector<size_t> sent_with;
  for (size_t b = 0; b < buckets_.size(); ++b)
    for (const Cut* cut : buckets_[b].cuts) {
      reducing.written.push_back(recipe::kGradient + cut->whole.name);
      sent_with.push_back(b);
    }
  reducing.at_begin = [this, first = reading.at_begin] {
    first();
    sent_ = 0;
    missing_.clear();
    for (const Bucket& bucket : buckets_) missing_.push_back(std::ssize(bucket.cuts));
  };
  reducing.when_written = [this, sent_with](size_t i) {
    --missing_[sent_with[i]];
    while (sent_ < buckets_.size() && missing_[sent_] == 0) send(buckets_[sent_++]);
  };
  reducing.at_end = [this, last = reading.at_end] {
    LUMEN_CHECK(sent_ == buckets_.size(), "gradients that no launch has made");
    stream_->mark(kSummed);
    stream_->hold_launches(kSummed);
    last();
  };
  reading_ = std::make_shared<run::LaunchHooks>(std::move(reading));
  reducing_ = std::make_shared<run::LaunchHooks>(std::move(reducing));
}

void RankedStep::before_batch(run::Program& program, bool is_last) {
  if (!stream_) return;
  LUMEN_CHECK(&program == gradients_);
  program.set_hooks(is_last ? reducing_ : reading_);
}

// Runs after the launches that have produced its gradients.
void RankedStep::send(Bucket& bucket) {
  run::Device& device = engine_.device();
  const auto run_beside = [&](const std::shared_ptr<run::Program>& program) {
    if (!program) return;
    device.launch_on(stream_);
    const std::unique_ptr<run::Device, void (*)(run::Device*)> back(&device,
                                                                    [](run::Device* d) { d->launch_on(nullptr); });
    program->enqueue();
  };
  stream_->follow_launches();
  run_beside(bucket.encode);
  const Pieces gradients = gradient_pieces(bucket, *gradients_);
  ranks_->enqueue(gradients.to, gradients.from);
  run_beside(bucket.sum);
  if (holds_parts()) return;
  const Pieces sums = shared_pieces(bucket.cuts, recipe::kGradient);
  ranks_->enqueue(sums.to, sums.from);
}

// In the order in which the next step reads them.
void RankedStep::gather_parameters() {
  std::vector<std::span<const std::byte>> places;
  stream_->follow_launches();
  for (size_t b = 0; b < gathered_.size(); ++b) {
    const Pieces pieces = shared_pieces(gathered_[b], "");
    ranks_->enqueue(pieces.to, pieces.from);
    stream_->mark(gathered_point(b));
    for (const Cut* cut : gathered_[b]) {
      const run::DeviceTensorRef all = whole(*cut, "");
      places.emplace_back(reinterpret_cast<const std::byte*>(all->data()), all->bytes());
    }
  }
  engine_.device().await_before_use(*stream_, gathered_point(gathered_.size() - 1), std::move(places));
}

}  // namespace lumen::model::train
