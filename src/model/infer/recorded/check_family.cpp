#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "base/check.h"
#include "base/error.h"
#include "model/arch/checkpoint/pairs.h"
#include "model/infer/recorded/recorded.h"
#include "model/infer/session/session.h"

namespace lumen::model::infer {
namespace {

constexpr const char *kTokens = "tokens", *kLengths = "lengths", *kEmbedding = "embedding", *kRecordedResult = "result";

std::vector<float> recorded(const Recording& r, const std::string& name) {
  const file::StoredTensor& t = r.outputs->get(name);
  std::vector<float> out(t.data.size() / sizeof(float));
  std::memcpy(out.data(), t.data.data(), out.size() * sizeof(float));
  return out;
}

int64_t recorded_width(const Recording& r, const std::string& name) {
  const auto& shape = r.outputs->get(name).shape;
  int64_t width = 1;
  for (size_t i = 2; i < shape.size(); ++i) width *= shape[i];
  return width;
}

// Which of our values is compared with a recorded one.
struct Counterpart {
  std::string theirs, ours;
  bool is_stage = false;
  graph::ValueId value = -1;
  // The weight that a part was computed with, which knows the order of rows in files; and a bias that a later operation
  // of ours adds.
  const arch::Parameter* weight = nullptr;
  const arch::Parameter* bias = nullptr;
};

// Finds counterparts in a graph of the family's function.
class Matching {
 public:
  Matching(const arch::Model& model, const Recording& recording, const graph::Graph& g)
      : model_(model), recording_(recording), g_(g), bindings_{{"B", recording.sequences}, {"T", recording.tokens}} {
    readers_.resize(g.nodes.size());
    for (size_t v = 0; v < g.nodes.size(); ++v)
      for (const graph::ValueId operand : g.nodes[v].operands) readers_[operand].push_back(graph::ValueId(v));
    for (const arch::Parameter& p : model.parameters)
      for (const std::string& name : names_of(p)) by_module_[module_of(name)].push_back(&p);
  }

  std::vector<Counterpart> all() const {
    std::vector<Counterpart> out;
    if (recording_.outputs->find(kEmbedding)) {
      const graph::ValueId end = recording_.layers > 0 ? last_of("layers.0.", width(kEmbedding), count()) : count();
      if (const graph::ValueId v = last_of("", width(kEmbedding), end < 0 ? count() : end); v >= 0)
        out.push_back({kEmbedding, g_[v].label, true, v});
    }
    for (const RecordedModule& m : recording_.modules) {
      if (m.layer >= 0) {
        const graph::ValueId v = last_of(fmt::format("layers.{}.", m.layer), width(m.name), count());
        if (v >= 0) out.push_back({m.name, g_[v].label, true, v});
      } else if (const auto part = part_of(m.name)) {
        out.push_back(*part);
      }
    }
    out.push_back({kRecordedResult, recording_.has_logits ? "forward" : "hidden", true, g_.results.at(0)});
    return out;
  }

 private:
  int64_t width(const std::string& name) const { return recorded_width(recording_, name); }
  graph::ValueId count() const { return graph::ValueId(g_.nodes.size()); }

  static std::vector<std::string> names_of(const arch::Parameter& p) {
    std::vector<std::string> names = p.hf_also;
    for (const std::string& name : {p.hf, p.hf_fused, p.hf_rows})
      if (!name.empty()) names.push_back(name);
    return names;
  }
  // "model.layers.0.mlp.up_proj" of its weight's name.
  static std::string module_of(const std::string& name) {
    return name.substr(0, std::min(name.rfind('.'), name.size()));
  }

  // The parameters of a module, whose name may begin as that of a part of a larger model, or of one without its head.
  const std::vector<const arch::Parameter*>* parameters_of(const std::string& module) const {
    if (const auto found = by_module_.find(module); found != by_module_.end()) return &found->second;
    const std::string weight = module + ".";
    for (const auto& [theirs, ours] : model_.family->prefixes())
      if (weight.starts_with(theirs))
        if (const auto found = by_module_.find(module_of(ours + weight.substr(theirs.size())));
            found != by_module_.end())
          return &found->second;
    for (const auto& [name, parameters] : by_module_)
      if (const size_t dot = name.find('.'); dot != std::string::npos && name.substr(dot + 1) == module)
        return &parameters;
    return nullptr;
  }

