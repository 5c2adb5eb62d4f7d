#include "cli/infer/embed_measure.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/log.h"
#include "base/messages/spelling.h"
#include "base/structured/json.h"
#include "model/arch/checkpoint/read.h"
#include "model/arch/modules/modules.h"
#include "model/data/rows/rows.h"
#include "model/file/hub/resolve.h"
#include "model/infer/measure/correlation.h"

namespace lumen::cli {
namespace {

using nlohmann::ordered_json;

// Pairs of sentences, stored consecutively, with the similarity scores that people gave them.
struct Pairs {
  std::vector<std::string> inputs;
  std::vector<double> scores;
};

// The three names in --fields: two sentences and a score.
std::vector<std::string> field_names(const std::string& fields) {
  std::vector<std::string> names(1);
  for (const char c : fields) {
    if (c == ',')
      names.emplace_back();
    else
      names.back() += c;
  }
  if (names.size() != 3 || std::any_of(names.begin(), names.end(), [](const auto& n) { return n.empty(); }))
    throw usage_error("--fields takes the names of two sentences and a score, as in sentence1,sentence2,score");
  return names;
}

// A dot in the name descends into an object; null when there is no such field.
const ordered_json* field_of(const ordered_json& row, const std::string& name) {
  if (const auto whole = row.find(name); whole != row.end()) return &*whole;
  const size_t dot = name.find('.');
  if (dot == std::string::npos) return nullptr;
  const auto object = row.find(name.substr(0, dot));
  return object == row.end() || !object->is_object() ? nullptr : field_of(*object, name.substr(dot + 1));
}

double number_of(const ordered_json& value, const std::string& where) {
  if (value.is_number()) return value.get<double>();
  if (value.is_string()) {
    const std::string text = value.get<std::string>();
    char* end = nullptr;
    const double number = std::strtod(text.c_str(), &end);
    if (!text.empty() && *end == 0 && std::isfinite(number)) return number;
  }
  throw user_error("{} is no number", where);
}

Pairs read_pairs(const EmbedFlags& flags) {
  const std::vector<std::string> names = field_names(flags.fields);
  Pairs out;
  const auto reader = model::data::open_rows(flags.pairs);
  for (model::data::DataRow row; reader->next(&row);) {
    model::data::parse_row(&row);
    if (!row.fault.empty())
      throw user_error("{}:{}: {}", flags.pairs, row.line, row.detail.empty() ? row.fault : row.detail);
    for (size_t i = 0; i < names.size(); ++i) {
      const ordered_json* value = field_of(row.value, names[i]);
      const std::string where = fmt::format("{}:{}: '{}'", flags.pairs, row.line, names[i]);
      if (!value)
        throw Error(Exit::user, where + " is missing",
                    "--fields names the two sentences and the score, e.g. a,b,labels.label");
      if (i == 2) {
        out.scores.push_back(number_of(*value, where));
        continue;
      }
      if (!value->is_string()) throw user_error("{} is no string", where);
      out.inputs.push_back(value->get<std::string>());
    }
  }
  if (out.scores.size() < 2) throw user_error("{}: {} pairs are too few to compare", flags.pairs, out.scores.size());
  return out;
}

struct Measured {
  std::string name;
  double bits = 0, mib = 0, seconds = 0;
  double cosine_mean = 1, cosine_least = 1;  // cosine similarity to the vectors of the first model
  size_t least_input = 0;
  double linear = 0, rank = 0;  // correlation with the pairs' scores
};

void compare_vectors(const std::vector<model::infer::Embedder::Vectors>& base,
                     const std::vector<model::infer::Embedder::Vectors>& other, Measured* m) {
  double sum = 0;
  m->cosine_least = 2;
  for (size_t i = 0; i < base.size(); ++i) {
    const double c = model::infer::cosine(base[i].at(0), other[i].at(0));
    sum += c;
    if (c >= m->cosine_least) continue;
    m->cosine_least = c;
    m->least_input = i;
  }
  m->cosine_mean = sum / base.size();
}

void compare_scores(const std::vector<model::infer::Embedder::Vectors>& vectors, const Pairs& pairs, Measured* m) {
  std::vector<double> cosines;
  for (size_t i = 0; i < pairs.scores.size(); ++i)
    cosines.push_back(model::infer::cosine(vectors[2 * i].at(0), vectors[2 * i + 1].at(0)));
  m->linear = model::infer::linear_correlation(cosines, pairs.scores);
  m->rank = model::infer::rank_correlation(cosines, pairs.scores);
}

std::string as_json(const std::vector<Measured>& all, size_t inputs, int64_t tokens, bool has_pairs) {
  ordered_json models = ordered_json::array();
  for (size_t i = 0; i < all.size(); ++i) {
    const Measured& m = all[i];
    ordered_json one = {{"model", m.name}, {"bits_per_weight", m.bits}, {"mib", m.mib}, {"seconds", m.seconds}};
    if (i > 0) {
      one["cosine_mean"] = m.cosine_mean;
      one["cosine_min"] = m.cosine_least;
      one["cosine_min_text"] = m.least_input;
    }
    if (has_pairs) {
      one["pearson"] = m.linear;
      one["spearman"] = m.rank;
    }
    models.push_back(std::move(one));
  }
  ordered_json root = {{"texts", inputs}, {"tokens", tokens}};
  root["models"] = std::move(models);
  return root.dump() + "\n";
}

std::string as_table(const std::vector<Measured>& all, size_t inputs, int64_t tokens, bool has_pairs) {
  const bool has_others = all.size() > 1;
  size_t width = 5;
  for (const Measured& m : all) width = std::max(width, m.name.size());
  std::string out =
      fmt::format("{} inputs, {} tokens\n\n{:<{}}  {:>6}  {:>8}", inputs, tokens, "model", width, "bpw", "MiB");
  if (has_others) out += fmt::format("  {:>11}  {:>11}", "mean cosine", "min cosine");
  if (has_pairs) out += fmt::format("  {:>8}  {:>8}", "Pearson", "Spearman");
  out += fmt::format("  {:>8}\n", "inputs/s");
  for (size_t i = 0; i < all.size(); ++i) {
    const Measured& m = all[i];
    out += fmt::format("{:<{}}  {:>6.2f}  {:>8.2f}", m.name, width, m.bits, m.mib);
    if (i > 0)
      out += fmt::format("  {:>11.6f}  {:>11.6f}", m.cosine_mean, m.cosine_least);
    else if (has_others)
      out += fmt::format("  {:>11}  {:>11}", "", "");
    if (has_pairs) out += fmt::format("  {:>8.4f}  {:>8.4f}", m.linear, m.rank);
    out += fmt::format("  {:>8.1f}\n", inputs / m.seconds);
  }
  return out;
}

// The text that is placed before each input.
std::string prompt_of(const EmbedFlags& flags, const model::arch::Model& model) {
  const model::arch::Prompts prompts = model::arch::prompts_of(model.files);
  const std::string& name = flags.prompt_name.empty() ? prompts.usual : flags.prompt_name;
  if (name.empty() || name == "none") return "";
  const auto found = prompts.by_name.find(name);
  if (found != prompts.by_name.end()) return found->second;
  std::vector<std::string> known;
  for (const auto& [own, text] : prompts.by_name) known.push_back(own);
  if (known.empty())
    throw Error(Exit::usage, fmt::format("--prompt-name {}: the model has no prompts", name),
                "write the prompt in front of the inputs");
  throw Error(Exit::usage, fmt::format("--prompt-name {}: the model has no such prompt", name),
              did_you_mean_any(name, known));
}

}  // namespace

model::infer::Pooling embed_pooling(const EmbedFlags& flags, const model::arch::Model& model, const std::string& path) {
  for (const auto& [name, pooling] : model::infer::pooling_names())
    if (name == flags.pooling) return pooling;
  if (const auto own = model::infer::pooling_of(model, model::file::resolve_path(path))) return *own;
  note("the model has no pooling type; the mean is used (see --pooling)");
  return model::infer::Pooling::mean;
}

EmbeddedInputs embed_inputs(const Shared& shared, const EmbedFlags& flags, const model::arch::Model& model,
                            const std::string& path, const std::vector<std::string>& inputs) {
  if (!model.tokenizer) throw user_error("{} has no tokenizer", path);
  const model::infer::Pooling pooling = embed_pooling(flags, model, path);
  const auto adapters = path == flags.model ? flags.adapters.read(model) : std::vector<model::arch::ScaledAdapter>();
  const std::string prompt = prompt_of(flags, model);
  model::infer::EmbedOptions options = flags.options;
  const auto longest = model::arch::longest_text(model.files);
  if (options.context == 0 && longest) options.context = std::min(*longest, model.integer("context"));
  run::Engine engine = shared.engine();
  const model::infer::LoadedModel loaded(engine, model, adapters);
  model::infer::Embedder embedder(loaded, options);
  EmbeddedInputs out;
  out.size = embedder.size();
  std::vector<std::vector<model::text::TokenId>> ids;
  for (const std::string& input : inputs) {
    model::text::EncodeOptions encode;
    encode.add_special = true;
    ids.push_back(model.tokenizer->encode(prompt + input, encode));
    if (flags.truncate && std::ssize(ids.back()) > embedder.context()) {
      // A truncated input keeps its end token.
      const model::text::TokenId last = ids.back().back();
      ids.back().resize(embedder.context());
      if (model.tokenizer->adds_eos()) ids.back().back() = last;
      ++out.cut;
    }
    out.tokens += std::ssize(ids.back());
  }
  if (out.cut > 0)
    warn(fmt::format("{} of {} inputs were cut after {} tokens", out.cut, inputs.size(), embedder.context()));
  out.vectors = embedder.embed_all(ids, pooling, [](size_t) { return !interrupted().load(); });
  if (out.vectors.size() != inputs.size()) throw Error(Exit::interrupted, "stopped");
  out.seconds = embedder.seconds();
  for (size_t i = 0; i < inputs.size(); ++i)
    for (auto& vector : out.vectors[i]) {
      if (!std::all_of(vector.begin(), vector.end(), [](float v) { return std::isfinite(v); }))
        throw Error(Exit::numeric, fmt::format("the vector of input {} holds values that are not finite", i + 1),
                    "the model's weights may be damaged; see `lumen inspect`");
      model::infer::normalise(vector, flags.norm);
    }
  return out;
}

std::string measure_embeddings(const Shared& shared, const EmbedFlags& flags, std::vector<std::string> inputs) {
  const bool has_pairs = !flags.pairs.empty();
  Pairs pairs;
  if (has_pairs) {
    pairs = read_pairs(flags);
    inputs = pairs.inputs;
  }
  std::vector<std::string> files = {flags.model};
  files.insert(files.end(), flags.against.begin(), flags.against.end());
  std::vector<Measured> all;
  EmbeddedInputs base;
  for (size_t i = 0; i < files.size(); ++i) {
    const model::arch::Model model = model::arch::read_model(shared.library(), files[i]);
    EmbeddedInputs own = embed_inputs(shared, flags, model, files[i], inputs);
    Measured m;
    m.name = files[i];
    m.bits = 8.0 * model.weight_bytes() / model.weight_count();
    m.mib = model.weight_bytes() / 1048576.0;
    m.seconds = own.seconds;
    if (has_pairs) compare_scores(own.vectors, pairs, &m);
    if (i == 0) {
      base = std::move(own);
    } else if (own.size != base.size) {
      throw user_error("vectors of {} have {} numbers, those of {} {}", files[i], own.size, files[0], base.size);
    } else {
      compare_vectors(base.vectors, own.vectors, &m);
    }
    all.push_back(std::move(m));
  }
  return flags.form == "plain" ? as_table(all, inputs.size(), base.tokens, has_pairs)
                               : as_json(all, inputs.size(), base.tokens, has_pairs);
}

}  // namespace lumen::cli
