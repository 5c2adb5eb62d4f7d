#include "cli/convert/experts/experts.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "base/file/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "cli/output.h"
#include "model/compress/split/expert_parts.h"

namespace lumen::cli {
namespace {

using Expert = model::report::CompressionReport::Expert;

double bits_of(const Format& f) {
  return 8.0 * f.block_bytes / f.block;
}

std::vector<FormatRef> formats_of(const FormatLibrary& library, const ExpertFlags& flags) {
  std::vector<FormatRef> out;
  for (const std::string& name : flags.formats) {
    out.push_back(named_format(library, name));
    if (!out.back()->encodes()) throw usage_error("--experts: '{}' can only be read", name);
    if (out.size() > 1 && bits_of(*out.back()) >= bits_of(*out[out.size() - 2]))
      throw usage_error("--experts: '{}' has {:.4g} bits, no fewer than '{}' before it with {:.4g}", name,
                        bits_of(*out.back()), out[out.size() - 2]->name, bits_of(*out[out.size() - 2]));
  }
  return out;
}

// A regular expression that matches only this name.
std::string only(const std::string& name) {
  std::string out = "^";
  for (const char c : name) {
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '_') out += '\\';
    out += c;
  }
  return out + "$";
}

void add_shares(const Shared& shared, const model::arch::Model& model, const std::string& out, LayerTextFlags& text,
                std::vector<model::compress::ExpertLayer>& layers) {
  const std::vector<std::vector<model::text::TokenId>> texts = text.read_each(model);
  run::Engine engine = shared.engine();
  Progress progress;
  int64_t tokens = 0;
  const AtomicFolder scratch(std::filesystem::absolute(out + ".experts"));  // deleted at the end
  for (size_t d = 0; d < texts.size(); ++d) {
    tokens += std::ssize(texts[d]);
    const std::filesystem::path folder = scratch.path() / std::to_string(d);
    std::filesystem::create_directories(folder);
    model::compress::add_expert_shares(engine, model, texts[d], text.run, folder, layers, [&](double share) {
      if (interrupted().load()) throw Error(Exit::interrupted, "stopped");
      progress.update(fmt::format("experts of text {}/{} {:.0f}%", d + 1, texts.size(), 100 * share));
    });
  }
  progress.finish(fmt::format("experts: measured on {} tokens of {} {}", tokens, texts.size(),
                              texts.size() == 1 ? "text" : "texts"));
}

void tell(const model::compress::ExpertLayer& layer, const std::vector<FormatRef>& formats, std::vector<Expert>& out) {
  for (int64_t e = 0; e < layer.experts; ++e) {
    const FormatRef& format = formats[layer.classes.classes[e]];
    Expert x{layer.layer,
             e,
             format->name,
             bits_of(*format),
             layer.significance.mean[e],
             layer.significance.spread[e],
             layer.classes.margins[e],
             layer.rows[e],
             {}};
    for (const std::vector<double>& of : layer.shares) x.shares.push_back(of[e]);
    out.push_back(std::move(x));
  }
}

}  // namespace

void check_experts(const Shared& shared, const ExpertFlags& flags) {
  const std::vector<FormatRef> formats = formats_of(shared.library()->formats(), flags);
  if (flags.bits && formats.empty()) throw usage_error("--expert-bits is an average of --experts");
  if (flags.bits && *flags.bits < bits_of(*formats.back()))
    throw usage_error("--expert-bits: {} is less than the {:.4g} bits of {}", *flags.bits, bits_of(*formats.back()),
                      formats.back()->name);
}

ExpertChoice with_expert_classes(const Shared& shared, const model::arch::Model& model,
                                 model::compress::QuantizeOptions& what, const std::string& out, LayerTextFlags& text,
                                 const ExpertFlags& flags) {
  const std::vector<FormatRef> formats = formats_of(model.family->library().formats(), flags);
  std::vector<model::compress::ExpertLayer> layers = model::compress::expert_layers(model);
  if (layers.empty())
    throw Error(Exit::user, fmt::format("'{}' has no experts that a router picks", model.name), "leave out --experts");
  add_shares(shared, model, out, text, layers);
  std::vector<double> widths;
  for (const FormatRef& f : formats) widths.push_back(bits_of(*f));
  model::compress::choose_expert_classes(layers, widths, flags.bits);
  // Shared experts: in layers with mixtures, the matrices at the same places that the router does not select.
  const std::map<std::string, FormatRef> plain = model::compress::choose_formats(model, what, nullptr);
  ExpertChoice choice;
  std::vector<model::compress::ExpertParts> parts;
  std::set<std::string> stacked, roles;
  std::set<int> mixed;
  std::string identity;
  for (const model::compress::ExpertLayer& layer : layers) {
    parts.push_back({layer.weights, layer.classes.classes});
    mixed.insert(layer.layer);
    const std::vector<size_t> used = model::compress::used_classes(parts.back());
    for (const std::string& name : layer.weights) {
      const model::arch::Parameter& p = *model.find(name);
      stacked.insert(name);
      roles.insert(p.role);
      for (size_t i = 0; i < used.size(); ++i)
        what.tensor_types.emplace_back(only(used.size() == 1 ? p.gguf : graph::expert_part(p.gguf, i)),
                                       formats[used[i]]->name);
    }
    identity += fmt::format("{}: {}\n", fmt::join(layer.weights, " "), fmt::join(layer.classes.classes, " "));
    tell(layer, formats, choice.experts);
  }
  for (const model::arch::Parameter& p : model.parameters) {
    const auto chosen = plain.find(p.name);
    if (stacked.contains(p.name) || !roles.contains(p.role) || !mixed.contains(graph::layer_of(p.name)) ||
        chosen == plain.end() || bits_of(*chosen->second) >= widths.front())
      continue;
    what.tensor_types.emplace_back(only(p.gguf), formats.front()->name);
  }
  choice.cut = "experts " + hash_text(identity).hex() + "\n";
  choice.model = model::compress::with_expert_parts(model, parts);
  return choice;
}

std::string table_of(const std::vector<Expert>& experts) {
  std::map<int64_t, std::vector<const Expert*>> layers;
  for (const Expert& e : experts) layers[e.layer].push_back(&e);
  std::string out =
      fmt::format("{:<6} {:>7} {:>8}  {}\n", "layer", "bits", "margin", "experts, most significant first");
  for (auto& [layer, of] : layers) {
    std::ranges::stable_sort(of, [](const auto* a, const auto* b) { return a->share > b->share; });
    std::vector<std::pair<std::string, int>> counts;
    double margin = 1, bits = 0;
    for (const Expert* e : of) {
      if (counts.empty() || counts.back().first != e->format) counts.emplace_back(e->format, 0);
      ++counts.back().second;
      margin = std::min(margin, e->margin);
      bits += e->bits / of.size();
    }
    std::string classes, most;
    for (const auto& [format, count] : counts)
      classes += fmt::format("{}{} in {}", classes.empty() ? "" : ", ", count, format);
    for (size_t i = 0; i < std::min<size_t>(of.size(), 3); ++i)
      most += fmt::format("; {}: J {:.4f} V {:.4f}", of[i]->expert, of[i]->share, of[i]->spread);
    out += fmt::format("{:<6} {:>7.3f} {:>8.3f}  {}{}\n", layer, bits, margin, classes, most);
  }
  return out;
}

}  // namespace lumen::cli
