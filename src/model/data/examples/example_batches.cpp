#include "model/data/examples/example_batches.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "base/error.h"
#include "model/data/examples/order.h"

namespace lumen::model::data {
namespace {

constexpr uint64_t kSplitSeed = 0x76616c6964;  // the same rows are for validation whatever the seed
constexpr uint64_t kPatternLength = 1000;      // shares are held to a thousandth

// How often each set stands in the pattern: shares of its length, the largest rests rounded up.
std::vector<uint64_t> pattern_counts(const std::vector<double>& mix) {
  const double total = std::accumulate(mix.begin(), mix.end(), 0.0);
  std::vector<uint64_t> counts;
  std::vector<std::pair<double, size_t>> rests;
  uint64_t used = 0;
  for (size_t i = 0; i < mix.size(); ++i) {
    const double exact = mix[i] / total * kPatternLength;
    counts.push_back(static_cast<uint64_t>(exact));
    rests.emplace_back(counts.back() - exact, i);
    used += counts.back();
  }
  std::sort(rests.begin(), rests.end());
  for (size_t i = 0; used < kPatternLength; ++i, ++used) ++counts[rests[i % rests.size()].second];
  return counts;
}

// The row that each unit comes of, counted from 0: a chat may give several sequences.
std::vector<uint32_t> rows_of(const ExampleStore& store, uint64_t unit) {
  std::vector<uint32_t> out;
  const auto all = store.examples();
  for (uint64_t i = 0; i < all.size(); i += unit) {
    const bool goes_on =
        i > 0 && all[i].line != 0 && all[i].line == all[i - unit].line && all[i].file == all[i - unit].file;
    out.push_back(i == 0 ? 0 : out.back() + (goes_on ? 0 : 1));
  }
  return out;
}

}  // namespace

ExampleBatches::ExampleBatches(std::vector<LoadedExamples> training, std::vector<LoadedExamples> validation,
                               BatchOptions options)
    : options_(std::move(options)) {
  LUMEN_CHECK(!training.empty() && options_.rows >= 1 && options_.length >= 1);
  form_ = training.front().store->form();
  std::vector<Hash> hashes;
  for (const auto* sets : {&training, &validation}) {
    for (const LoadedExamples& set : *sets) {
      if (set.store->form() != form_)
        throw Error(Exit::user,
                    fmt::format("'{}' has rows of another kind than '{}'", set.files.front().path,
                                training.front().files.front().path),
                    "documents and chats can be mixed; pairs and labels cannot");
      files_.insert(files_.end(), set.files.begin(), set.files.end());
      hashes.push_back(set.store->hash());
      report_.add(set.store->report());
    }
  }
  if (form_ == RowForm::pairs && options_.rows % 2 != 0)
    throw usage_error("a batch of {} rows: pairs need an even number", options_.rows);
  hash_ = hash_bytes(hashes.data(), hashes.size() * sizeof(Hash));

  for (const LoadedExamples& set : training) {
    if (set.store->examples().size() / unit() > UINT32_MAX)
      throw user_error("'{}': more than 2^32 examples", set.files.front().path);
    // What comes of one row stays together: else the model would be measured on what it was trained on.
    const std::vector<uint32_t> rows = rows_of(*set.store, unit());
    const uint64_t count = rows.empty() ? 0 : rows.back() + 1;
    uint64_t kept = 0;
    if (validation.empty() && options_.validation > 0 && count > 1) {
      kept = std::llround(count * options_.validation);
      kept = std::clamp<uint64_t>(kept, 1, count - 1);
    }
    const Permutation order(std::max<uint64_t>(count, 1), kSplitSeed, 0);
    std::vector<uint32_t> for_training, for_validation;
    for (uint64_t i = 0; i < rows.size(); ++i) (order.at(rows[i]) < kept ? for_validation : for_training).push_back(i);
    add(training_, set, for_training);
    if (!for_validation.empty()) add(validation_, set, for_validation);
  }
  for (const LoadedExamples& set : validation) {
    std::vector<uint32_t> all(set.store->examples().size() / unit());
    std::iota(all.begin(), all.end(), 0U);
    add(validation_, set, all);
  }
  if (options_.mix.empty()) return;
  if (options_.mix.size() != training.size())
    throw usage_error("{} shares for {} data sets", options_.mix.size(), training.size());
  for (const double share : options_.mix)
    if (!(share > 0) || !std::isfinite(share)) throw usage_error("a share of {}: shares are above 0", share);
  const std::vector<uint64_t> counts = pattern_counts(options_.mix);
  std::vector<uint32_t> sorted;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] == 0 || training_.parts[i].units == 0)
      throw user_error("'{}' has a share that no row comes of", training[i].files.front().path);
    sorted.insert(sorted.end(), counts[i], i);
  }
  const Permutation order(kPatternLength, kSplitSeed, 1);
  before_.assign(counts.size(), {});
  for (uint64_t i = 0; i < kPatternLength; ++i) {
    for (size_t set = 0; set < counts.size(); ++set)
      before_[set].push_back(i == 0 ? 0 : before_[set][i - 1] + (pattern_[i - 1] == set));
    pattern_.push_back(sorted[order.at(i)]);
  }
  for (size_t set = 0; set < counts.size(); ++set)
    before_[set].push_back(before_[set].back() + (pattern_.back() == set));
}

