#include "model/recipe/adapter_settings.h"

#include <charconv>
#include <cmath>
#include <optional>

#include "base/error.h"

namespace lumen::model::recipe {
namespace {

constexpr int64_t kTurns = 5, kMostTurns = 1000;  // iterations of loftq: default; and the maximum of both methods

std::optional<int64_t> number_after(const std::string& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return std::nullopt;
  int64_t number = 0;
  const char *first = text.data() + prefix.size(), *last = text.data() + text.size();
  const auto read = std::from_chars(first, last, number);
  if (read.ec != std::errc() || read.ptr != last || number < 1 || number > kMostTurns) return std::nullopt;
  return number;
}

}  // namespace

double AdapterSettings::scale() const {
  const double ranks = rank;
  return alpha / (rs_lora ? std::sqrt(ranks) : ranks);
}

AdapterInit adapter_init(const AdapterSettings& s) {
  using Kind = AdapterInit::Kind;
  if (s.init == "default") return {};
  if (s.init == "pissa") return {Kind::pissa, 0};
  if (s.init == "loftq") return {Kind::loftq, kTurns};
  if (const auto n = number_after(s.init, "pissa_niter_")) return {Kind::pissa, *n};
  if (const auto n = number_after(s.init, "loftq_iter_")) return {Kind::loftq, *n};
  throw Error(Exit::usage, fmt::format("adapter.init '{}' is not known", s.init),
              "known: default, pissa, pissa_niter_N, loftq, loftq_iter_N");
}

void check_adapter(const AdapterSettings& s) {
  const AdapterInit init = adapter_init(s);
  const auto refuse = [](const std::string& what, const char* hint) { throw Error(Exit::usage, what, hint); };
  if (!s.trains()) return;
  if (s.changes_base() && s.has_magnitudes())
    refuse(fmt::format("adapter.init {} and DoRA's magnitudes contradict each other", s.init), "remove one of the two");
  if (!s.changes_base() && s.base_type != "base")
    refuse(fmt::format("adapter.base_type {} needs an init that changes the base, but adapter.init default does not",
                       s.base_type),
           "add --lora-init pissa or loftq, or quantize the base with `lumen quantize`");
  if (init.kind == AdapterInit::Kind::loftq && s.base_type == "base")
    refuse("adapter.init loftq compensates rounding errors, but adapter.base_type names no format",
           "name the base's format with --lora-base-type, and a base of higher precision with --model");
  if (s.targets.empty())
    throw Error(Exit::usage, "adapter.targets names no weight",
                fmt::format("\"{}\" means all matrices of linear layers", kAllLinear));
}

void check_ship(const ShipSettings& s) {
  if (!s.ships() && (s.learns() || s.magnitudes))
    throw Error(Exit::usage, "ship.fields and ship.magnitudes need a format to ship, but ship.type names none",
                "add --ship FORMAT");
}

}  // namespace lumen::model::recipe
