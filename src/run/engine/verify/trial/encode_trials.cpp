// Trials of encoding kernels: codes in row order and transposed, bit for bit against the codec.
#include "base/round_up.h"
#include "graph/ir/build.h"
#include "number/library/library.h"
#include "run/engine/verify/trial/trial.h"

namespace lumen::run {
namespace {

using graph::Builder;
using graph::Role;
using graph::ValueId;

// Kind of a format: its levels with fields, and how codes are written; except for `everything`, one trial per kind
// suffices.
std::string kind_of(const Format& f) {
  std::string kind;
  for (const Field& field : f.fields)
    kind += fmt::format("{}{} ", int(field.level), field.type.is_float ? "f" : field.type.is_signed ? "i" : "u");
  return kind + (f.code ? "code" : "fit");
}

Trial encode_trial(const FormatRef& f) {
  Trial t{.what = fmt::format("encode {}", f->name)};
  Builder b(t.graph);
  const int64_t columns = round_up(96, std::max<int64_t>({f->block, f->tile_columns, 1}));
  const int64_t rows = columns;  // because it is also stored transposed
  graph::Type type{{rows, columns}, {}};
  const ValueId x = b.input("x", Role::data, type);
  t.graph.results = {b.cast(x, {Scalar::f32, f}), b.cast(b.permute(x, {1, 0}), {Scalar::f32, f})};
  t.graph.result_names = {"lies", "turned"};
  t.numbers["x"] = TrialNumbers::ties;
  return t;
}

}  // namespace

std::vector<Trial> encode_trials(TrialDepth depth) {
  constexpr int64_t kShort = 64, kSmall = 128;  // blocks of formats that steps encode to
  std::vector<Trial> out;
  std::set<std::string> kinds;
  for (const FormatRef& f : FormatLibrary::builtin().all()) {
    if (!f->encodes() || f->block > kShort || f->tile_columns > kSmall) continue;
    const bool is_new = kinds.insert(kind_of(*f)).second;
    if (depth != TrialDepth::everything && !is_new) continue;
    if (depth == TrialDepth::first_use && kinds.size() > 3) continue;
    out.push_back(encode_trial(f));
  }
  return out;
}

}  // namespace lumen::run
