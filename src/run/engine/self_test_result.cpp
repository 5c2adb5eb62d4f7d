#include "run/engine/self_test_result.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "emit/emit.h"
#include "emit/seal.h"

namespace lumen::run {
namespace {

constexpr std::string_view kSound = "sound", kWrong = "wrong: ";
constexpr size_t kLongestWrong = 2048;
constexpr const char* kKind = "verdicts";

std::string name_of(const Device& device) {
  return emit::fingerprint(fmt::format("{}\n{}\n{}", device.machine().name, device.identity(), emit::version()));
}

// What is remembered: a disagreement, or "" for none.
std::optional<std::string> known_result(const Device& device, KeptFiles& kept) {
  const std::string text = kept.read(kKind, name_of(device));
  if (text == kSound) return std::string();
  if (text.starts_with(kWrong)) return text.substr(kWrong.size());
  return std::nullopt;  // not tried yet
}

}  // namespace

std::string disagreement(const std::vector<CheckLine>& lines) {
  const auto wrong = std::find_if(lines.begin(), lines.end(), [](const CheckLine& l) { return l.ran && !l.ok; });
  return wrong == lines.end() ? "" : fmt::format("{}: {}", wrong->what, wrong->detail);
}

void keep_result(const Device& device, KeptFiles& kept, const std::string& disagreement) {
  kept.write(kKind, name_of(device),
             disagreement.empty() ? std::string(kSound) : std::string(kWrong) + disagreement.substr(0, kLongestWrong));
}

void require_sound(Engine& engine, KeptFiles& kept) {
  std::optional<std::string> result = known_result(engine.device(), kept);
  if (!result) {
    verbose(fmt::format("first use of {}: its kernels with f32 activations are tested", engine.device().describe()));
    const std::vector<CheckLine> lines = check_families(engine);
    result = disagreement(lines);
    const bool whole = std::all_of(lines.begin(), lines.end(), [](const CheckLine& l) { return l.ran; });
    if (whole || !result->empty()) keep_result(engine.device(), kept, *result);
  }
  if (!result->empty())
    throw Error(
        Exit::hardware,
        fmt::format("{} is refused: its kernels disagree with the evaluator ({})", engine.device().describe(), *result),
        "`lumen doctor` tests it again; --device cpu computes right");
}

}  // namespace lumen::run
