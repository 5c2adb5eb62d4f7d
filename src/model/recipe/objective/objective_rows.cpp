#include "model/recipe/objective/objective_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <sstream>

#include "base/check.h"
#include "base/error.h"

namespace lumen::model::recipe {
namespace {

bool counts(const data::Batch& batch, size_t position) {
  return batch.weights.empty() || batch.weights[position] > 0;
}

}  // namespace

std::vector<float> answer_logp(const data::Batch& batch, const std::vector<float>& losses) {
  LUMEN_CHECK(losses.size() == static_cast<size_t>(batch.rows * batch.length));
  std::vector<float> out;
  for (int64_t r = 0; r < batch.rows; ++r) {
    double sum = 0;
    for (size_t i = r * batch.length; i < static_cast<size_t>((r + 1) * batch.length); ++i)
      if (counts(batch, i)) sum -= losses[i];
    out.push_back(static_cast<float>(sum));
  }
  return out;
}

data::Batch mismatched(const data::Batch& batch) {
  data::Batch out = batch;
  out.weights.assign(out.tokens.size(), 0.0F);
  const auto first = [&](int64_t row) {
    int64_t t = 0;
    while (t < batch.length && !counts(batch, row * batch.length + t)) ++t;
    return t;
  };
  for (int64_t r = 0; r < batch.rows; ++r) {
    const int64_t other = (r + 1) % batch.rows;
    int64_t to = first(r);
    for (int64_t from = first(other); from < batch.length && to < batch.length; ++from, ++to) {
      const size_t source = other * batch.length + from;
      if (!counts(batch, source)) break;
      const size_t place = r * batch.length + to;
      out.targets[place] = batch.targets[source];
      out.weights[place] = 1;
      if (to + 1 < batch.length) out.tokens[place + 1] = batch.targets[source];
    }
  }
  return out;
}

std::string RowLog::key(const data::Batch& batch, int64_t row) {
  std::vector<int32_t> content;
  const auto begin = static_cast<size_t>(row * batch.length), end = begin + batch.length;
  // Positions after the answer are padding.
  size_t last = end;
  while (last > begin && !counts(batch, last - 1)) --last;
  for (size_t i = begin; i < last; ++i) {
    content.push_back(batch.tokens[i]);
    content.push_back(counts(batch, i) ? batch.targets[i] : -1);
  }
  return hash_bytes(content.data(), content.size() * sizeof(int32_t)).hex();
}

bool RowLog::has(const data::Batch& batch) const {
  for (int64_t r = 0; r < batch.rows; ++r) {
    if (!rows_.contains(key(batch, r))) return false;
  }
  return true;
}

void RowLog::add(const data::Batch& batch, const std::vector<float>& logp) {
  LUMEN_CHECK(logp.size() == static_cast<size_t>(batch.rows));
  for (int64_t r = 0; r < batch.rows; ++r) {
    rows_.emplace(key(batch, r), logp[r]);
  }
}

std::vector<float> RowLog::of(const data::Batch& batch) const {
  std::vector<float> out;
  for (int64_t r = 0; r < batch.rows; ++r) {
    const auto found = rows_.find(key(batch, r));
    if (found == rows_.end())
      throw Error(Exit::user, "the reference's log probability of a row is missing",
                  "it was computed for the initial rows of the run; start a new run from this one's model");
    out.push_back(found->second);
  }
  return out;
}

std::string RowLog::text() const {
  std::string out;
  for (const auto& [key, logp] : rows_) {
    uint32_t bits = 0;
    std::memcpy(&bits, &logp, sizeof bits);
    out += fmt::format("{} {:08x}\n", key, bits);
  }
  return out;
}

RowLog RowLog::read(const std::string& text, const std::string& place) {
  RowLog out;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    // 32 digits of the row's hash, 8 of the float's bits.
    const bool digits = line.size() == 41 && line[32] == ' ' &&
                        line.find_first_not_of("0123456789abcdef ") == std::string::npos && line.rfind(' ') == 32;
    const auto bits = digits ? static_cast<uint32_t>(std::strtoul(line.c_str() + 33, nullptr, 16)) : 0U;
    float logp = 0;
    std::memcpy(&logp, &bits, sizeof logp);
    if (!digits || !std::isfinite(logp)) throw user_error("{}: '{}' is no log probability", place, line);
    out.rows_[line.substr(0, 32)] = logp;
  }
  return out;
}

}  // namespace lumen::model::recipe