  // The last value before `end` with a label of this beginning ("": in no layer) and rows of this width.
  graph::ValueId last_of(const std::string& prefix, int64_t width, graph::ValueId end) const {
    for (graph::ValueId v = end - 1; v >= 0; --v) {
      const graph::Node& n = g_[v];
      const bool is_labelled =
          prefix.empty() ? !n.label.empty() && n.label.find('.') == std::string::npos : n.label.starts_with(prefix);
      if (is_labelled && n.op != graph::Op::input_ && is_rows(v, width)) return v;
    }
    return -1;
  }
  bool is_rows(graph::ValueId v, int64_t width) const {
    const graph::Type type = graph::bind(g_[v].type, bindings_);
    if (type.element.format || type.element.scalar != Scalar::f32 || type.shape.empty()) return false;
    int64_t elements = 1;
    for (const graph::Dim& d : type.shape) {
      if (!d.is_number()) return false;
      elements *= d.number();
    }
    return elements == recording_.sequences * recording_.tokens * width && type.shape.back().number() == width;
  }

  // The value that one operation of ours computes from a module's weight.
  std::optional<Counterpart> part_of(const std::string& module) const {
    const auto* parameters = parameters_of(module);
    if (!parameters) return std::nullopt;
    const arch::Parameter *weight = nullptr, *bias = nullptr;
    for (const arch::Parameter* p : *parameters) {
      const arch::Parameter*& one = p->role == "bias" ? bias : weight;
      if (one) return std::nullopt;  // several of ours in one of theirs
      one = p;
    }
    if (!weight || weight->role == "embedding") return std::nullopt;
    const graph::ValueId input = g_.find_input(weight->name);
    if (input < 0 || readers_[input].size() != 1) return std::nullopt;
    Counterpart part{module, weight->name, false, readers_[input].front(), weight, nullptr};
    const graph::Node& n = g_[part.value];
    if (n.op != graph::Op::call_ && n.op != graph::Op::contract_) return std::nullopt;
    bool adds = false;
    for (const graph::ValueId operand : n.operands) {
      const graph::Node& o = g_[operand];
      if (o.op != graph::Op::input_ || o.attributes.role != graph::Role::parameter || operand == input) continue;
      if (!bias || o.attributes.name != bias->name) return std::nullopt;  // an operation of several modules
      adds = true;
    }
    if (bias && !adds) part.bias = bias;
    const int64_t own = own_width(*weight);
    const graph::Type type = graph::bind(n.type, bindings_);
    int64_t elements = 1;
    for (const graph::Dim& d : type.shape) elements *= d.is_number() ? d.number() : 0;
    const int64_t rows = recording_.sequences * recording_.tokens;
    // A norm of heads has more rows than there are tokens.
    if (elements != rows * width(module) && (own == 0 || elements != rows * own)) return std::nullopt;
    if (elements != rows * width(module) && !is_cut(*weight)) return std::nullopt;
    return part;
  }
  static int64_t own_width(const arch::Parameter& p) {
    return p.shape.size() == 2 && p.shape[0].is_number() ? p.shape[0].number() : 0;
  }
  // Whether files hold the weight as rows of a larger one.
  static bool is_cut(const arch::Parameter& p) { return p.hf_parts > 1 || (p.hf_of > 0 && !p.hf_columns); }

  const arch::Model& model_;
  const Recording& recording_;
  const graph::Graph& g_;
  const graph::Bindings bindings_;
  std::vector<std::vector<graph::ValueId>> readers_;
  std::map<std::string, std::vector<const arch::Parameter*>> by_module_;
};

// Puts the columns of our rows in the order of files, and adds the bias.
void to_file_order(const arch::Model& model, const Counterpart& part, int64_t rows, std::vector<float>& values) {
  const int64_t width = std::ssize(values) / rows;
  if (part.bias) {
    const std::span<const float> bias = model.weights.at(part.bias->name).f32();
    if (std::ssize(bias) == width)
      for (int64_t i = 0; i < std::ssize(values); ++i) values[i] += bias[i % width];
  }
  if (!part.weight || part.weight->shape.size() != 2 || !arch::is_reordered(*part.weight)) return;
  std::vector<float> turned(values.size());
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < width; ++c) turned[c * rows + r] = values[r * width + c];
  arch::Weight w = arch::f32_weight({graph::Dim(width), graph::Dim(rows)}, turned);
  arch::rows_to_folder_order(w, *part.weight);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < width; ++c) values[r * width + c] = w.f32()[c * rows + r];
}