bool ExampleBatches::has_chats() const {
  return form_ != RowForm::sequences ||
         std::any_of(training_.parts.begin(), training_.parts.end(), [](const Part& part) {
           const auto all = part.store->examples();
           return std::any_of(all.begin(), all.end(),
                              [](const StoredExample& e) { return (e.flags & StoredExample::kText) == 0; });
         });
}

void ExampleBatches::add(Side& side, const LoadedExamples& set, const std::vector<uint32_t>& chosen) {
  std::vector<std::string> names;
  for (const DataFile& f : set.files) names.push_back(std::filesystem::path(f.path).filename().string());
  Part part{set.store,
            plan_rows(*set.store, chosen,
                      {.length = options_.length,
                       .packing = options_.packing,
                       .overflow = options_.overflow,
                       .seed = options_.seed},
                      names, &report_),
            0};
  part.units = part.plan.rows() / unit();
  side.rows += part.units;
  for (const PlanItem& item : part.plan.items) {
    side.tokens += item.length - 1;
    side.learned += item.learned;
  }
  side.parts.push_back(std::move(part));
}

ExampleBatches::Place ExampleBatches::training_place(uint64_t row) const {
  const uint64_t number = row / unit(), second = row % unit();
  uint64_t set = 0, at = 0, epoch = 0;
  if (pattern_.empty()) {
    epoch = number / training_.rows;
    at = Permutation(training_.rows, options_.seed, epoch).at(number % training_.rows);
    while (at >= training_.parts[set].units) at -= training_.parts[set++].units;
  } else {
    const uint64_t round = number / kPatternLength, place = number % kPatternLength;
    set = pattern_[place];
    const uint64_t drawn = round * before_[set].back() + before_[set][place];
    const uint64_t units = training_.parts[set].units;
    epoch = drawn / units;
    at = Permutation(units, options_.seed + (set + 1) * 0x9e3779b97f4a7c15u, epoch).at(drawn % units);
  }
  return {&training_.parts[set], at * unit() + second};
}

uint64_t ExampleBatches::learned_of(const Place& place) const {
  uint64_t total = 0;
  for (uint64_t i = place.part->plan.begins[place.row]; i < place.part->plan.begins[place.row + 1]; ++i)
    total += place.part->plan.items[i].learned;
  return total;
}

