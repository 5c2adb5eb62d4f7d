// lumen embed -m MODEL [TEXT...]
#include "base/error.h"
#include "base/file/file.h"
#include "base/log.h"
#include "base/structured/json.h"
#include "cli/command.h"
#include "cli/given_text.h"
#include "cli/infer/embed_measure.h"
#include "cli/output.h"
#include "cli/settings/declare.h"
#include "model/arch/checkpoint/read.h"
#include "model/text/unicode/unicode.h"

namespace lumen::cli {
namespace {

using nlohmann::ordered_json;

// One input per line; empty lines are skipped.
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

std::vector<std::string> inputs_of(const EmbedFlags& flags) {
  std::vector<std::string> inputs = flags.inputs;
  mention_files(inputs);
  if (!flags.file.empty()) {
    const auto more = lines_of(read_file(flags.file, uint64_t{1} << 30));
    inputs.insert(inputs.end(), more.begin(), more.end());
  } else if (inputs.empty()) {
    inputs = lines_of(standard_input());
  }
  if (inputs.empty()) throw usage_error("no input: give some, or --file, or standard input");
  for (const std::string& input : inputs)
    if (model::text::utf8_valid_run(input, 0) != input.size()) throw user_error("an input is no valid UTF-8");
  return inputs;
}

std::string numbers(const std::vector<float>& vector, const char* between) {
  std::string out;
  for (const float v : vector) out += (out.empty() ? "" : between) + fmt::format("{:.9g}", v);
  return out;
}

std::vector<std::vector<double>> cosines(const EmbeddedInputs& all) {
  std::vector<std::vector<double>> out;
  for (const auto& a : all.vectors) {
    out.emplace_back();
    for (const auto& b : all.vectors) out.back().push_back(model::infer::cosine(a.at(0), b.at(0)));
  }
  return out;
}

// The JSON of the OpenAI embeddings API, plus the cosines of all pairs when requested.
std::string json_of(const EmbedFlags& flags, const EmbeddedInputs& all, bool with_cosines) {
  ordered_json data = ordered_json::array();
  for (size_t i = 0; i < all.vectors.size(); ++i)
    for (const auto& vector : all.vectors[i]) {
      ordered_json entry;
      entry["object"] = "embedding";
      entry["index"] = i;
      entry["embedding"] = vector;
      data.push_back(std::move(entry));
    }
  ordered_json root;
  root["object"] = "list";
  root["model"] = std::filesystem::path(flags.model).filename().string();
  root["data"] = std::move(data);
  root["usage"] = {{"prompt_tokens", all.tokens}, {"total_tokens", all.tokens}};
  if (with_cosines) root["cosineSimilarity"] = cosines(all);
  return root.dump() + "\n";
}

std::string cosine_table(const EmbeddedInputs& all) {
  std::string out;
  for (const auto& line : cosines(all)) {
    std::string text;
    for (const double c : line) text += fmt::format("{}{:7.4f}", text.empty() ? "" : " ", c);
    out += text + "\n";
  }
  return out;
}

std::string text_of(const EmbedFlags& flags, const EmbeddedInputs& all, bool one_each) {
  if (flags.form == "json" || flags.form == "json+")
    return json_of(flags, all, one_each && (flags.cosine || flags.form == "json+"));
  if (flags.cosine) return cosine_table(all);
  std::string out;
  for (const auto& vectors : all.vectors)
    for (const auto& vector : vectors) {
      if (flags.form == "array")
        out += fmt::format("{}[{}]", out.empty() ? "[" : ",", numbers(vector, ","));
      else
        out += numbers(vector, " ") + "\n";
    }
  return flags.form == "array" ? out + "]\n" : out;
}

void check_flags(const EmbedFlags& flags) {
  if (flags.cosine && flags.form == "array") throw usage_error("--cosine has no place in --format array: take json");
  const bool measures = !flags.pairs.empty() || !flags.against.empty();
  if (measures && (flags.cosine || flags.form == "array" || flags.form == "json+"))
    throw usage_error("--pairs and --against print a table, or with --format json an object");
  if (measures && flags.pooling == "none") throw usage_error("--pairs and --against compare inputs, not tokens");
  if (!flags.pairs.empty() && (!flags.file.empty() || !flags.inputs.empty()))
    throw usage_error("--pairs brings its own inputs");
}

int embed(const Shared& shared, EmbedFlags& flags) {
  if (flags.model.empty() && !flags.inputs.empty()) {
    flags.model = flags.inputs.front();
    flags.inputs.erase(flags.inputs.begin());
  }
  if (flags.model.empty()) throw usage_error("no model: name it first, or with -m");
  check_flags(flags);
  const auto give = [&](const std::string& text, bool is_report) {
    if (!flags.out.empty())
      write_file_atomic(flags.out, text);
    else if (is_report)
      put(text);
    else
      put_text(text);
  };
  const std::vector<std::string> inputs = flags.pairs.empty() ? inputs_of(flags) : std::vector<std::string>();
  catch_interrupts();
  if (!flags.pairs.empty() || !flags.against.empty()) {
    give(measure_embeddings(shared, flags, inputs), flags.form == "plain");
    return 0;
  }
  const model::arch::Model model = model::arch::read_model(shared.library(), flags.model);
  const bool one_each = embed_pooling(flags, model, flags.model) != model::infer::Pooling::none;
  if (!one_each && flags.cosine)
    throw usage_error("--cosine compares inputs; --pooling none gives a vector for each token");
  const EmbeddedInputs all = embed_inputs(shared, flags, model, flags.model, inputs);
  give(text_of(flags, all, one_each), flags.form == "plain" || flags.form == "array");
  note(fmt::format("{} inputs, {} tokens, vectors of {} numbers, {:.1f} inputs/s", inputs.size(), all.tokens, all.size,
                   inputs.size() / all.seconds));
  return 0;
}

}  // namespace

void add_embed(CLI::App& app, Command& command) {
  auto flags = std::make_shared<EmbedFlags>();
  CLI::App* sub = app.add_subcommand("embed", "Compute embedding vectors of texts")->alias("embedding");
  add_settings(*sub, "--model", flags->model, "--prompt", flags->inputs, "--file", flags->file, "--pooling",
               flags->pooling, "--prompt-name", flags->prompt_name, "--normalize", flags->norm, "--format", flags->form,
               "--cosine", flags->cosine, "--ctx-size", flags->options.context, "--truncate", flags->truncate,
               "--batch-size", flags->options.batch, "--output", flags->out, "--pairs", flags->pairs, "--fields",
               flags->fields, "--against", flags->against);
  flags->adapters.add_flags(*sub);
  add_setting(*sub, "--exact", flags->options.exact);
  sub->footer(
      "Examples:\n"
      "  lumen embed -m model.gguf \"서울은 대한민국의 수도이다.\" \"Seoul is the capital of Korea.\" --cosine\n"
      "  lumen embed -m model.gguf -f texts.txt --pooling last --format json > vectors.json\n"
      "  lumen embed -m model.gguf --against rounded.gguf -f texts.txt\n"
      "  lumen embed -m model.gguf --pairs sts.tsv --against rounded.gguf");
  set_action(*sub, command, flags, embed);
}

}  // namespace lumen::cli
