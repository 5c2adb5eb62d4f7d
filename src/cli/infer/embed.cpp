// lumen embed -m MODEL [TEXT...]
#include "model/infer/measure/embed.h"

#include <cmath>

#include "base/error.h"
#include "base/file/file.h"
#include "base/log.h"
#include "base/structured/json.h"
#include "cli/adapters.h"
#include "cli/command.h"
#include "cli/given_text.h"
#include "cli/output.h"
#include "model/arch/checkpoint/read.h"
#include "model/file/hub_cache.h"
#include "model/text/unicode/unicode.h"

namespace lumen::cli {
namespace {

using nlohmann::ordered_json;

struct EmbedFlags {
  std::string model, file, pooling, form = "plain";
  std::vector<std::string> texts;
  int norm = 2;
  bool cosine = false;
  model::EmbedOptions options;
  AdapterFlags adapters;
};

const std::vector<std::pair<std::string, model::Pooling>> kPoolings = {{"mean", model::Pooling::mean},
                                                                       {"cls", model::Pooling::first},
                                                                       {"last", model::Pooling::last},
                                                                       {"none", model::Pooling::none}};

model::Pooling pooling_for(const EmbedFlags& flags, const model::Model& model) {
  for (const auto& [name, pooling] : kPoolings)
    if (name == flags.pooling) return pooling;
  if (const auto own = model::pooling_of(model, model::resolve_path(flags.model))) return *own;
  note("the model does not say how its vectors are pooled; taking the mean (see --pooling)");
  return model::Pooling::mean;
}

// A text of its own on each line, empty lines aside.
std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    if (line.ends_with('\r')) line.pop_back();
    if (!line.empty()) lines.push_back(std::move(line));
    at = end + 1;
  }
  return lines;
}

std::vector<std::string> texts_of(const EmbedFlags& flags) {
  std::vector<std::string> texts = flags.texts;
  mention_files(texts);
  if (!flags.file.empty()) {
    const auto more = lines_of(read_file(flags.file, uint64_t{1} << 30));
    texts.insert(texts.end(), more.begin(), more.end());
  } else if (texts.empty()) {
    texts = lines_of(standard_input());
  }
  if (texts.empty()) throw usage_error("no text: give some, or --file, or standard input");
  for (const std::string& text : texts)
    if (model::utf8_valid_run(text, 0) != text.size()) throw user_error("a text is no valid UTF-8");
  return texts;
}

struct Row {
  size_t text;
  std::vector<float> vector;
};

std::string numbers(const std::vector<float>& vector, const char* between) {
  std::string out;
  for (const float v : vector) out += (out.empty() ? "" : between) + fmt::format("{:.9g}", v);
  return out;
}

std::vector<std::vector<double>> cosines(const std::vector<Row>& rows) {
  std::vector<std::vector<double>> out;
  for (const Row& a : rows) {
    out.emplace_back();
    for (const Row& b : rows) out.back().push_back(model::cosine(a.vector, b.vector));
  }
  return out;
}

// In the form in which servers answer, with the cosines of all pairs where they are asked for.
void print_json(const EmbedFlags& flags, const std::vector<Row>& rows, int64_t tokens) {
  ordered_json data = ordered_json::array();
  for (const Row& row : rows) {
    ordered_json entry;
    entry["object"] = "embedding";
    entry["index"] = row.text;
    entry["embedding"] = row.vector;
    data.push_back(std::move(entry));
  }
  ordered_json root;
  root["object"] = "list";
  root["model"] = std::filesystem::path(flags.model).filename().string();
  root["data"] = std::move(data);
  root["usage"] = {{"prompt_tokens", tokens}, {"total_tokens", tokens}};
  if (flags.cosine || flags.form == "json+") root["cosineSimilarity"] = cosines(rows);
  put_text(root.dump() + "\n");
}

void print_plain(const EmbedFlags& flags, const std::vector<Row>& rows) {
  if (!flags.cosine) {
    for (const Row& row : rows) put(numbers(row.vector, " ") + "\n");
    return;
  }
  const auto all = cosines(rows);
  for (const auto& line : all) {
    std::string text;
    for (const double c : line) text += fmt::format("{}{:7.4f}", text.empty() ? "" : " ", c);
    put(text + "\n");
  }
}