Batch ExampleBatches::empty_batch(int64_t rows) const {
  const size_t size = rows * options_.length;
  Batch batch;
  batch.rows = rows;
  batch.length = options_.length;
  batch.tokens.assign(size, 0);
  batch.targets.assign(size, 0);
  batch.weights.assign(size, 0.0F);
  if (has_starts()) batch.starts.assign(size, 0);
  if (form_ == RowForm::labels) batch.labels.assign(rows, 0.0F);
  return batch;
}

void ExampleBatches::put(Batch& batch, int64_t row, const Place& place, float weight) const {
  const size_t first = row * options_.length;
  size_t at = 0;
  for (uint64_t i = place.part->plan.begins[place.row]; i < place.part->plan.begins[place.row + 1]; ++i) {
    const PlanItem& item = place.part->plan.items[i];
    const StoredExample& example = place.part->store->examples()[item.example];
    const auto tokens = place.part->store->tokens(example).subspan(item.first, item.length);
    const size_t start = at;
    for (size_t k = 0; k + 1 < tokens.size(); ++k, ++at) {
      batch.tokens[first + at] = tokens[k] & ~ExampleStore::kLearned;
      batch.targets[first + at] = tokens[k + 1] & ~ExampleStore::kLearned;
      if (tokens[k + 1] >= ExampleStore::kLearned) batch.weights[first + at] = weight;
      if (!batch.starts.empty()) batch.starts[first + at] = start;
    }
    if (!batch.labels.empty()) batch.labels[row] = (example.flags & StoredExample::kWanted) != 0 ? 1.0F : 0.0F;
  }
  // The padding of the row is a sequence of its own.
  const size_t padding = at;
  for (; !batch.starts.empty() && at < static_cast<size_t>(options_.length); ++at) batch.starts[first + at] = padding;
}

Batch ExampleBatches::training(int64_t step, int64_t part) const {
  const auto rows = static_cast<uint64_t>(options_.rows), parts = static_cast<uint64_t>(options_.accumulate);
  const uint64_t begin = step * parts * rows;
  float weight = 1;
  if (form_ == RowForm::sequences) {
    uint64_t learned = 0;
    for (uint64_t i = 0; i < parts * rows; ++i) learned += learned_of(training_place(begin + i));
    weight = 1 / static_cast<float>(learned);
  }
  Batch batch = empty_batch(options_.rows);
  for (uint64_t i = 0; i < rows; ++i) put(batch, i, training_place(begin + part * rows + i), weight);
  return batch;
}

int64_t ExampleBatches::validation_rows() const {
  return validation_.rows * unit();
}

Batch ExampleBatches::validation(int64_t first, int64_t rows) const {
  LUMEN_CHECK(first >= 0 && rows >= 1 && first <= validation_rows() - rows);
  Batch batch = empty_batch(rows);
  for (int64_t i = 0; i < rows; ++i) {
    uint64_t at = first + i;
    size_t set = 0;
    while (at >= validation_.parts[set].plan.rows()) at -= validation_.parts[set++].plan.rows();
    put(batch, i, {&validation_.parts[set], at}, 1);
  }
  return batch;
}

void ExampleBatches::require(double vocabulary) const {
  if (training_.rows == 0)
    throw Error(Exit::user, "no example is left to train on\n" + report_.table(),
                "a larger --length keeps longer ones");
  if (validation_.rows == 0)
    throw Error(Exit::user, "no example is left to validate on",
                "give more rows, a larger --validation, or --validation-data FILE");
  for (const auto* side : {&training_, &validation_}) {
    for (const Part& part : side->parts) {
      if (part.store->largest() < vocabulary) continue;
      throw Error(
          Exit::user,
          fmt::format("the data have token {}, but the model has rows for {} only", part.store->largest(), vocabulary),
          "the tokenizer is not the model's");
    }
  }
}

int64_t ExampleBatches::steps_of(double epochs) const {
  const double units = training_.rows * unit() * epochs;
  return std::max<int64_t>(1, static_cast<int64_t>(std::ceil(units / (options_.rows * options_.accumulate))));
}

}  // namespace lumen::model::data
