// lumen tokenize -m TOKENIZER [TEXT...]
#include <algorithm>
#include <iostream>

#include "base/error.h"
#include "base/file/file.h"
#include "base/log.h"
#include "base/structured/json.h"
#include "cli/command.h"
#include "cli/given_text.h"
#include "cli/output.h"
#include "cli/paths/paths.h"
#include "cli/settings/declare.h"
#include "model/text/tokenizer/text_stats.h"
#include "model/text/tokenizer/tokenizer.h"
#include "model/text/unicode/unicode.h"

namespace lumen::cli {
namespace {

using nlohmann::ordered_json;

struct TokenizeFlags {
  std::string tokenizer, file, output;
  std::vector<std::string> words, training, specials;
  std::vector<model::text::TokenId> decode;
  bool ids = false, stats = false, json = false, json_lines = false, special = false, plain = false;
  int64_t vocabulary = 32000;
  std::string split;
};

std::string hex(std::string_view bytes) {
  std::string out;
  for (const char b : bytes) out += fmt::format("{:02x}", static_cast<unsigned char>(b));
  return out;
}

std::string from_hex(const std::string& text) {
  std::string out;
  for (size_t i = 0; i + 1 < text.size(); i += 2)
    out += static_cast<char>(std::strtol(text.substr(i, 2).c_str(), nullptr, 16));
  return out;
}

// A token in printable form: invalid UTF-8 as bytes, white space visible.
std::string shown(const std::string& bytes) {
  std::string out;
  for (size_t at = 0; at < bytes.size();) {
    char32_t c = 0;
    const size_t n = model::text::utf8_char(bytes, at, &c);
    if (n == 0 || c < 0x20 || (c >= 0x7f && c < 0xa0)) {
      for (size_t i = 0; i < std::max<size_t>(n, 1); ++i)
        out += fmt::format("<{:02x}>", static_cast<unsigned char>(bytes[at + i]));
    } else {
      out.append(bytes, at, n);
    }
    at += std::max<size_t>(n, 1);
  }
  return out;
}

// Reads one JSON value per line of stdin, a string or {"bytes": hex}, and writes one object per line to stdout.
void serve_lines(const model::text::Tokenizer& t, const model::text::EncodeOptions& options) {
  for (std::string line; std::getline(std::cin, line);) {
    const auto value = parse_json(line, "line of stdin");
    const bool bytes = value.is_object();
    if (!bytes && !value.is_string())
      throw user_error("a line of stdin is neither a JSON string nor {{\"bytes\": hex}}");
    const std::string text = bytes ? from_hex(json_text(value, "bytes", "line of stdin")) : value.get<std::string>();
    ordered_json out;
    try {
      const auto ids = t.encode(text, options);
      const std::string decoded = t.decode(ids, false);
      out["ids"] = ids;
      if (bytes) {
        out["bytes"] = hex(decoded);
      } else {
        out["text"] = model::text::utf8_repair(decoded);
      }
    } catch (const Error& e) {
      out["error"] = e.what();
    }
    put_text(out.dump() + "\n");
  }
}

int tokenize(const TokenizeFlags& flags) {
  if (!flags.training.empty()) {
    if (flags.output.empty()) throw usage_error("--train needs --output FILE for the tokenizer");
    std::string text;
    for (const std::string& file : flags.training) text += read_file(file, uint64_t{4} << 30);
    model::text::BpeTraining options{.vocabulary = flags.vocabulary, .specials = flags.specials, .split = flags.split};
    if (!flags.specials.empty()) options.end_of_text = flags.specials.front();
    const model::text::Tokenizer t = model::text::Tokenizer::train(text, options);
    write_file_atomic(flags.output, t.to_json());
    note(fmt::format("{}: {} tokens", flags.output, t.size()));
    return 0;
  }
  if (flags.tokenizer.empty()) throw usage_error("a tokenizer is needed: -m FILE or FOLDER");
  const model::text::Tokenizer t = model::text::Tokenizer::load(flags.tokenizer);
  model::text::EncodeOptions options{.add_special = flags.special, .parse_special = !flags.plain};
  if (!flags.decode.empty()) {
    put_text(t.decode(flags.decode, false) + "\n");
    return 0;
  }
  if (flags.json_lines) {
    serve_lines(t, options);
    return 0;
  }
  std::string text;
  for (const std::string& part : flags.words) text += (text.empty() ? "" : " ") + part;
  if (!flags.file.empty()) text += read_file(flags.file, uint64_t{4} << 30);
  if (flags.words.empty() && flags.file.empty()) text = standard_input();
  mention_files(flags.words);
  if (flags.stats) {
    const model::text::TextStats stats = model::text::text_stats(t, text);
    put(flags.json ? stats.json() : stats.table());
    return 0;
  }
  const auto ids = t.encode(text, options);
  if (flags.json) {
    ordered_json pieces = ordered_json::array();
    for (const model::text::TokenId id : ids) pieces.push_back(model::text::utf8_repair(t.bytes(id)));
    put_text(ordered_json{{"tokens", ids.size()}, {"ids", ids}, {"pieces", pieces}}.dump() + "\n");
  } else if (flags.ids) {
    std::string line;
    for (const model::text::TokenId id : ids) line += fmt::format("{}{}", line.empty() ? "" : " ", id);
    put(line + "\n");
  } else {
    std::string list;
    for (const model::text::TokenId id : ids) list += fmt::format("{:>7}  {}\n", id, shown(t.bytes(id)));
    put(list);
  }
  return 0;
}

}  // namespace

void add_tokenize(CLI::App& app, Command& command) {
  auto flags = std::make_shared<TokenizeFlags>();
  CLI::App* sub = app.add_subcommand("tokenize", "Show how a text becomes tokens; measure or train a tokenizer");
  auto* model = add_setting(*sub, "--model", flags->tokenizer);
  auto* text = add_setting(*sub, "text", flags->words);
  auto* file = add_setting(*sub, "--file", flags->file);
  auto* ids = add_setting(*sub, "--ids", flags->ids);
  auto* json = add_setting(*sub, "--json", flags->json)->excludes(ids);
  auto* stats = add_setting(*sub, "--stats", flags->stats)->excludes(ids);
  auto* decode = add_setting(*sub, "--decode", flags->decode);
  auto* special = add_setting(*sub, "--special", flags->special);
  auto* plain = add_setting(*sub, "--plain", flags->plain);
  auto* lines = add_setting(*sub, "--json-lines", flags->json_lines);
  auto* train = add_setting(*sub, "--train", flags->training);
  // These options belong to one mode only.
  for (auto* other : {text, file, ids, json, stats, special, plain, lines}) decode->excludes(other);
  for (auto* other : {text, file, ids, json, stats}) lines->excludes(other);
  for (auto* other : {model, text, file, ids, json, stats, decode, special, plain, lines}) train->excludes(other);
  add_setting(*sub, "--vocabulary", flags->vocabulary)->needs(train);
  add_setting(*sub, "--special-token", flags->specials)->needs(train);
  add_setting(*sub, "--split", flags->split)->needs(train);
  add_setting(*sub, "--output", flags->output)->needs(train);
  sub->footer(
      "Examples:\n"
      "  lumen tokenize -m model.gguf \"대한민국의 수도는 서울이다.\"\n"
      "  lumen tokenize -m tokenizer.json -f text.txt --stats\n"
      "  lumen tokenize --train korean.txt english.txt --vocabulary 8000 -o tokenizer.json");
  set_action(*sub, command, flags, tokenize);
}

}  // namespace lumen::cli