// The columns of recorded rows that our weight computes.
std::vector<float> own_columns(const std::vector<float>& theirs, int64_t rows, int64_t width,
                               const arch::Parameter& p) {
  const int64_t all = std::ssize(theirs) / rows;
  std::vector<float> out;
  out.reserve(rows * width);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < width; ++c) {
      const int64_t at = p.hf_rows.empty() ? p.hf_part * width + c : p.row_of_whole(c, width);
      if (at >= all) return {};
      out.push_back(theirs[r * all + at]);
    }
  return out;
}

ComparedOutput compared(const Counterpart& part, const std::vector<float>& theirs, const std::vector<float>& ours) {
  const auto [low, high] = std::minmax_element(theirs.begin(), theirs.end());
  ComparedOutput out{part.theirs, part.ours, part.is_stage, double{*high} - *low, 0};
  double most = 0;
  for (size_t i = 0; i < theirs.size(); ++i) {
    const double off = std::abs(double{ours[i]} - theirs[i]);
    most = std::isfinite(off) ? std::max(most, off) : std::numeric_limits<double>::infinity();
  }
  out.error = most == 0 ? 0 : most / std::max(out.range, double{std::numeric_limits<float>::min()});
  return out;
}

// Index of the part that explains the first stage that differs.
int cause_of(const std::vector<ComparedOutput>& outputs, int stage, double bound) {
  int begin = stage;
  while (begin > 0 && !outputs[begin - 1].is_stage) --begin;
  for (int i = begin; i < stage; ++i)
    if (!(outputs[i].error <= bound)) return i;
  return stage;
}

std::shared_ptr<run::Program> compiled(run::Engine& engine, const arch::Model& model, const Recording& recording,
                                       graph::Graph g, const std::vector<Counterpart>& parts,
                                       std::vector<std::string>& names) {
  for (const Counterpart& part : parts) {
    const auto found = std::find(g.results.begin(), g.results.end(), part.value);
    if (found == g.results.end()) {
      g.results.push_back(part.value);
      g.result_names.push_back(fmt::format("recorded.{}", g.results.size()));
      names.push_back(g.result_names.back());
    } else {
      names.push_back(g.result_names[found - g.results.begin()]);
    }
  }
  run::CompileOptions options;
  options.assignments = stored_formats(model, g);
  options.symbols = {{"B", recording.sequences}, {"T", recording.tokens}};
  options.exact = true;
  return engine.compile(g, options);
}

void bind_inputs(run::Engine& engine, const LoadedModel& loaded, const Recording& recording, run::Program& program) {
  const auto input = [&](const graph::Shape& shape, const void* values, int64_t bytes) {
    auto t = std::make_shared<run::DeviceTensor>(engine.device(), graph::Type{shape, {Scalar::i32, nullptr}});
    t->upload(values, bytes);
    return t;
  };
  const file::StoredTensor& tokens = recording.outputs->get(kTokens);
  const std::vector<uint8_t> ids = tokens.blob();
  std::vector<text::TokenId> checked(ids.size() / sizeof(int32_t));
  std::memcpy(checked.data(), ids.data(), ids.size());
  check_tokens(loaded.model(), checked);
  const std::vector<int32_t> lengths(recording.sequences, int32_t(recording.tokens));
  for (const std::string& name : program.input_names()) {
    if (name == kTokens)
      program.bind(name,
                   input({graph::Dim(recording.sequences), graph::Dim(recording.tokens)}, ids.data(), ids.size()));
    else if (name == kLengths)
      program.bind(name, input({graph::Dim(recording.sequences)}, lengths.data(), lengths.size() * sizeof(int32_t)));
    else if (const auto weight = loaded.weights().find(name); weight != loaded.weights().end())
      program.bind(name, weight->second);
    else
      throw user_error("the family '{}' has the input '{}', which no recording has", loaded.model().family->name(),
                       name);
  }
}

}  // namespace

