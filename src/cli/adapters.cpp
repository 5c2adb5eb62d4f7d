#include "cli/adapters.h"

#include <cmath>

#include "base/error.h"
#include "base/log.h"
#include "cli/settings/declare.h"
#include "model/arch/chat/chat.h"

namespace lumen::cli {
namespace {

struct Wanted {
  std::string path;
  double scale = 1;
};

double scale_of(const std::string& text, const std::string& given, const char* flag) {
  char* end = nullptr;
  const double scale = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !std::isfinite(scale))
    throw usage_error("{} {}: '{}' is no number", flag, given, text);
  return scale;
}

// An existing file of exactly this name is taken as a whole, even if the name contains the separator.
Wanted split(const std::string& given, char sign, const char* flag) {
  std::error_code failure;
  const size_t at = given.rfind(sign);
  if (at == std::string::npos || std::filesystem::exists(given, failure)) return {given, 1};
  return {given.substr(0, at), scale_of(given.substr(at + 1), given, flag)};
}

std::vector<Wanted> wanted(const AdapterFlags& flags) {
  std::vector<Wanted> out;
  for (const std::string& given : flags.plain) out.push_back(split(given, '=', "--lora"));
  for (const std::string& given : flags.scaled) {
    if (given.rfind(':') == std::string::npos) throw usage_error("--lora-scaled {}: expected FILE:SCALE", given);
    out.push_back(split(given, ':', "--lora-scaled"));
  }
  return out;
}

}  // namespace

model::templates::ChosenTemplate choose_chat(const std::string& name, const AdapterFlags& adapters,
                                             const model::text::Tokenizer& tokenizer) {
  const std::string trained = name.empty() ? adapters.chat_template() : std::string();
  if (trained.empty()) return model::templates::choose_template(name, tokenizer);
  if (trained != tokenizer.chat_template()) note("chats are written by the template that the adapter was trained with");
  return model::templates::choose_template("", tokenizer.with_chat_template(trained));
}

void AdapterFlags::add_flags(CLI::App& app) {
  add_setting(app, "--lora", plain);
  add_setting(app, "--lora-scaled", scaled);
}

std::string AdapterFlags::chat_template() const {
  std::string out, first;
  for (const Wanted& w : wanted(*this)) {
    std::string own = model::arch::adapter_chat_template(w.path);
    if (own.empty() || own == out) continue;
    if (!out.empty())
      throw Error(Exit::user, fmt::format("'{}' and '{}' were trained with different chat templates", first, w.path),
                  "--chat-template chooses one");
    out = std::move(own);
    first = w.path;
  }
  return out;
}

std::vector<model::arch::ScaledAdapter> AdapterFlags::read(const model::arch::Model& model) const {
  std::vector<model::arch::ScaledAdapter> out;
  for (const Wanted& w : wanted(*this)) {
    out.push_back({model::arch::read_adapter(model, w.path), w.scale});
    int64_t rank = 0;
    for (const auto& [name, part] : out.back().adapter.parts) rank = std::max(rank, part.rank());
    note(fmt::format("adapter {}: {} weights, rank {}, scale {}", w.path, out.back().adapter.parts.size(), rank,
                     w.scale));
  }
  return out;
}

}  // namespace lumen::cli