int embed(const Shared& shared, EmbedFlags& flags) {
  if (flags.cosine && flags.form == "array") throw usage_error("--cosine has no place in --format array: take json");
  const std::vector<std::string> texts = texts_of(flags);
  const model::Model model = model::read_model(shared.library(), flags.model);
  if (!model.tokenizer) throw user_error("{} has no tokenizer", flags.model);
  const model::Pooling pooling = pooling_for(flags, model);
  if (pooling == model::Pooling::none && flags.cosine)
    throw usage_error("--cosine compares texts; --pooling none gives a vector for each token");
  const auto adapters = flags.adapters.read(model);
  run::Engine engine = shared.engine();
  const model::LoadedModel loaded(engine, model, adapters);
  model::Embedder embedder(loaded, flags.options);
  std::vector<Row> rows;
  int64_t tokens = 0;
  catch_interrupts();
  for (size_t i = 0; i < texts.size(); ++i) {
    if (interrupted().load()) return exit_code(Exit::interrupted);
    model::EncodeOptions encode;
    encode.add_special = true;
    const auto ids = model.tokenizer->encode(texts[i], encode);
    tokens += ids.size();
    for (auto& vector : embedder.embed(ids, pooling)) {
      if (!std::all_of(vector.begin(), vector.end(), [](float v) { return std::isfinite(v); }))
        throw Error(Exit::numeric, fmt::format("the vector of text {} holds values that are not finite", i + 1),
                    "the model's weights may be damaged; see `lumen inspect`");
      model::normalise(vector, flags.norm);
      rows.push_back({i, std::move(vector)});
    }
  }
  if (flags.form == "plain") {
    print_plain(flags, rows);
  } else if (flags.form == "array") {
    std::string text = "[";
    for (size_t i = 0; i < rows.size(); ++i) text += fmt::format("{}[{}]", i ? "," : "", numbers(rows[i].vector, ","));
    put(text + "]\n");
  } else {
    print_json(flags, rows, tokens);
  }
  note(fmt::format("{} texts, {} tokens, vectors of {} numbers", texts.size(), tokens, embedder.size()));
  return 0;
}

}  // namespace

void add_embed(CLI::App& app, Command& command) {
  auto flags = std::make_shared<EmbedFlags>();
  CLI::App* sub = app.add_subcommand("embed", "Turn texts into vectors")->alias("embedding");
  sub->add_option("-m,--model,--model_name_or_path", flags->model, "GGUF file or Hugging Face folder")
      ->required()
      ->type_name("FILE");
  sub->add_option("text,-p,--prompt", flags->texts, "The texts; without them and --file, lines of standard input");
  sub->add_option("-f,--file", flags->file, "File with a text on each line")->type_name("FILE");
  sub->add_option("--pooling", flags->pooling,
                  "How the vectors of tokens become one: mean, cls (the first), last, or none; without it as the model "
                  "says, else mean")
      ->check(CLI::IsMember({"mean", "cls", "last", "none"}));
  sub->add_option("--normalize,--embd-normalize", flags->norm,
                  "2: length 1; 1 or above 2: that norm; 0: largest magnitude 32760; -1: as they are")
      ->capture_default_str()
      ->check(CLI::Range(-1, 64));
  sub->add_option("--format,--embd-output-format", flags->form,
                  "plain: a line for each vector; array: JSON without names; json: as servers answer; json+: with "
                  "cosines")
      ->capture_default_str()
      ->check(CLI::IsMember({"plain", "array", "json", "json+"}));
  sub->add_flag("--cosine", flags->cosine,
                "Print the cosines of all pairs of texts instead (json: beside the vectors)");
  sub->add_option("-c,--ctx-size", flags->options.context, "Tokens of a text at most; 0: the model's context")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  flags->adapters.add_flags(*sub);
  sub->add_flag("--exact", flags->options.exact, "f32 activations throughout");
  sub->footer(
      "Examples:\n"
      "  lumen embed -m model.gguf \"서울은 대한민국의 수도이다.\" \"Seoul is the capital of Korea.\" --cosine\n"
      "  lumen embed -m model.gguf -f texts.txt --pooling last --format json > vectors.json");
  add_shared_flags(*sub, command.shared);
  sub->callback(
      [flags, &command] { command.action = [flags, shared = command.shared] { return embed(*shared, *flags); }; });
}

}  // namespace lumen::cli
