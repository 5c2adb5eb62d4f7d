#include "cli/convert/candidates/candidates.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "cli/names.h"
#include "run/engine/format_check.h"

namespace lumen::cli {
namespace {

constexpr double kMostBits = 16;     // of formats that are not named one by one
constexpr double kLeastShare = 0.5;  // of the budget's bits
constexpr double kTypicalColumns = 1024;

// Bits per weight, with the fields of a row of typical length.
double bits_of(const Format& f) {
  return f.bits_per_weight() + 8.0 * double(f.row_bytes) / kTypicalColumns;
}

double least_bits(const model::compress::Budget& budget, int64_t weights) {
  if (!budget.limits_size() || weights <= 0) return 0;
  return kLeastShare * std::min(kMostBits, 8.0 * double(budget.most_bytes(weights)) / double(weights));
}

bool is_group(const std::string& name) {
  return name == kGgufCandidates || name == kAnyCandidates;
}

FormatRef named_candidate(const FormatLibrary& formats, const std::string& name) {
  const FormatRef f = named_format(formats, name);
  if (!f->encodes()) throw usage_error("--candidates: '{}' can only be read", f->name);
  return f;
}

bool fits_wherever(const Format& f, const Format& other) {
  return other.block % f.block == 0;
}

}  // namespace

std::vector<FormatRef> without_beaten(const std::vector<FormatRef>& all) {
  std::vector<run::FormatError> errors;
  for (const FormatRef& f : all) errors.push_back(run::format_error(*f));
  const auto beats = [&](size_t a, size_t b) {
    const double bits = bits_of(*all[a]), others = bits_of(*all[b]);
    const bool is_smaller = errors[a].gaussian < errors[b].gaussian || bits < others;
    return fits_wherever(*all[a], *all[b]) && bits <= others && errors[a].gaussian <= errors[b].gaussian &&
           errors[a].heavy <= errors[b].heavy && (is_smaller || a < b);
  };
  std::vector<FormatRef> out;
  for (size_t i = 0; i < all.size(); ++i) {
    bool is_beaten = false;
    for (size_t k = 0; k < all.size() && !is_beaten; ++k) is_beaten = k != i && beats(k, i);
    if (!is_beaten) out.push_back(all[i]);
  }
  return out;
}

void check_candidates(const FormatLibrary& formats, const std::vector<std::string>& names) {
  for (const std::string& name : names)
    if (!is_group(name)) (void)named_candidate(formats, name);
}

std::vector<FormatRef> candidates_of(const FormatLibrary& formats, const std::vector<std::string>& names,
                                     const model::compress::Budget& budget, int64_t weights) {
  const double least = least_bits(budget, weights);
  std::vector<FormatRef> out;
  const auto add = [&](const FormatRef& f) {
    if (std::ranges::find(out, f) == out.end()) out.push_back(f);
  };
  const auto add_group = [&](bool any) {
    std::vector<FormatRef> group;
    for (const FormatRef& f : formats.all())
      if (f->encodes() && (any || f->gguf_type) && f->bits_per_weight() <= kMostBits && f->bits_per_weight() >= least &&
          f->tile_bytes == 0)
        group.push_back(f);
    for (const FormatRef& f : any ? without_beaten(group) : group) add(f);
  };
  if (names.empty()) add_group(false);
  for (const std::string& name : names) {
    if (is_group(name))
      add_group(name == kAnyCandidates);
    else
      add(named_candidate(formats, name));
  }
  return out;
}

}  // namespace lumen::cli
