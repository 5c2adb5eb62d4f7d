#include "model/train/trainer/run_state.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/structured/json.h"

namespace lumen::model::train {
namespace {

using nlohmann::json;

constexpr size_t kMostSkipped = 1 << 20;
constexpr int64_t kLastStep = int64_t{1} << 53;

int64_t bounded(const json& object, const char* key, int64_t least, const std::string& where) {
  const int64_t value = json_integer(object, key, where);
  if (value < least || value > kLastStep) throw user_error("{}: \"{}\" is out of range: {}", where, key, value);
  return value;
}

std::vector<double> numbers_of(const json& object, const char* key, const std::string& where) {
  const json& list = json_member(object, key, where);
  if (!list.is_array() || list.size() > RunState::kWindow)
    throw user_error("{}: \"{}\" is no list of up to {} numbers", where, key, RunState::kWindow);
  std::vector<double> out;
  for (const json& value : list) {
    if (!value.is_number()) throw user_error("{}: \"{}\" holds something that is no number", where, key);
    out.push_back(value.get<double>());
  }
  return out;
}

}  // namespace

int64_t RunState::batch_of(int64_t step) const {
  for (const int64_t batch : skipped) {
    if (batch > step) break;
    ++step;
  }
  return step;
}

void RunState::skip(int64_t batch) {
  const auto at = std::lower_bound(skipped.begin(), skipped.end(), batch);
  if (at == skipped.end() || *at != batch) skipped.insert(at, batch);
}

int64_t RunState::most_skipped(int64_t rollbacks) {
  int64_t all = 0;
  for (int64_t width = 1; rollbacks > 0; --rollbacks, width = std::min(2 * width, kWidest)) {
    if (width == kWidest) return all + std::min(rollbacks, kLastStep / kWidest) * kWidest;
    all += width;
  }
  return all;
}

void RunState::push(double loss, double norm) {
  for (const auto& [list, value] : {std::pair{&losses, loss}, {&norms, norm}}) {
    list->push_back(value);
    if (list->size() > kWindow) list->erase(list->begin());
  }
}

json to_json(const RunState& s) {
  json out = {{"skipped", s.skipped},     {"rollbacks", s.rollbacks}, {"failed_at", s.failed_at},
              {"width", s.width},         {"losses", s.losses},       {"norms", s.norms},
              {"best_step", s.best_step}, {"stale", s.stale},         {"evaluated_at", s.evaluated_at}};
  if (s.best) out["best"] = *s.best;
  return out;
}

RunState run_state_of(const json& more, const std::string& where) {
  RunState s;
  const auto found = more.find("run");
  if (found == more.end()) return s;
  if (!found->is_object()) throw user_error("{}: \"run\" is no object", where);
  const json& run = *found;
  const json& skipped = json_member(run, "skipped", where);
  if (!skipped.is_array() || skipped.size() > kMostSkipped)
    throw user_error("{}: \"skipped\" is no list of batches", where);
  for (const json& batch : skipped) {
    const bool whole = batch.is_number_integer();
    const int64_t number = whole ? batch.get<int64_t>() : -1;
    if (number < 0 || number > kLastStep || (!s.skipped.empty() && number <= s.skipped.back()))
      throw user_error("{}: \"skipped\" is no rising list of batches", where);
    s.skipped.push_back(number);
  }
  s.rollbacks = bounded(run, "rollbacks", 0, where);
  s.failed_at = bounded(run, "failed_at", -1, where);
  s.width = bounded(run, "width", 0, where);
  s.losses = numbers_of(run, "losses", where);
  s.norms = numbers_of(run, "norms", where);
  s.best_step = bounded(run, "best_step", -1, where);
  s.stale = bounded(run, "stale", 0, where);
  s.evaluated_at = bounded(run, "evaluated_at", -1, where);
  if (const auto best = run.find("best"); best != run.end()) {
    if (!best->is_number()) throw user_error("{}: \"best\" is no number", where);
    s.best = best->get<double>();
  }
  return s;
}

}  // namespace lumen::model::train