FamilyCheck check_family(run::Engine& engine, const arch::Model& model, const Recording& recording, double bound) {
  const char* const function = recording.has_logits ? "forward" : "hidden";
  if (!model.family->has_function(function))
    throw user_error("the family '{}' has no function '{}', but the recording of {} holds {}", model.family->name(),
                     function, recording.kind, recording.has_logits ? "logits" : "last hidden states");
  if (model.config.contains("layers") && model.integer("layers") != recording.layers)
    throw user_error("the recorded model has {} layers, that of {} has {}", recording.layers, recording.model.string(),
                     model.integer("layers"));
  const graph::Graph g = model.family->function(function, model.config);
  const std::vector<Counterpart> parts = Matching(model, recording, g).all();
  const int64_t rows = recording.sequences * recording.tokens;
  const LoadedModel loaded(engine, model);
  std::vector<std::string> names;
  const auto program = compiled(engine, model, recording, g, parts, names);
  bind_inputs(engine, loaded, recording, *program);
  program->run();
  FamilyCheck check;
  for (size_t i = 0; i < parts.size(); ++i) {
    const run::DeviceTensorRef result = program->result(names[i]);
    std::vector<float> ours(result->bytes() / sizeof(float));
    result->download(ours.data(), result->bytes());
    to_file_order(model, parts[i], rows, ours);
    std::vector<float> theirs = recorded(recording, parts[i].theirs);
    if (theirs.size() != ours.size() && parts[i].weight)
      theirs = own_columns(theirs, rows, std::ssize(ours) / rows, *parts[i].weight);
    if (theirs.size() == ours.size())
      check.outputs.push_back(compared(parts[i], theirs, ours));
    else if (parts[i].is_stage)
      throw user_error("'{}' has {} numbers for each token in the recording, but {} in the family '{}'",
                       parts[i].theirs, theirs.size() / rows, ours.size() / rows, model.family->name());
  }
  for (int i = 0; i < std::ssize(check.outputs) && check.stage < 0; ++i)
    if (check.outputs[i].is_stage && !(check.outputs[i].error <= bound)) check.stage = i;
  if (check.stage >= 0) check.cause = cause_of(check.outputs, check.stage, bound);
  return check;
}

std::string print(const FamilyCheck& check, double bound) {
  size_t theirs = 6, ours = 11;
  for (const ComparedOutput& o : check.outputs) {
    theirs = std::max(theirs, o.theirs.size() + 2);
    ours = std::max(ours, o.ours.size());
  }
  std::string out =
      fmt::format("{:<{}}  {:<{}}  {:>9}  {:>9}\n", "module", theirs, "in the text", ours, "range", "error");
  // Parts are shown where they explain something: in the first stage that differs.
  int parts = check.stage;
  while (parts > 0 && !check.outputs[parts - 1].is_stage) --parts;
  for (int i = 0; i < std::ssize(check.outputs); ++i) {
    const ComparedOutput& o = check.outputs[i];
    if (!o.is_stage && (check.stage < 0 || i < parts || i > check.stage)) continue;
    out += fmt::format("{:<{}}  {:<{}}  {:>9.3g}  {:>9.2g}{}\n", (o.is_stage ? "" : "  ") + o.theirs, theirs, o.ours,
                       ours, o.range, o.error, i == check.cause ? "  <- first" : "");
  }
  const auto all = std::ssize(check.outputs);
  if (check.stage < 0) return out + fmt::format("{} outputs agree within {:g} of their range\n", all, bound);
  const ComparedOutput& first = check.outputs[check.cause];
  out += fmt::format("the first difference is in '{}' ({} in the family's text): {:.2g} of its range", first.theirs,
                     first.ours, first.error);
  return out + (check.cause > 0 ? fmt::format("; what comes before it agrees within {:g}\n", bound) : "\n");
}

}  // namespace lumen::model::infer
