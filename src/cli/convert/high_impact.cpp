#include "cli/convert/high_impact.h"

#include <algorithm>
#include <charconv>
#include <regex>

#include "base/error.h"
#include "base/file/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "cli/names.h"
#include "cli/output.h"

namespace lumen::cli {
namespace {

constexpr double kUsualRatio = 0.05;
constexpr double kUsualRatios[] = {0.02, 0.05, 0.1, 0.15, 0.2};  // the choices besides 0

// A regular expression that matches only this name.
std::string only(const std::string& name) {
  std::string out = "^";
  for (const char c : name) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    if (!plain) out += '\\';
    out += c;
  }
  return out + "$";
}

double ratio_of(const HighImpact& high, const model::arch::Parameter& p) {
  double ratio = high.ratios.empty() ? kUsualRatio : high.ratios.front();
  for (const auto& [pattern, own] : high.ratios_of_names) {
    const std::regex regex(pattern);
    if (std::regex_search(p.gguf, regex) || std::regex_search(p.name, regex)) ratio = own;
  }
  return ratio;
}

}  // namespace

HighImpact high_impact(const FormatLibrary& formats, const CalibratedFlags& flags) {
  HighImpact out;
  for (const std::string& name : flags.high) {
    out.formats.push_back(named_format(formats, name));
    if (!out.formats.back()->encodes()) throw usage_error("--high-impact: '{}' can only be read", name);
  }
  for (const std::string& text : flags.high_ratios) {
    const size_t at = text.rfind('=');
    const std::string share = at == std::string::npos ? text : text.substr(at + 1);
    double ratio = -1;
    const auto [end, failure] = std::from_chars(share.data(), share.data() + share.size(), ratio);
    if (failure != std::errc{} || end != share.data() + share.size() || !(ratio >= 0 && ratio < 1))
      throw usage_error("--high-ratio: '{}' is no share of columns, from 0 to less than 1", share);
    if (at == std::string::npos) {
      out.ratios.push_back(ratio);
      continue;
    }
    try {
      (void)std::regex(text.substr(0, at));
    } catch (const std::regex_error&) {
      throw usage_error("--high-ratio: '{}' is no regular expression", text.substr(0, at));
    }
    out.ratios_of_names.emplace_back(text.substr(0, at), ratio);
  }
  if (!flags.budget.empty()) {
    if (!out.ratios_of_names.empty()) throw usage_error("--high-ratio: with --budget shares are chosen");
    if (out.ratios.empty()) out.ratios.assign(std::begin(kUsualRatios), std::end(kUsualRatios));
  }
  std::ranges::sort(out.ratios);
  return out;
}

void check_high_impact(const Shared& shared, const CalibratedFlags& flags) {
  const HighImpact high = high_impact(shared.library()->formats(), flags);
  if (high.formats.size() > 1 || high.ratios.size() > 1)
    throw usage_error("--high-impact: without --budget there is one format, and one share of each weight");
  (void)model::recipe::product_type(flags.precision, shared.library()->formats());
}

std::string identity_of(std::span<const model::compress::ColumnGroup> groups,
                        std::span<const model::compress::WeightParts> parts) {
  std::string all;
  for (const model::compress::ColumnGroup& g : groups)
    all += fmt::format("{}: {}\n", fmt::join(g.weights, " "), fmt::join(g.order, " "));
  for (const model::compress::WeightParts& p : parts)
    all += fmt::format("{}: {}\n", p.weight, fmt::join(p.columns, " "));
  return "columns " + hash_text(all).hex() + "\n";
}

namespace {

void rank(const Shared& shared, const model::arch::Model& model, const std::string& out, const CalibratedFlags& flags,
          std::vector<model::compress::ColumnGroup>& groups) {
  CalibratedFlags ranked = flags;  // a copy, because read() sets run options
  std::vector<model::text::TokenId> text = ranked.read(model);
  text.resize(std::min<size_t>(text.size(), flags.score_chunks * ranked.run.length));
  run::Engine engine = shared.engine();
  Progress progress;
  const AtomicFolder scratch(std::filesystem::absolute(out + ".ranks"));  // deleted at the end
  model::compress::rank_columns(engine, model, text, ranked.run, scratch.path(), groups, [&](double share) {
    progress.update(fmt::format("ranks columns {:.0f}%", 100 * share));
  });
  progress.finish(fmt::format("columns ranked on {} tokens", text.size()));
}

}  // namespace

model::arch::Model with_high_impact(const Shared& shared, const model::arch::Model& model,
                                    model::compress::QuantizeOptions& what, const std::string& out,
                                    CalibratedFlags& flags, bool sizes) {
  const HighImpact high = high_impact(model.family->library().formats(), flags);
  const FormatRef& format = high.formats.front();
  const std::map<std::string, FormatRef> formats = model::compress::choose_formats(model, what, nullptr);
  std::vector<std::string> names;
  for (const auto& [name, low] : formats)
    if (!model::compress::is_float_format(*low) && low->name != format->name) names.push_back(name);
  std::vector<model::compress::ColumnGroup> groups = model::compress::column_groups(model, names);
  if (sizes) {
    for (model::compress::ColumnGroup& g : groups)
      for (int64_t c = 0; c < g.columns; ++c) g.order.push_back(c);
  } else {
    rank(shared, model, out, flags, groups);
  }
  std::vector<model::compress::WeightParts> parts;
  int64_t cut = 0, all = 0;
  for (const model::compress::ColumnGroup& g : groups)
    for (const std::string& name : g.weights) {
      const model::arch::Parameter& p = *model.find(name);
      const FormatRef& low = formats.at(name);
      const int64_t n = model::compress::high_columns(ratio_of(high, p), g.columns, *format, *low);
      all += g.columns;
      cut += n;
      if (n == 0) continue;
      parts.push_back({name, {n, g.columns - n}});
      what.tensor_types.emplace_back(only(graph::column_part(p.gguf, 0)), format->name);
      what.tensor_types.emplace_back(only(graph::column_part(p.gguf, 1)), low->name);
    }
  note(fmt::format("columns: {} of {} weights in parts; {:.2f} % of columns in {}", parts.size(), formats.size(),
                   100.0 * cut / std::max<int64_t>(all, 1), format->name));
  if (parts.empty())
    throw Error(
        Exit::user, fmt::format("no weight has room for columns in {}", format->name),
        "blocks of both formats must divide a part; take formats with smaller blocks, or a larger --high-ratio");
  flags.cut = identity_of(groups, parts);
  return model::compress::with_parts_of(model, groups, parts);
}

}  // namespace lumen::cli
